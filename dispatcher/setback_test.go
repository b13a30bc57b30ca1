package dispatcher

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/recordtest"
)

// The database forgets its last commits while a dispatcher runs: the slot is taken anew, and what is stored from then on is found, though
// no wake and no index tells of it.
func TestDatabaseThatForgot(t *testing.T) {
	for name, also := range map[string]string{
		"a claim":                 ", claimed = %d",
		"a settlement":            "",
		"that the slot was taken": ", claimed = %d, epoch = 4, owner = ''",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "orders")
			orders := f.read("orders")
			d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
			f.eventually("it owns its slot", func() bool { return d.owned() == 1 })
			before := f.slot(0)
			d.told(f.schedule(ask("orders", "first", time.Now().Add(time.Second))).Added)
			f.eventually("it arrives", func() bool { return orders.count() == 1 })
			f.eventually("it is settled", func() bool { s := f.slot(0); return s.Done == s.Claimed && s.Done > before.Done })
			f.sql(fmt.Sprintf("UPDATE slots SET done = %d", before.Done) + strings.ReplaceAll(also, "%d", fmt.Sprint(before.Claimed)))
			var more []*kgo.Record
			for i := range 20 {
				more = append(more, ask("orders", fmt.Sprint("later", i), time.Now().Add(time.Duration(i)*100*time.Millisecond)))
			}
			f.schedule(more...)
			f.eventually("all arrive", func() bool { return len(orders.copies()) == 21 })
			f.eventually("all is settled", func() bool { s := f.slot(0); return s.Done == s.Claimed && s.Owner == "one" && s.Epoch == 5 })
		})
	}
}

// cancelRecord is a cancel of a task of askMany or ask.
func cancelRecord(topic, id string) *kgo.Record {
	return &kgo.Record{Topic: "intake", Key: []byte(id), Timestamp: time.Now(), Headers: []kgo.RecordHeader{
		{Key: schemas.HeaderOp, Value: []byte("cancel")}, {Key: schemas.HeaderTopic, Value: []byte(topic)}, {Key: schemas.HeaderID, Value: []byte(id)}}}
}

// answers are the states that answer requests, those that had waited among them.
func (f *fixture) answers(done intake.Applied) (out []schemas.State) {
	f.Helper()
	for _, box := range done.Events {
		for _, e := range box.Events {
			out = append(out, e.State)
		}
	}
	return out
}

// resolved are the answers to requests whose wait is over.
func (f *fixture) resolved() []schemas.State {
	f.Helper()
	keys, _, err := intake.New(f.store).Resolvable(f.Context(), [16]byte{}, 100)
	require.NoError(f, err)
	if len(keys) == 0 {
		return nil
	}
	done, err := intake.New(f.store).Apply(f.Context(), intake.Batch{Resolve: keys}, nowMillis)
	require.NoError(f, err)
	return f.answers(done)
}

// A claim is forgotten, and its tasks are cancelled before the dispatcher can have looked: those that it has in memory are too late, and
// come. One that it has not claimed is cancelled, and does not.
func TestCancelOfWhatTheDatabaseForgotToBeClaimed(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", LookAhead: 10 * time.Second})
	f.eventually("it owns its slot", func() bool { return d.owned() == 1 })
	before := f.slot(0)
	due := time.Now().Add(setUpTime)
	far := ask("orders", "far", time.Now().Add(time.Hour))
	d.told(f.schedule(append(askMany(10, "orders", "t", due), far)...).Added)
	f.eventually("the tasks are staged", func() bool { return d.stagedTasks() == 10 })

	f.setBack(fmt.Sprintf("UPDATE slots SET claimed = %d, done = %d", before.Claimed, before.Done))
	cancels := []*kgo.Record{cancelRecord("orders", "far")}
	for i := range 10 {
		cancels = append(cancels, cancelRecord("orders", fmt.Sprint("t", i)))
	}
	told := f.answers(f.schedule(cancels...))
	f.eventually("all are answered", func() bool { told = append(told, f.resolved()...); return len(told) == 11 })
	f.eventually("all that was claimed arrives", func() bool { return len(orders.copies()) == 10 })
	f.eventually("all is settled", func() bool { s := f.slot(0); return s.Done == s.Claimed && s.Done > due.UnixMilli() && !s.Unsure })
	require.Equal(t, 1, len(slices.DeleteFunc(slices.Clone(told), func(s schemas.State) bool { return s != schemas.StateCancelled })), told)
	require.NotContains(t, orders.copies(), "far")
}

