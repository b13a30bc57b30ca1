package dispatcher

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/recordtest"
)

func TestWhatAnotherTookMeanwhileIsAbandoned(t *testing.T) {
	f := newFixture(t, 4, "orders")
	orders := f.read("orders")
	m, d, due := f.suspend()
	got, err := intake.New(f.store).Line().Acquire(t.Context(), f.slots, 6, "two")
	require.NoError(t, err)
	require.Len(t, got, 4)

	f.passes(due)
	m.change(func() { m.trusted, m.alive["two"] = true, true })
	f.eventually("it gives up its slots", func() bool { return d.owned() == 0 })
	require.Equal(t, 4, counted(d.metrics.Abandoned))
	require.Zero(t, d.stagedTasks())
	f.eventually("it works again", d.trust.trusted)
	f.eventually("it has looked at what was due", func() bool { return d.inside(func(in flight.Figures) int { return in.Due }) == 0 })
	require.NoError(t, d.end())
	require.Zero(t, orders.count())
	slots, err := f.store.Slots(t.Context())
	require.NoError(t, err)
	for _, s := range slots {
		require.Equal(t, "two", s.Owner)
		require.Equal(t, int64(6), s.Epoch)
		require.Less(t, s.Done, due.UnixMilli())
	}

	next := f.elect(7) // and it is no loss: who owns them later delivers
	f.start(next, t.TempDir(), Config{MemberID: "three"})
	f.eventually("all is settled", func() bool { return f.settledUpTo(due) })
	f.eventually("each task arrives", func() bool { return len(orders.copies()) == 20 })
	require.Equal(t, 20, orders.count())
}

// An owner that believes itself trusted, and has been fenced all the same, sends nothing that it has not yet claimed.
func TestFencedOwnerClaimsNothing(t *testing.T) {
	f := newFixture(t, 2, "orders")
	orders := f.read("orders")
	m := f.elect(5)
	d := f.start(m, t.TempDir(), Config{MemberID: "one"})
	f.eventually("it owns its slots", func() bool { return d.owned() == 2 })
	m.change(func() { m.alive["two"] = true })
	_, err := intake.New(f.store).Line().Acquire(t.Context(), f.slots, 6, "two")
	require.NoError(t, err)
	f.schedule(askMany(10, "orders", "t", time.Now())...)
	d.kicks.Sweep.Now()
	f.eventually("it notices", func() bool { return d.owned() == 0 })
	require.Equal(t, 2, counted(d.metrics.Abandoned))
	require.NoError(t, d.end())
	require.Zero(t, orders.count())
}

// A database that fails over to a replica may have forgotten who took its slots. Nobody else has them, so their owner takes them
// anew; what it claimed is in doubt.
func TestSlotsAreTakenAnewAfterTheDatabaseForgotIt(t *testing.T) {
	for name, forget := range map[string]string{
		"that they were taken":                     "UPDATE slots SET epoch = 3, owner = ''",
		"that their owner before this one is gone": "UPDATE slots SET epoch = 4, owner = 'gone'",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 2, "orders")
			orders := f.read("orders")
			d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
			f.eventually("it owns its slots", func() bool { return d.owned() == 2 })
			f.sql(forget)
			due := time.Now()
			f.schedule(askMany(10, "orders", "t", due)...)
			d.kicks.Sweep.Now()
			f.eventually("each task arrives", func() bool { return len(orders.copies()) == 10 })
			f.eventually("all is settled", func() bool { return f.settledUpTo(due) })
			require.NoError(t, d.end())
		})
	}
}

// takeover has a dispatcher die with tasks that are acknowledged, noted in its send log, and not settled; then another takes
// its slots with the send log in dir.
func takeover(t *testing.T, sameLog bool) (orders *log, next *running) {
	f := newFixture(t, 4, "orders")
	orders = f.read("orders")
	events := f.read(results)
	answer := f.muteNow(results) // a delivery counts once its final event is acknowledged
	dir := t.TempDir()
	m := f.elect(5)
	d := f.start(m, dir, Config{MemberID: "one"})
	due := time.Now().Add(200 * time.Millisecond)
	f.schedule(askMany(30, "orders", "t", due, schemas.HeaderEvents, "all")...)
	f.eventually("all is acknowledged and noted", func() bool { return counted(d.metrics.Delivered) == 30 })
	d.crash(m)
	require.False(t, f.settledUpTo(due))
	f.eventually("all is published", func() bool { return orders.count() == 30 })

	answer()
	if !sameLog {
		dir = t.TempDir()
	}
	next = f.start(f.elect(6), dir, Config{MemberID: "two"})
	f.eventually("all is settled", func() bool { return f.settledUpTo(due) })
	require.Equal(t, 30, counted(next.metrics.Doubts))
	f.eventually("every end is told", func() bool { return len(events.events(t, schemas.StateSucceeded)) == 30 })
	for _, told := range events.events(t, schemas.StateSucceeded) {
		require.Len(t, told, 1)
	}
	return orders, next
}

