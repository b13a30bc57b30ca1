package intake

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// forMissing applies requests, of which each is for a topic that does not exist, at a quota.
func (f *fixture) forMissing(most int, requests ...*schemas.Request) (states []schemas.State) {
	f.t.Helper()
	records := make([]any, len(requests))
	for i, r := range requests {
		records[i] = r
	}
	b := f.batch(records...)
	b.Unknown.Most = map[string]int{"in": most}
	for i := range b.Changes {
		b.Unknown.Changes = append(b.Unknown.Changes, i)
	}
	byID := map[string]schemas.State{}
	for _, e := range f.apply(b) {
		byID[e.ID] = e.State
		if e.State == schemas.StateRejected {
			require.Contains(f.t, e.Reason, `quota "unknown-targets"`)
			require.Contains(f.t, e.Reason, fmt.Sprintf("%q does not exist", e.Topic))
		}
	}
	for _, r := range requests {
		states = append(states, byID[r.ID])
	}
	return states
}

func named(id string) func(*schemas.Request) { return func(r *schemas.Request) { r.ID = id } }

// to gives a request another target.
func to(topic string) func(*schemas.Request) { return func(r *schemas.Request) { r.Topic = topic } }

func (f *fixture) unknown() []string {
	f.t.Helper()
	names, err := f.UnknownTargets(f.ctx, "in")
	require.NoError(f.t, err)
	return names
}

// sweep forgets what can be forgotten, while none of the topics exists.
func (f *fixture) sweepUnknown() []string {
	f.t.Helper()
	for _, name := range f.unknown() {
		require.NoError(f.t, f.ForgetUnknown(f.ctx, "in", name, false))
	}
	return f.unknown()
}

const taken, refused = schemas.StateScheduled, schemas.StateRejected

func TestAnIntakeHasFewUnknownTargets(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		require.Equal(t, []schemas.State{taken, taken, taken, refused, refused, taken},
			s.forMissing(2, s.schedule("1", to("a")), s.schedule("2", to("b")), s.schedule("3", to("a")), s.schedule("4", to("c")), s.schedule("5", to("d")), s.schedule("6", to("b"))))
		require.Equal(t, []string{"a", "b"}, s.unknown())
		require.Equal(t, 2, s.count("dead_letters"))
		require.Equal(t, []schemas.State{taken, refused}, s.forMissing(2, s.schedule("7", to("b")), s.schedule("8", to("c"))), "a name that has its row is taken")
		require.Equal(t, []schemas.State{taken, taken, refused}, s.forMissing(3, s.schedule("9", to("c")), s.schedule("10", to("c")), s.schedule("11", to("d"))), "a larger quota")
		require.Equal(t, []schemas.State{taken, refused}, s.forMissing(1, s.schedule("12", to("c")), s.schedule("13", to("d"))), "a smaller one")
		require.Equal(t, []schemas.State{taken}, s.forMissing(0, s.schedule("14", to("e"))), "none")
		require.Equal(t, []schemas.State{refused, taken}, s.forMissing(1, s.schedule("15", to("e")), s.schedule("14", to("e"), in(time.Hour))), "a pending task is moved")
		require.Equal(t, []string{"a", "b", "c"}, s.unknown())
	})
}

// A batch that is applied again is judged again, and the scanner says which rejections have a dead letter.
func TestUnknownTargetsWithoutLetters(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		b := s.batch(s.schedule("1", to("a")), s.schedule("2", to("b")), s.schedule("3", to("c")))
		b.Unknown = Unknown{Most: map[string]int{"in": 1, "another": 9}, Changes: []int{1, 2}, Letter: func(intake string) bool { return intake != "in" }}
		var states []schemas.State
		for _, e := range s.apply(b) {
			states = append(states, e.State)
		}
		require.ElementsMatch(t, []schemas.State{taken, taken, refused}, states)
		require.Equal(t, []string{"b"}, s.unknown())
		require.Zero(t, s.count("dead_letters"))
		require.Empty(t, b.Changes[2].Beyond)
	})
}

func TestTimersCountAsUnknownTargets(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		timer := func(id, topic string) *schemas.Request { return s.timerRequest(schemas.OpTimer, named(id), to(topic)) }
		require.Equal(t, []schemas.State{schemas.StateTimerSet, refused}, s.forMissing(1, timer("1", "a"), timer("2", "b")))
		require.Equal(t, []string{"a"}, s.sweepUnknown())
		require.Equal(t, []schemas.State{taken, refused}, s.forMissing(1, s.schedule("3", to("a")), s.schedule("4", to("b"))))
		require.Equal(t, []schemas.State{schemas.StateTimerSet}, s.forMissing(0, timer("2", "b")))
		require.Equal(t, []schemas.State{schemas.StateTimerSet}, s.forMissing(1, timer("2", "b")), "one that is there is changed")
	})
}