// A database that was started anew and has forgotten nothing is asked of every slot, and no slot is lost, however little it has to do.
func TestDatabaseThatWasStartedAnew(t *testing.T) {
	f := newFixture(t, 4, "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", LookAhead: 10 * time.Second})
	f.eventually("it owns its slots", func() bool { return d.owned() == 4 })
	due := time.Now().Add(setUpTime)
	f.schedule(append(askMany(20, "orders", "t", due), ask("orders", "far", time.Now().Add(time.Hour)))...)
	d.kicks.Sweep.Now()
	f.eventually("the tasks are staged", func() bool { return d.stagedTasks() == 20 })
	f.setBack()
	require.Empty(t, f.answers(f.schedule(cancelRecord("orders", "far"))), "not yet")
	f.eventually("the slots are sure", func() bool {
		return slices.IndexFunc(f.slots, func(n int) bool { return f.slot(n).Unsure }) < 0
	})
	require.Equal(t, []schemas.State{schemas.StateCancelled}, f.resolved())
	f.eventually("each task arrives", func() bool { return len(orders.copies()) == 20 })
	require.Equal(t, 20, orders.count())
	require.Zero(t, counted(d.metrics.Abandoned))
}

// A slot that is found to be as it was known is made sure again only while it is: the database may forget more before that.
func TestASlotIsConfirmedAsItWasRead(t *testing.T) {
	f := newFixture(t, 1, "orders")
	d := f.stepped(f.elect(5), Config{MemberID: "one"})
	require.NoError(t, d.ownership.take(t.Context(), d.trust.members.Current(), f.slots))
	f.setBack("UPDATE slots SET turn = 7")
	read := []store.Slot{f.slot(0)}
	unsure := d.flight.Owning.SlotsRead(read, d.flight.Known())
	require.Len(t, unsure, 1)
	f.setBack("UPDATE slots SET turn = 0")
	require.NoError(t, d.ownership.confirm(t.Context(), unsure))
	require.True(t, f.slot(0).Unsure)
	f.setBack("UPDATE slots SET turn = 7")
	require.NoError(t, d.ownership.confirm(t.Context(), unsure))
	require.False(t, f.slot(0).Unsure)
}

// What the database calls claimed beyond what is known here was claimed here: the reply was lost. It is sent, though nothing is claimed
// any more.
func TestSweepFindsAClaimWithoutAReply(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	f.eventually("it owns its slot", func() bool { return d.owned() == 1 })
	due := time.Now().Add(setUpTime)
	f.schedule(ask("orders", "t", due))
	require.NoError(t, claimTo(t.Context(), f.store, f.slots, 5, due.UnixMilli()+5))
	f.eventually("it arrives", func() bool { return orders.count() == 1 })
	f.eventually("it is settled", func() bool { return f.settledUpTo(due) })
	require.Zero(t, counted(d.metrics.Abandoned))
}

// The database forgets a claim while the slot is to be given away: the next owner need not wait for this one, and what was claimed here is
// in doubt, not pending.
func TestDatabaseThatForgotWhatIsToBeGivenAway(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{})
	before := f.slot(0)
	due := time.Now().Add(200 * time.Millisecond)
	f.schedule(ask("orders", "a", due))
	d.claimer.sweep(t.Context())
	_, err := d.claimer.claim(t.Context())
	require.NoError(t, err)
	claimed := d.flight.Look(0).Claimed
	require.GreaterOrEqual(t, claimed, due.UnixMilli())
	require.False(t, f.assign(m, d, 6), "it holds a task")

	f.setBack(fmt.Sprintf("UPDATE slots SET claimed = %d", before.Claimed))
	d.claimer.sweep(t.Context())
	require.Equal(t, 1, counted(d.metrics.Abandoned))
	require.Equal(t, 1, d.flight.Left())
	require.True(t, f.assign(m, d, 6))
	require.Zero(t, d.flight.Left())
	require.Equal(t, store.Slot{Epoch: 5, Claimed: claimed, Done: before.Done, Doubt: claimed, Unsure: true, Change: f.slot(0).Change}, f.slot(0))
	require.Equal(t, []schemas.State{schemas.StateTooLate}, f.answers(f.schedule(cancelRecord("orders", "a"))))
}