func TestTakeoverSendsAgainWhatIsInDoubt(t *testing.T) {
	orders, next := takeover(t, false)
	require.Zero(t, counted(next.metrics.Proven))
	next.f.eventually("each task arrives once more", func() bool { return orders.count() == 60 })
	keys := map[string]string{}
	for _, r := range orders.all() {
		id, key := recordtest.Header(r, schemas.HeaderID), recordtest.Header(r, schemas.HeaderDelivery)
		require.NotEmpty(t, key)
		if before, again := keys[id]; again {
			require.Equal(t, before, key, "a copy carries the key of the first")
		}
		keys[id] = key
		require.Equal(t, "1", recordtest.Header(r, schemas.HeaderAttempt))
		require.Equal(t, "body of "+id, string(r.Value))
	}
	require.Len(t, keys, 30)
	for id, n := range orders.copies() {
		require.Equal(t, 2, n, id)
	}
}

func TestTakeoverSendsNothingThatTheSendLogProves(t *testing.T) {
	orders, next := takeover(t, true)
	require.Equal(t, 30, counted(next.metrics.Proven))
	require.NoError(t, next.end())
	require.Equal(t, 30, orders.count())
	require.Len(t, orders.copies(), 30)
}

func TestStopDrainsAndReleases(t *testing.T) {
	f := newFixture(t, 4, "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", LookAhead: 2 * time.Second})
	f.eventually("it owns its slots", func() bool { return d.owned() == 4 })
	due, later := time.Now().Add(700*time.Millisecond), time.Now().Add(time.Hour)
	f.schedule(askMany(20, "orders", "t", due)...)
	f.schedule(askMany(20, "orders", "later", later)...)
	d.kicks.Sweep.Now()
	f.eventually("the near ones are staged, or gone on a machine that stalls", func() bool {
		return d.stagedTasks() == 20 || counted(d.metrics.Delivered) == 20
	})
	require.NoError(t, d.end())
	require.True(t, time.Now().After(due), "what is claimed is waited for")
	slots, err := f.store.Slots(t.Context())
	require.NoError(t, err)
	for _, s := range slots {
		require.Empty(t, s.Owner)
		require.Equal(t, s.Claimed, s.Done)
		require.GreaterOrEqual(t, s.Done, due.UnixMilli())
	}
	f.eventually("the near ones are delivered", func() bool { return orders.count() == 20 })

	m := f.elect(6)
	m.change(func() { m.alive["one"] = true }) // nobody waits for who has let go
	next := f.start(m, t.TempDir(), Config{MemberID: "two"})
	f.eventually("it owns its slots", func() bool { return next.owned() == 4 })
	require.Zero(t, counted(next.metrics.Doubts))
	f.fire("orders", "later", 20)
	f.eventually("the rest arrives", func() bool { return orders.count() == 40 })
	require.Len(t, orders.copies(), 40)
}

// A dispatcher that could not drain stays a member until its producer is closed: afterwards others send what was in it.
func TestNothingIsOnItsWayOnceADispatcherHasLeft(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m := f.elect(5)
	d := f.start(m, t.TempDir(), Config{MemberID: "one", DrainTimeout: 200 * time.Millisecond})
	var reached error // of its brokers, by its producer, when it leaves
	m.change(func() { m.left = func() { reached = d.producer().Ping(t.Context()) } })
	f.eventually("it owns its slot", func() bool { return d.owned() == 1 })
	defer f.mute("orders")()
	d.told(f.schedule(ask("orders", "t", time.Now())).Added)
	f.eventually("its producer has the task", func() bool { return d.producer().BufferedProduceRecords() == 1 })
	require.NoError(t, d.end())
	require.Error(t, reached)
}

func TestLivingOwnerIsGivenTimeToDrain(t *testing.T) {
	f := newFixture(t, 2, "orders")
	one, two := f.elect(5), f.elect(5)
	two.current.Slots = nil
	one.alive["two"], two.alive["one"] = true, true
	a := f.start(one, t.TempDir(), Config{MemberID: "one", LookAhead: 2 * time.Second})
	b := f.start(two, t.TempDir(), Config{MemberID: "two"})
	f.eventually("one owns the slots", func() bool { return a.owned() == 2 })
	due := time.Now().Add(time.Second)
	f.schedule(askMany(10, "orders", "t", due)...)
	a.kicks.Sweep.Now()
	f.eventually("the tasks are staged, or gone on a machine that stalls", func() bool {
		return a.stagedTasks() == 10 || counted(a.metrics.Delivered) == 10
	})
	for _, m := range []*members{two, one} {
		m.change(func() {
			m.current.Epoch, m.current.Slots = 6, nil
			if m == two {
				m.current.Slots = f.slots
			}
		})
	}
	f.eventually("two owns the slots", func() bool { return b.owned() == 2 })
	require.True(t, time.Now().After(due))
	require.Zero(t, counted(b.metrics.Doubts))
	require.Zero(t, a.owned())
	require.Zero(t, counted(a.metrics.Abandoned))
	orders := f.read("orders")
	f.eventually("each task arrives", func() bool { return orders.count() == 10 })
}

