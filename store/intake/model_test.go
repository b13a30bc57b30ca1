package intake

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// TestModel does what callers, consumers and an owner may do, in any order, to a few ids, and holds the store to the
// reference after every step. A failure prints the steps, made as few as possible; -rapid.seed repeats a run, and
// -rapid.checks sets the number of lives.
func TestModel(t *testing.T) {
	for _, b := range backends() {
		if b.name == "sqlite-memory" {
			continue // it cannot be restarted
		}
		t.Run(b.name, func(t *testing.T) {
			lives := flag.Lookup("rapid.checks")
			if (raceDetector || os.Getenv("NOTYET_LONG") == "") && lives.Value.String() == lives.DefValue {
				setFlag(t, "rapid.checks", "15") // make test-long has hundreds, without the race detector: it finds nothing in one goroutine
			}
			seed := flag.Lookup("rapid.seed")
			if seed.Value.String() == seed.DefValue {
				setFlag(t, "rapid.seed", strconv.FormatUint(rand.Uint64(), 10))
			}
			operations := 0
			rapid.Check(t, func(rt *rapid.T) { live(t, rt, b, &operations) })
			t.Logf("%d operations in %s lives, -rapid.seed=%s", operations, lives.Value, seed.Value)
		})
	}
}

func setFlag(t *testing.T, name, value string) {
	f := flag.Lookup(name)
	before := f.Value.String()
	require.NoError(t, f.Value.Set(value))
	t.Cleanup(func() { require.NoError(t, f.Value.Set(before)) })
}

// live is one life of a store: its tables are empty when it begins.
func live(t *testing.T, rt *rapid.T, b backend, operations *int) {
	life := &scope{TB: t}
	defer life.end()
	m := &stateMachine{fixture: b.fixture(life), ref: &reference{now: t0, tasks: map[string]*refTask{}}, operations: operations}
	m.t = rt
	m.own()
	for range 3 { // longer lives than rapid's average of 30 steps
		rt.Repeat(rapid.StateMachineActions(m))
	}
}

// scope is a test whose cleanups run when it ends, which is before the test does.
type scope struct {
	testing.TB
	cleanups []func()
}

func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) end() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}

// stateMachine is the store and the reference side by side. Its exported methods are the actions.
type stateMachine struct {
	*fixture
	ref        *reference
	batch      Batch // the last one
	operations *int  // requests, reports, and what the owner and time did
	checks     int
}

var modelIDs = []string{"a", "b", "c"}

func (m *stateMachine) Intake(rt *rapid.T) {
	m.bring(rt, rapid.SliceOfN(rapid.Custom(m.record), 1, 4).Draw(rt, "records")...)
}

func (m *stateMachine) bring(rt *rapid.T, records ...any) {
	b := m.fixture.batch(records...)
	*m.operations += len(records) - 1
	of, want := map[string][]any{}, map[string][]string{}
	for _, r := range records {
		of[idOf(r)] = append(of[idOf(r)], r)
	}
	for id, some := range of {
		want[id] = m.ref.take(id, some...)
	}
	m.compare(rt, want, m.apply(b))
	m.batch = b
}

// Report says something of an attempt that has been made, or nearly.
func (m *stateMachine) Report(rt *rapid.T) {
	var waiting []string
	for _, id := range modelIDs {
		if t := m.ref.task(id); t.attempt > 0 && !t.ended() {
			waiting = append(waiting, id)
		}
	}
	if len(waiting) == 0 {
		rt.Skip("nothing was delivered")
	}
	id := rapid.SampledFrom(waiting).Draw(rt, "id")
	m.bring(rt, drawReport(rt, id, max(m.ref.task(id).attempt-rapid.SampledFrom([]int{0, 0, 0, 1, -1}).Draw(rt, "late"), 1)))
}