// A slot that has drained is given away in the second in which the database forgets what the slot had claimed and settled, before anybody
// looks at it. The next owner learns what was claimed all the same, so nobody can cancel what was delivered.
func TestDrainedSlotThatTheDatabaseForgotIsNotReleased(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{})
	before := f.slot(0)
	f.schedule(ask("orders", "a", time.Now().Add(-time.Second), schemas.HeaderEvents, "none"))
	d.claimer.sweep(t.Context())
	_, err := d.claimer.claim(t.Context())
	require.NoError(t, err)
	f.delivers(d)
	d.settler.settle(t.Context())
	claimed := d.flight.Look(0).Claimed
	require.Equal(t, claimed, f.slot(0).Done, "it has drained")

	f.setBack(fmt.Sprintf("UPDATE slots SET claimed = %d, done = %d", before.Claimed, before.Done))
	require.False(t, f.assign(m, d, 6), "it is ours until we have looked")
	require.Equal(t, "one", f.slot(0).Owner)
	d.claimer.sweep(t.Context())
	require.Equal(t, 1, counted(d.metrics.Abandoned))
	require.True(t, f.assign(m, d, 6))
	require.GreaterOrEqual(t, f.slot(0).Claimed, claimed)
	require.Equal(t, []schemas.State{schemas.StateTooLate}, f.answers(f.schedule(cancelRecord("orders", "a"))))
}

// The database forgets that the slot came here, and names the owner before, which is alive and knows nothing of it: nobody waits for that one.
func TestDatabaseThatNamesTheOwnerBefore(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{})
	m.change(func() { m.alive["two"] = true })
	f.setBack("UPDATE slots SET epoch = 4, owner = 'two'")
	d.claimer.sweep(t.Context())
	require.Equal(t, 1, counted(d.metrics.Abandoned))
	settled, err := d.ownership.follow(t.Context())
	require.NoError(t, err)
	require.True(t, settled)
	require.Equal(t, "one", f.slot(0).Owner)

	f.setBack("UPDATE slots SET epoch = 5, owner = 'two'") // of the same epoch is nobody's; a later one has the slot by right
	d.claimer.sweep(t.Context())
	settled, err = d.ownership.follow(t.Context())
	require.NoError(t, err)
	require.False(t, settled)
}

// place is where a task stands.
func (f *fixture) place(seq int64) int64 {
	f.Helper()
	rows, err := intake.New(f.store).Line().Heads(f.Context(), []int64{seq})
	require.NoError(f, err)
	require.Len(f, rows, 1)
	return rows[0].Pos
}

// forgets sets a slot and the place of a task of it back. A cancel of the task is decided, and then what the producer has is delivered.
func (d *running) forgets(before store.Slot, seq, place int64, id string, answer func()) {
	f := d.f
	f.Helper()
	f.setBack(fmt.Sprintf("UPDATE slots SET claimed = %d, done = %d", before.Claimed, before.Done), fmt.Sprintf("UPDATE tasks SET pos = %d, state = 0 WHERE seq = %d", place, seq))
	told := f.answers(f.schedule(cancelRecord("orders", id)))
	f.eventually("the cancel is answered", func() bool { told = append(told, f.resolved()...); return len(told) == 1 })
	require.Equal(f, []schemas.State{schemas.StateTooLate}, told)
	require.Equal(f, 1, d.inside(func(in flight.Figures) int { return in.Stuck }), "the producer has it still")
	answer()
	orders := f.read("orders")
	f.eventually("it arrives", func() bool { return orders.copies()[id] > 0 })
	f.eventually("nothing is with the producer", func() bool { return d.inside(func(in flight.Figures) int { return in.Stuck + in.SentTasks }) == 0 })
}