// A row stays while its intake has a task or a timer for the topic.
func TestUnknownTargetsAreForgotten(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		due := s.now + 1000
		s.forMissing(9, s.schedule("1", to("cancelled")), s.schedule("2", to("delivered")), s.schedule("3", to("later"), in(time.Hour)), s.schedule("4", to("exists")), s.timerRequest(schemas.OpTimer, named("5"), to("timer")),
			s.schedule("6", to("high"), in(time.Hour), func(r *schemas.Request) { r.Settings.Priority = schemas.PriorityHigh }))
		all := []string{"cancelled", "delivered", "exists", "high", "later", "timer"}
		require.Equal(t, all, s.unknown())
		require.Equal(t, all, s.sweepUnknown())
		s.claim(due)
		require.Equal(t, all, s.sweepUnknown(), "they are being delivered")
		s.settle(due)
		require.Equal(t, []string{"high", "later", "timer"}, s.sweepUnknown())
		s.do(s.cancel("3", to("later")), s.timerRequest(schemas.OpTimerDelete, named("5"), to("timer")))
		require.Equal(t, []string{"high"}, s.sweepUnknown())
		missing := func() bool {
			is, err := look.New(s.Store).IsMissing(s.ctx, "high")
			require.NoError(t, err)
			return is
		}
		require.True(t, missing())
		require.NoError(t, s.ForgetUnknown(s.ctx, "in", "high", true))
		require.Empty(t, s.unknown(), "the topic exists")
		require.False(t, missing())

		s.forMissing(9, s.schedule("7", to("mine"), in(time.Hour)))
		s.do(s.cancel("7", to("mine")))
		mine := s.source
		var err error
		s.source, err = s.Source(s.ctx, "another", [16]byte{2}, 0, 0)
		require.NoError(t, err)
		s.offset = 0
		s.do(s.schedule("8", to("mine"), in(time.Hour)))
		require.Empty(t, s.sweepUnknown(), "another intake's task keeps no row of this one")
		s.source = mine
	})
}

// Writers of one intake together stay within the quota, and a row that one of them counts on is not deleted.
func TestManyWritersOfUnknownTargets(t *testing.T) {
	eachAtOnce(t, func(t *testing.T, s *fixture) {
		const writers, rounds, most = 4, 10, 15
		var all sync.WaitGroup
		lost := make(chan string, writers*rounds*4)
		for w := range writers {
			source, err := s.Source(s.ctx, "in", [16]byte{1}, int32(w), 0)
			require.NoError(t, err)
			all.Go(func() {
				for round := range rounds {
					b := Batch{Unknown: Unknown{Most: map[string]int{"in": most}}, Advance: []Advance{{Source: source.ID, From: int64(4 * round), To: int64(4*round + 4)}}}
					for i := range 4 {
						r := s.schedule(fmt.Sprint(w, "-", round, "-", i), to(fmt.Sprint("missing-", (w+2*round+i)%30)), in(time.Hour))
						b.Changes = append(b.Changes, task.Change{Seq: task.Seq(source.ID, int64(4*round+i)), Request: r})
						b.Unknown.Changes = append(b.Unknown.Changes, i)
					}
					if _, err := s.Apply(s.ctx, b, store.At(t0)); err != nil {
						lost <- err.Error()
					}
				}
			})
		}
		stop := s.keepSweeping(lost)
		all.Wait()
		stop()
		require.Empty(t, lost)
		var topics int
		require.NoError(t, s.db.QueryRowContext(s.ctx, "SELECT COUNT(DISTINCT topic) FROM tasks").Scan(&topics))
		require.Equal(t, most, topics)
		require.Len(t, s.unknown(), most)
		require.EqualValues(t, writers*rounds*4, s.count("tasks")+s.count("dead_letters"))
	})
}

// keepSweeping forgets what can be forgotten, all the time, until it is told to stop.
func (f *fixture) keepSweeping(lost chan<- string) (stop func()) {
	ended := make(chan struct{})
	var sweeps sync.WaitGroup
	sweeps.Go(func() {
		for {
			names, err := f.UnknownTargets(f.ctx, "in")
			for _, name := range names {
				if err == nil {
					err = f.ForgetUnknown(f.ctx, "in", name, false)
				}
			}
			if err != nil {
				lost <- err.Error()
			}
			select {
			case <-ended:
				return
			default:
			}
		}
	})
	return func() { close(ended); sweeps.Wait() }
}

// A task that was taken because its topic's name has a row does not lose the row to a sweep at the same time.
func TestARowStaysForTheTaskThatCountsOnIt(t *testing.T) {
	eachAtOnce(t, func(t *testing.T, s *fixture) {
		lost := make(chan string, 100)
		stop := s.keepSweeping(lost)
		for i := range 100 {
			require.Equal(t, []schemas.State{taken}, s.forMissing(1, s.schedule(fmt.Sprint(i), to("a"), in(time.Hour))))
			require.Equal(t, []string{"a"}, s.unknown())
			s.do(s.cancel(fmt.Sprint(i), to("a")))
		}
		stop()
		require.Empty(t, lost)
	})
}

// Tasks that have ended do not make the sweep longer, however many the retention keeps, and although nobody uses some slots.
func TestTasksThatEndedDoNotDelayTheSweep(t *testing.T) {
	s := backends()[1].fixture(t)
	s.forMissing(9, s.schedule("ended", to("no"), in(time.Hour)), s.schedule("lives", to("no"), in(time.Hour)))
	s.do(s.cancel("ended", to("no")))
	fastest := func() time.Duration {
		best := time.Hour
		for range 5 {
			began := time.Now()
			require.Equal(t, []string{"no"}, s.sweepUnknown())
			best = min(best, time.Since(began))
		}
		return best
	}
	before := fastest()
	s.sql(`INSERT INTO tasks SELECT seq + 10 + n, randomblob(16), slot, pos + n, lane, due, state, attempt, replay, version, created, topic, id, body, idle, snoozed, unread, failures
		FROM tasks, (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 100000) SELECT n FROM c) WHERE id = CAST('ended' AS BLOB)`)
	after := fastest()
	for tries := 0; tries < 20 && after >= 10*before; tries++ { // the machine may have become busy meanwhile
		after = min(after, fastest())
	}
	require.Less(t, after, 10*before)
}