// Deliver brings one task to where its report is awaited.
func (m *stateMachine) Deliver(rt *rapid.T) {
	id := rapid.SampledFrom(modelIDs).Draw(rt, "id")
	t := m.ref.task(id)
	if t.ended() {
		rt.Skip("it has ended")
	}
	to := max(t.pos, m.ref.claimed)
	m.now = max(m.now, to)
	m.ref.now = m.now
	m.claim(to)
	m.ref.claim(to)
	m.close(rt, t.pos, id)
}

// Again brings the last batch a second time, as after a lost reply.
func (m *stateMachine) Again(rt *rapid.T) {
	if m.batch.Advance == nil {
		rt.Skip("nothing was brought yet")
	}
	_, err := m.Apply(m.ctx, m.batch, store.At(m.now))
	require.ErrorIs(rt, err, handle.ErrFenced)
}

func (m *stateMachine) Resolve(rt *rapid.T) {
	keys, _, err := m.Resolvable(m.ctx, [16]byte{}, 100)
	require.NoError(rt, err)
	want := map[string][]string{}
	for _, id := range modelIDs {
		if told := m.ref.take(id); len(told) > 0 {
			want[id] = told
		}
	}
	m.compare(rt, want, m.apply(Batch{Resolve: keys}))
}

func (m *stateMachine) Tick(rt *rapid.T) {
	m.now += rapid.Int64Range(1, 3000).Draw(rt, "ms")
	m.ref.now = m.now
}

func (m *stateMachine) Owner(rt *rapid.T) {
	places := []int64{m.now + rapid.Int64Range(-2000, 2000).Draw(rt, "ahead")}
	for _, id := range modelIDs {
		places = append(places, m.ref.task(id).pos)
	}
	pos := max(m.ref.claimed, rapid.SampledFrom(places).Draw(rt, "to"))
	m.claim(pos)
	m.ref.claim(pos)
}

// Takeover changes nothing about any task.
func (m *stateMachine) Takeover(*rapid.T) { m.own() }

// Restart changes nothing either.
func (m *stateMachine) Restart(rt *rapid.T) {
	require.NoError(rt, m.Close())
	m.use(open(m.test, m.config))
}

// Year lets a year pass, after which whatever ended in the one before is forgotten. What waited has been decided long ago.
func (m *stateMachine) Year(rt *rapid.T) {
	if rapid.IntRange(0, 9).Draw(rt, "of ten") > 0 {
		rt.Skip("years are rare")
	}
	m.Resolve(rt)
	m.Resolve(rt) // what a report has set free
	const day = 24 * 60 * 60 * 1000
	m.now += 365 * day
	m.ref.now = m.now
	for _, slot := range append(m.allSlots(), task.OutOfLine) {
		_, _, err := m.Retire(m.ctx, line.Range{Slot: slot, To: m.now - 30*day})
		require.NoError(rt, err)
	}
	m.ref.forget()
}

// Outcomes settles what is claimed up to some place, each task with an outcome of its own.
func (m *stateMachine) Outcomes(rt *rapid.T) {
	if m.ref.claimed <= m.ref.done {
		rt.Skip("nothing is claimed")
	}
	places := []int64{m.ref.claimed}
	for _, id := range modelIDs {
		if pos := m.ref.task(id).pos; pos > m.ref.done && pos <= m.ref.claimed {
			places = append(places, pos)
		}
	}
	m.close(rt, rapid.SampledFrom(places).Draw(rt, "to"), "")
}

// close settles up to a place; the report of one task is awaited in any case.
func (m *stateMachine) close(rt *rapid.T, to int64, awaited string) {
	var exits []line.Transition
	want := map[string][]string{}
	for _, id := range modelIDs {
		if t := m.ref.task(id); t.state == "claimed" && t.pos <= to {
			if e, leaves := m.outcome(rt, id, t, id == awaited); leaves {
				exits = append(exits, e)
				if e.State == task.StateReport {
					want[id] = m.ref.await(t)
				}
			}
		}
	}
	var told []schemas.Event
	for _, box := range m.settle(to, exits...).Events {
		told = append(told, box.Events...)
	}
	m.compare(rt, want, told)
	m.ref.done = to
}