// A held task is called back, claimed, and with the producer when the database forgets all that: it stands at its held place, beyond all
// that was claimed, and cannot be cancelled.
func TestHeldTaskWithTheProducerThatTheDatabaseForgot(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	f.policy("orders", admin.Policy{Rate: 0.2})
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	f.eventually("it owns its slot", func() bool { return d.owned() == 1 })
	d.hears("orders", func(g flight.GateLook) bool { return !g.Free })
	now := time.Now()
	d.told(f.schedule(ask("orders", "a", now), ask("orders", "b", now.Add(time.Millisecond))).Added)
	f.eventually("one arrives", func() bool { return orders.count() == 1 })
	f.eventually("the other is held", func() bool { return f.heldTasks("orders") == 1 })
	seq, id := task.Seq(f.source.ID, 1), "b"
	if orders.ids()[0] == "b" {
		seq, id = task.Seq(f.source.ID, 0), "a"
	}
	f.eventually("all is settled", func() bool { s := f.slot(0); return s.Done == s.Claimed })
	before, held := f.slot(0), f.place(seq)
	require.True(t, task.IsHeld(held))
	answer := f.mute("orders")
	f.eventually("it is called back, and with the producer", func() bool { return d.inside(func(in flight.Figures) int { return in.SentTasks }) == 1 })
	d.forgets(before, seq, held, id, answer)
}

// Likewise a task that was put off because its partition was silent.
func TestParkedTaskWithTheProducerThatTheDatabaseForgot(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UnresponsiveAfter: time.Second})
	f.eventually("it owns its slot", func() bool { return d.owned() == 1 })
	answer := f.mute("orders")
	d.told(f.schedule(ask("orders", "first", time.Now())).Added)
	f.eventually("it is silent", func() bool { return d.inside(func(in flight.Figures) int { return in.UnresponsiveOutlets }) == 1 })
	d.told(f.schedule(ask("orders", "x", time.Now())).Added)
	f.eventually("it is put off", func() bool { return d.inside(func(in flight.Figures) int { return in.Parked }) == 1 })
	seq := task.Seq(f.source.ID, 1)
	f.eventually("that is stored", func() bool { return f.place(seq) > time.Now().UnixMilli()+1000 })
	before, place := f.slot(0), f.place(seq)
	again := f.muteFor("orders", "x") // the partition comes and goes
	answer()
	f.eventually("the first arrives, and the producer has heard so", func() bool {
		return orders.copies()["first"] > 0 && d.inside(func(in flight.Figures) int { return in.SentTasks }) == 0
	})
	f.eventually("it is with the producer", func() bool {
		return f.place(seq) != place && d.inside(func(in flight.Figures) int { return in.SentTasks + in.Stuck }) == 1
	})
	d.forgets(before, seq, place, "x", again)
}

// A dispatcher has read a task from a server that did not know of its replacement yet: when it settles the one that it has delivered, the
// database has another in its place, and that one is delivered.
func TestReplacementThatTheDispatcherHasNotSeen(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", LookAhead: 10 * time.Second})
	f.eventually("it owns its slot", func() bool { return d.owned() == 1 })
	d.told(f.schedule(ask("orders", "a", time.Now().Add(setUpTime))).Added)
	f.eventually("it is staged", func() bool { return d.stagedTasks() == 1 })
	f.sql("UPDATE tasks SET seq = seq + 1000")
	f.eventually("both arrive", func() bool { return orders.count() == 2 })
	f.eventually("all is settled", func() bool { s := f.slot(0); return s.Done == s.Claimed })
	keys := map[string]bool{}
	for _, r := range orders.all() {
		keys[recordtest.Header(r, schemas.HeaderDelivery)] = true
	}
	require.Len(t, keys, 2)
	require.Equal(t, 1, counted(d.metrics.Mismatch))
}