// following lets d follow its assignments until stop is called.
func following(t *testing.T, d *Dispatcher) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); d.ownership.run(ctx) }()
	return func() { cancel(); <-ended }
}

// What an owner left in doubt may be millions of tasks, and the database may be busy: the next one takes the slot all the same.
func TestALargeDoubtIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := newSlowFixture(t, "SELECT slot, pos, seq, lane FROM tasks", answerWithin+time.Second)
		f.schedule(ask("orders", "a", time.Now(), schemas.HeaderEvents, "none"))
		_, err := intake.New(f.store).Line().Acquire(t.Context(), f.slots, 4, "two")
		require.NoError(t, err)
		require.NoError(t, claimTo(t.Context(), f.store, f.slots, 4, nowMillis()+1000))
		defer following(t, d)()
		time.Sleep(2 * time.Minute)
		require.Equal(t, 1, d.flight.Figures().Claimed)
	})
}

// An owner is alive and does not let go, because it cannot reach the database. It is waited for and then fenced, also while the assignment
// changes all the time: another dispatcher starts and fails, again and again.
func TestAnOwnerIsNotWaitedForAnewWithEachAssignment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := newSlowFixture(t, "nothing", 0)
		m := d.trust.members.(*members)
		m.change(func() { m.alive["two"] = true })
		_, err := intake.New(f.store).Line().Acquire(t.Context(), f.slots, 4, "two")
		require.NoError(t, err)
		defer following(t, d)()
		owned := func() int {
			synctest.Wait()
			return d.flight.Figures().Slots
		}
		patience := d.cfg.DrainTimeout + 5*time.Second
		for began := time.Now(); time.Since(began) < patience; time.Sleep(10 * time.Second) {
			require.Zero(t, owned())
			m.change(func() { m.current.Epoch++ })
		}
		require.Equal(t, 1, owned())
	})
}

// What is assigned elsewhere meanwhile is waited for anew: its owner may have kept it.
func TestAnOwnerThatKeptItsSlotIsWaitedForAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := newSlowFixture(t, "nothing", 0)
		m := d.trust.members.(*members)
		m.change(func() { m.alive["two"] = true })
		_, err := intake.New(f.store).Line().Acquire(t.Context(), f.slots, 4, "two")
		require.NoError(t, err)
		for range 4 {
			for _, slots := range [][]int{{0}, nil} {
				m.change(func() { m.current.Epoch, m.current.Slots = m.current.Epoch+1, slots })
				_, err := d.ownership.follow(t.Context())
				require.NoError(t, err)
				time.Sleep(10 * time.Second)
			}
		}
		require.Zero(t, d.flight.Figures().Slots)
	})
}

// A takeover keeps what the send log says of tasks in doubt, nothing of all others, and of these nothing once it is used.
func TestProofsAreOfTasksInDoubtOnly(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m := f.elect(5)
	d, sent := f.make(m, t.TempDir(), Config{MemberID: "two"})
	t.Cleanup(func() { d.closeClients(context.Background()); d.results.Close(0); _ = sent.Close() })
	now := time.Now()
	f.schedule(askMany(3, "orders", "t", now.Add(-time.Second))...)
	_, err := intake.New(f.store).Line().Acquire(t.Context(), f.slots, 4, "one")
	require.NoError(t, err)
	require.NoError(t, claimTo(t.Context(), f.store, f.slots, 4, now.UnixMilli()))
	entries, err := intake.New(f.store).Line().Entries(t.Context(), []line.Range{{Slot: 0, To: now.UnixMilli()}})
	require.NoError(t, err)
	require.Len(t, entries, 3)
	outcomes := []sendlog.Outcome{
		{Seq: entries[0].Seq, Attempt: 1, Acked: true, At: 7},
		{Seq: entries[1].Seq, Attempt: 1, Acked: true, At: 8},
		{Seq: entries[2].Seq, Attempt: 1, Error: "no answer"},
	}
	for i := range 1000 {
		outcomes = append(outcomes, sendlog.Outcome{Seq: int64(1 + i), Attempt: 1, Acked: true})
	}
	var intents []sendlog.Intent
	for _, o := range outcomes {
		intents = append(intents, sendlog.Intent{Seq: o.Seq, Attempt: 1})
	}
	rows, _, err := intake.New(f.store).Line().Tasks(t.Context(), []int64{entries[0].Seq, entries[1].Seq, entries[2].Seq}, 1<<20)
	require.NoError(t, err)
	for i, row := range rows {
		intents = append(intents, sendlog.Intent{Seq: row.Seq, Attempt: 1, Topic: row.Topic, ID: row.ID, BodyHash: xxhash.Sum64(row.Body)})
		require.Equal(t, entries[i].Seq, row.Seq)
	}
	require.NoError(t, sent.AppendIntents(t.Context(), intents))
	require.NoError(t, sent.AppendOutcomes(t.Context(), outcomes))

	_, err = d.ownership.follow(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, d.flight.Figures().Proofs)
	batch, _ := d.flight.Bodies.Next()
	require.Len(t, batch.Seqs(), 3)
	d.fetcher.fetch(t.Context(), batch)
	require.Zero(t, d.flight.Figures().Proofs, "used")
	require.Equal(t, 2, counted(d.metrics.Proven))
}