func (m *stateMachine) outcome(rt *rapid.T, id string, t *refTask, awaited bool) (line.Transition, bool) {
	outcomes := []string{"awaiting", "retry", "aside", "back", "dead", "succeeded"}
	if t.settings.Ack == schemas.AckNone {
		outcomes = append(outcomes, "delivered", "delivered", "delivered")
	}
	if awaited {
		outcomes = []string{"awaiting"}
	}
	outcome := rapid.SampledFrom(outcomes).Draw(rt, "outcome of "+id)
	later := m.now + rapid.Int64Range(1, 3000).Draw(rt, "later")
	e := m.transition(id, task.StateLine, later, t.attempt)
	switch outcome {
	case "delivered":
		t.state = "delivered"
		return e, false
	case "awaiting":
		e.State, t.state, t.attempt = task.StateReport, "waiting_report", t.attempt+1
	case "retry", "aside":
		e.State, t.state = task.StateRetry, "waiting_retry"
		e.Idle, t.idle = outcome == "retry", outcome == "retry"
	case "back":
		t.state = t.was
	case "succeeded":
		e.State, t.state, t.attempt = task.StateSucceeded, "succeeded", t.attempt+1
	case "dead":
		e.State, t.state = task.StateDead, "dead"
		e.Dead = task.NewDeadLetter(m.row(id), schemas.KindDead, "drawn", m.now)
		m.ref.letters++
	}
	e.Attempt = t.attempt
	t.pos = max(later, m.ref.claimed+1)
	return e, true
}

// Check compares everything that can be seen of the tasks.
func (m *stateMachine) Check(rt *rapid.T) {
	*m.operations++
	waiting := 0
	for _, id := range modelIDs {
		want := m.ref.task(id)
		waiting += len(want.queue)
		got, err := look.New(m.Store).Get(m.ctx, target, id)
		if want.state == "" {
			require.ErrorIs(rt, err, look.ErrNotFound)
			continue
		}
		require.NoError(rt, err)
		next := int64(0)
		switch want.state {
		case "pending", "claimed":
			next = want.due
		case "waiting_report", "waiting_retry":
			next = want.pos
		}
		attempt, version := want.attempt, int64(-1)
		if want.state == "delivered" {
			attempt++
		}
		if got.Version != nil {
			version = *got.Version
		}
		require.Equal(rt, fmt.Sprint(want.state, want.due, next, attempt, want.snoozed, want.version, want.created),
			fmt.Sprint(got.State, got.Due, got.Next, got.Attempt, got.Snoozed, version, got.Created), "state, due, next, attempt, snoozed, version and created of %s", id)
		row := m.row(id)
		if want.state != "cancelled" && want.state != "stopped" {
			body, err := schemas.DecodeBody(row.Body)
			require.NoError(rt, err)
			require.Equal(rt, want.shown(), string(body.Value), "value of %s", id)
			require.Equal(rt, want.settings.Tag, body.Settings.Tag, "tags of %s", id)
		}
		if !want.ended() {
			require.Equal(rt, want.pos, row.Pos, "place of %s", id)
		}
	}
	m.checks++
	tag := []string{"a", "b"}[m.checks%2] // one a step: lists cost more than all else
	coming, ended := []string{}, []string{}
	for _, id := range modelIDs {
		switch want := m.ref.task(id); {
		case want.state == "" || want.state == "cancelled" || want.state == "stopped" || !schemas.HasTag(want.settings.Tag, tag):
		case want.ended():
			ended = append(ended, id)
		default:
			coming = append(coming, id)
		}
	}
	if m.checks%4 < 2 {
		require.ElementsMatch(rt, coming, m.listed(look.ListFilter{Tag: tag, Limit: 2}), "to come with tag %s", tag)
	} else {
		cancelled := append(m.listed(look.ListFilter{Tag: tag, State: "cancelled"}), m.listed(look.ListFilter{Tag: tag, State: "stopped"})...)
		require.ElementsMatch(rt, ended, slices.DeleteFunc(m.listed(look.ListFilter{Tag: tag, Ended: true, Limit: 2}), func(id string) bool { return slices.Contains(cancelled, id) }), "ended with tag %s", tag)
	}
	require.Equal(rt, waiting, m.count("waiting"), "waiting requests")
	require.Equal(rt, m.ref.letters, m.count("dead_letters"), "dead letters")
}

