package scanner

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
)

func asks(prefix string, n int) []*kgo.Record {
	out := make([]*kgo.Record, n)
	for i := range out {
		out[i] = ask(fmt.Sprint(prefix, i), int32(i%intakeParts), schemas.HeaderEvents, "all")
	}
	return out
}

// A group of its own for each makes both take every partition: what a scanner does that has been thrown out of the group
// and has not noticed, all the time.
func TestTwoScannersOfOnePartitionStoreItOnce(t *testing.T) {
	const n = 2000
	f := newFixture(t)
	f.publish(asks("a", n/2)...)
	one := f.start(f.store, Config{Group: "one", BatchRecords: 37})
	two := f.start(f.open(), Config{Group: "two", BatchRecords: 53})
	f.eventually("both know where the intake stands", func() bool { return one.at() == n/2 && two.at() == n/2 })
	f.publish(asks("b", n/2)...)
	events := f.events(tell(n))
	f.eventually("both have read all", func() bool { return one.at() == n && two.at() == n })
	require.Equal(t, n, f.count("SELECT COUNT(*) FROM tasks"))
	require.NotZero(t, counted(one.worker.metrics.fenced)+counted(two.worker.metrics.fenced), "they have not met")
	one.end()
	two.end()
	scheduled := byID(events, schemas.StateScheduled)
	require.Len(t, scheduled, n)
	if counted(one.results.Leftovers())+counted(two.results.Leftovers()) == 0 { // a slow machine takes its own for a dead one's
		require.Len(t, events, n, "each is told once")
	}
	require.Zero(t, f.count("SELECT COUNT(*) FROM outbox"), "all is told")
}

// A batch may turn out to be stored as a whole, with more behind it that is not.
func TestWhatFollowsAStoredBatchIsStored(t *testing.T) {
	f := newFixture(t)
	s := f.scanner(f.store, Config{BatchRecords: 10})
	t.Cleanup(s.asks.Close)
	s.group.Close() // it joins the group by itself, and would forget the source that is set here
	key := partitionKey{schemas.TopicIntake, 0}
	src, err := intake.New(f.store).Source(t.Context(), key.topic, [16]byte{1}, key.partition, 25)
	require.NoError(t, err)
	s.parts.sources[key] = &src
	left, err := s.worker.storeStretches(t.Context(), []stretch{asksAt(&reading{key: key}, 0, 40)})
	require.NoError(t, err)
	require.Empty(t, left)
	require.Equal(t, 15, f.count("SELECT COUNT(*) FROM tasks"))
}

// at sums up how far a scanner has its partitions of the intake stored, as it knows.
func (r *running) at() (sum int64) {
	r.parts.mu.Lock()
	defer r.parts.mu.Unlock()
	for key, src := range r.parts.sources {
		if key.topic == schemas.TopicIntake && src != nil {
			sum += src.Next
		}
	}
	return sum
}

func TestRebalancesLoseAndDoubleNothing(t *testing.T) {
	const n = 300
	f := newFixture(t)
	first := f.start(f.store, Config{BatchRecords: 20})
	f.publish(asks("a", n)...)
	f.events(atLeast(n))
	second := f.start(f.open(), Config{BatchRecords: 20})
	f.publish(asks("b", n)...)
	f.eventually("they share", func() bool {
		return first.assigned() > 0 && second.assigned() > 0 && first.assigned()+second.assigned() == intakeParts
	})
	f.publish(asks("c", n)...)
	first.end()
	f.publish(asks("d", n)...)
	events := f.events(tell(4 * n))
	f.eventually("all is stored", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 4*n })
	scheduled := byID(events, schemas.StateScheduled)
	require.Len(t, scheduled, 4*n)
	if counted(first.results.Leftovers())+counted(second.results.Leftovers()) == 0 {
		require.Len(t, events, 4*n, "each is told once")
	}
}

// assigned counts the partitions of the intake that a scanner has, once the database knows them all.
func (r *running) assigned() (n int) {
	r.parts.mu.Lock()
	defer r.parts.mu.Unlock()
	for key, src := range r.parts.sources {
		if key.topic == schemas.TopicIntake && src != nil {
			n++
		}
	}
	return n
}

// What Kafka keeps for the group is for lag monitors: the database says where to begin.
func TestBeginsWhereTheDatabaseStands(t *testing.T) {
	f := newFixture(t)
	first := f.start(f.store, Config{Group: "one"})
	f.publish(asks("a", 40)...)
	f.events(atLeast(40))
	first.end()
	// Another group has nothing committed, which says "from the start" to whoever believes it.
	next := f.start(f.open(), Config{Group: "two"})
	f.publish(asks("b", 40)...)
	f.events(func(e []schemas.Event) bool { return len(byID(e, schemas.StateScheduled)) == 80 })
	require.Zero(t, counted(next.worker.metrics.fenced), "it did not even try")
	sources, err := intake.New(f.store).Sources(t.Context())
	require.NoError(t, err)
	sum := int64(0)
	for _, src := range sources {
		if src.Topic == schemas.TopicIntake {
			sum += src.Next
		}
	}
	require.Equal(t, int64(80), sum)
}