// The send log goes by the database's clock, as places do, whatever this machine's shows. It may have been set back.
func TestProofsWhereClocksDisagree(t *testing.T) {
	for name, c := range map[string]struct{ ahead, setBack time.Duration }{
		"the database is ahead":    {ahead: 10 * time.Minute},
		"the database is behind":   {ahead: -10 * time.Minute},
		"its clock was set back":   {setBack: 30 * time.Minute},
		"the same, and it is fast": {ahead: 5 * time.Minute, setBack: 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "orders")
			clock := func() time.Time { return time.Now().Add(c.ahead) }
			st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + f.path, Clock: clock}, zap.NewNop())
			require.NoError(t, err)
			defer st.Close()
			f.store = st
			claimed := clock().Add(c.setBack).UnixMilli()
			_, err = intake.New(st).Line().Acquire(t.Context(), f.slots, 4, "one")
			require.NoError(t, err)
			require.NoError(t, claimTo(t.Context(), st, f.slots, 4, claimed))
			f.schedule(ask("orders", "a", clock(), schemas.HeaderEvents, "none"))
			require.NoError(t, claimTo(t.Context(), st, f.slots, 4, claimed+1000))
			d, sent := f.make(f.elect(5), t.TempDir(), Config{MemberID: "two"})
			defer func() { d.closeClients(context.Background()); d.results.Close(0); _ = sent.Close() }()
			require.NoError(t, d.clock.Start(t.Context()))
			f.noteSent(sent, "a", task.Seq(f.source.ID, 0))

			_, err = d.ownership.follow(t.Context())
			require.NoError(t, err)
			require.Len(t, d.flight.Look(0).Seqs, 1)
			require.Equal(t, 1, d.flight.Figures().Proofs)
		})
	}
}

// After a set-back of the database another record has the number of one that was sent: it is sent, too.
func TestProofOfAnotherTaskWithTheSameNumber(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	dir, due := t.TempDir(), time.Now().Add(-time.Second)
	f.schedule(ask("orders", "b", due))
	sent, err := sendlog.Open(dir, sendlog.Config{}, zap.NewNop())
	require.NoError(t, err)
	f.noteSent(sent, "a", task.Seq(f.source.ID, 0))
	require.NoError(t, sent.Close())
	_, err = intake.New(f.store).Line().Acquire(t.Context(), f.slots, 4, "one")
	require.NoError(t, err)
	require.NoError(t, claimTo(t.Context(), f.store, f.slots, 4, nowMillis()))

	f.start(f.elect(5), dir, Config{MemberID: "one"})
	f.eventually("all is settled", func() bool { return f.settledUpTo(due) })
	require.Equal(t, map[string]int{"b": 1}, orders.copies())
}

// noteSent writes to a send log that a task as ask makes it was sent to orders under a number.
func (f *fixture) noteSent(sent *sendlog.Log, id string, seq int64) {
	f.Helper()
	r, err := schemas.Decode(ask("orders", id, time.Now(), schemas.HeaderEvents, "none"), schemas.Limits{})
	require.NoError(f, err)
	body := schemas.EncodeBody(nil, r.Key, r.Value, r.Headers, r.Settings)
	require.NoError(f, sent.AppendIntents(f.Context(), []sendlog.Intent{{Seq: seq, Attempt: 1, Topic: "orders", ID: id, BodyHash: xxhash.Sum64(body)}}))
	require.NoError(f, sent.AppendOutcomes(f.Context(), []sendlog.Outcome{{Seq: seq, Attempt: 1, Acked: true, At: nowMillis()}}))
}