func (m *stateMachine) compare(rt *rapid.T, want map[string][]string, events []schemas.Event) {
	got := map[string][]string{}
	for _, e := range events {
		got[e.ID] = append(got[e.ID], string(e.State))
	}
	for _, id := range modelIDs {
		require.Equal(rt, want[id], got[id], "what was told of %s", id)
	}
}

func idOf(record any) string {
	if r, ok := record.(*schemas.Request); ok {
		return r.ID
	}
	return record.(schemas.Report).ID
}

func drawReport(rt *rapid.T, id string, attempt int) schemas.Report {
	r := says(id, attempt, rapid.SampledFrom([]schemas.Status{schemas.StatusOK, schemas.StatusRetry, schemas.StatusRetry, schemas.StatusSnooze, schemas.StatusFail}).Draw(rt, "status"))
	r.RetryAfter = time.Duration(rapid.SampledFrom([]int64{-1, 0, int64(time.Second)}).Draw(rt, "retry-after"))
	if r.Status == schemas.StatusSnooze {
		r.RetryAfter = max(r.RetryAfter, 0)
	}
	return r
}

// record draws anything that may come from the intake.
func (m *stateMachine) record(rt *rapid.T) any {
	id := rapid.SampledFrom(modelIDs).Draw(rt, "id")
	v := version(rapid.SampledFrom([]int64{-1, -1, -1, 0, 1, 1, 2}).Draw(rt, "version"))
	switch rapid.SampledFrom([]string{"schedule", "schedule", "schedule", "cancel", "stop", "stop", "fire", "report", "report"}).Draw(rt, "kind") {
	case "cancel":
		return m.cancel(id, v)
	case "stop":
		return m.stop(id, v)
	case "fire":
		return m.fire(id, v)
	case "report":
		return drawReport(rt, id, rapid.IntRange(1, 3).Draw(rt, "attempt"))
	}
	with := []option{v, value(rapid.SampledFrom([]string{`{"n":1}`, `{"n":20}`, "text"}).Draw(rt, "value")),
		in(time.Duration(rapid.IntRange(-1000, 4000).Draw(rt, "delay")) * ms), key(id), maxAttempts(rapid.IntRange(1, 3).Draw(rt, "attempts")),
		fixedBackoff(time.Duration(rapid.IntRange(1, 3000).Draw(rt, "backoff")) * ms),
		tell(rapid.SampledFrom([]schemas.Events{schemas.EventsNone, schemas.EventsFinal, schemas.EventsAll}).Draw(rt, "events"))}
	with = append(with, tagged(rapid.SampledFrom([]string{"", "a", "b", "b,a"}).Draw(rt, "tag")))
	if rapid.Bool().Draw(rt, "report wanted") {
		with = append(with, wantReport)
	}
	switch rapid.SampledFrom([]string{"replace", "keep", "once", "last", "sum", "append"}).Draw(rt, "if-exists") {
	case "keep":
		with = append(with, keep)
	case "once":
		with = append(with, once)
	case "last":
		with = append(with, merge(schemas.MergeLast), maxWait(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "max-wait"))*ms))
	case "sum":
		with = append(with, merge(schemas.MergeSum))
	case "append":
		with = append(with, merge(schemas.MergeAppend))
	}
	return m.schedule(id, with...)
}