// A database that fails is waited for; meanwhile the intake waits in Kafka.
func TestWaitsForTheDatabase(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(asks("a", 100)...)
	f.events(atLeast(100))

	f.sql("ALTER TABLE tasks RENAME TO away")
	f.publish(asks("b", 100)...)
	f.eventually("it tries again and again", func() bool { return counted(s.worker.metrics.storeErrors) >= 3 })
	require.Equal(t, 100, f.count("SELECT COUNT(*) FROM away"))
	require.Equal(t, int64(100), s.at(), "offsets stay with what is stored")
	select {
	case err := <-s.done:
		require.Fail(t, "it gave up", "%v", err)
	default:
	}

	f.sql("ALTER TABLE away RENAME TO tasks")
	events := f.events(atLeast(200))
	require.Len(t, byID(events, schemas.StateScheduled), 200)
	require.Equal(t, 200, f.count("SELECT COUNT(*) FROM tasks"))
}

// A scanner that ends while the database is away leaves what it has not stored to the next.
func TestEndsWhileTheDatabaseIsAway(t *testing.T) {
	f := newFixture(t)
	st := f.open()
	s := f.start(st, Config{})
	f.publish(asks("a", 20)...)
	f.events(atLeast(20))
	require.NoError(t, st.Close())
	f.publish(asks("b", 20)...)
	f.eventually("it tries again", func() bool { return counted(s.worker.metrics.storeErrors) >= 1 })
	s.end()
	require.Equal(t, 20, f.count("SELECT COUNT(*) FROM tasks"))

	f.start(f.store, Config{})
	events := f.events(atLeast(40))
	require.Len(t, byID(events, schemas.StateScheduled), 40)
}

// A database restored from a backup stands further back than the scanner: the intake is read again from there.
func TestReadsAgainWhatARestoredDatabaseLacks(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(asks("a", 40)...)
	f.events(atLeast(40))
	f.sql("DELETE FROM tasks WHERE seq % 281474976710656 >= 5", "UPDATE sources SET next_offset = 5 WHERE next_offset > 5")
	require.Equal(t, 20, f.count("SELECT COUNT(*) FROM tasks"))
	f.publish(asks("b", 4)...)
	f.eventually("all is there again", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 44 })
	require.NotZero(t, counted(s.worker.metrics.fenced))
	for i := range 40 {
		v, err := look.New(f.store).Get(t.Context(), "orders", fmt.Sprint("a", i))
		require.NoError(t, err)
		require.Equal(t, "pending", v.State)
	}
}

// The backup may be older than a partition. Then its source is gone, and so is what it stored.
func TestReadsAgainWhatADatabaseLacksAltogether(t *testing.T) {
	for name, more := range map[string]int{"by its next record": 8, "by looking": 0} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			s := f.start(f.store, Config{})
			f.publish(asks("a", 40)...)
			f.events(atLeast(40))
			require.NoError(t, f.cluster.DeleteRecords(schemas.TopicIntake, 0, 3))
			f.sql("DELETE FROM tasks", "DELETE FROM sources WHERE part = 1", "UPDATE sources SET next_offset = 3 WHERE part = 2",
				"DELETE FROM sources WHERE part = 0", "UPDATE sources SET next_offset = 0 WHERE part = 3")
			if more > 0 {
				f.publish(asks("b", more)...)
			}
			f.eventually("all is there again that Kafka has", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 40-3-3+more })
			require.NotZero(t, counted(s.worker.metrics.reread))
			require.Equal(t, 4*10+more, f.count("SELECT SUM(next_offset) FROM sources"))
		})
	}
}

// A halt ends with the source that it was about.
func TestReadsAgainAHaltedPartitionThatTheDatabaseLacks(t *testing.T) {
	for name, unknown := range map[string]bool{"diverged": false, "not known": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			s := f.start(f.store, Config{})
			f.publish(asksIn("a", 10, 0)...)
			f.eventually("all is stored", func() bool { return f.tasks() == 10 })
			s.end()
			s = f.start(f.store, Config{})
			key := partitionKey{schemas.TopicIntake, 0}
			f.eventually("it is assigned", func() bool { at, _, reading := s.parts.readTo(key); return reading && at == 10 })
			s.checker.halt(key, halt{source: f.sourceOf(0).ID, next: 10, same: 3, end: 3, unknown: unknown})
			if unknown {
				s.parts.mu.Lock()
				s.parts.readings[key].endAt(0)
				s.parts.mu.Unlock()
			}
			f.sql("DELETE FROM tasks", "DELETE FROM sources")
			f.eventually("all is there again", func() bool { return f.tasks() == 10 })
			f.eventually("it is read on", func() bool { return s.Ready(t.Context()) == nil })
		})
	}
}
