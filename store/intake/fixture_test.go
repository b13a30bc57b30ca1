package intake

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/outbox"
	"github.com/notyet/notyet/task"
)

// t0 is where a test's clock begins, Unix ms. It moves only by hand.
const t0 = 1_700_000_000_000

const target = "orders"

// fixture is a store with one intake partition and one owner of all its slots.
type fixture struct {
	*store.Store
	Intake
	admin.Admin
	line.Line
	dead   letters.Letters
	outbox outbox.Outbox
	h      *handle.Handle // the store's, on which all of them work
	db     *sql.DB        // likewise
	test   testing.TB
	t      tester // what fails: the test, or one run of a model
	ctx    context.Context
	now    int64
	source Source
	offset int64 // of the next intake record
	epoch  int64 // 0: no owner yet
	rules  int64 // version of those about the databases of targets; 0: there is one database
	last   Applied
	sweeps *sweeper // see sweeper

	backend backend
	config  store.Config
}

type tester interface {
	require.TestingT
	Helper()
}

// claimTo claims slots of which nothing is known.
func claimTo(ctx context.Context, s *store.Store, slots []int, epoch, pos int64) error {
	return New(s).Line().Claim(ctx, 0, slots, make([]int64, len(slots)), epoch, pos)
}

func newFixture(t testing.TB, s *store.Store) *fixture {
	f := &fixture{dead: letters.New(s), test: t, t: t, ctx: context.Background(), now: t0}
	f.use(s)
	var err error
	f.source, err = f.Source(f.ctx, "in", [16]byte{1}, 0, 0)
	require.NoError(t, err)
	return f
}

// pendingEvents reads what the outbox holds of some sources, as a publisher does.
func (f *fixture) pendingEvents(limit int, sources ...int) (out []handle.Box) {
	f.t.Helper()
	boxes, err := f.outbox.Pending(f.ctx, sources, limit)
	require.NoError(f.t, err)
	for _, box := range boxes {
		box, there, err := f.outbox.Read(f.ctx, box)
		require.NoError(f.t, err)
		require.Equal(f.t, true, there)
		out = append(out, box)
	}
	return out
}

// another is the store as another process sees it. A database in memory has one process.
func (f *fixture) another() *store.Store {
	if f.backend.name == "sqlite-memory" {
		return f.Store
	}
	return open(f.test, f.config)
}

// use has the test go on with a store.
func (f *fixture) use(s *store.Store) {
	f.Store = s
	f.handleAs(handle.Of(s))
}

// handleAs has the packages of the store work on another handle, as another process would.
func (f *fixture) handleAs(h *handle.Handle) {
	f.h, f.db = h, h.DB
	f.Intake, f.Admin, f.outbox = New(h.Ref()), admin.New(h.Ref()), outbox.New(h.Ref())
	f.Line = f.Intake.Line()
}

// change wraps a *schemas.Request, a schemas.Report or a *DeadLetter and gives it the next intake offset.
func (f *fixture) change(record any) task.Change {
	c := task.Change{Seq: task.Seq(f.source.ID, f.offset)}
	f.offset++
	switch r := record.(type) {
	case *schemas.Request:
		c.Request = r
	case schemas.Report:
		c.Report = &r
	case task.Change:
		c.Report, c.Unread = r.Report, r.Unread
	case *task.DeadLetter:
		r.Seq = c.Seq
		c.Rejected = r
	default:
		require.FailNow(f.t, "not an intake record", "%T", record)
	}
	return c
}

// batch takes records from the intake, in order.
func (f *fixture) batch(records ...any) Batch {
	b := Batch{Advance: []Advance{{Source: f.source.ID, From: f.offset, To: f.offset + int64(len(records))}}}
	for _, r := range records {
		b.Changes = append(b.Changes, f.change(r))
	}
	return b
}

// do applies records as one batch and answers the events that it decided.
func (f *fixture) do(records ...any) []schemas.Event {
	f.t.Helper()
	return f.apply(f.batch(records...))
}

func (f *fixture) apply(b Batch) []schemas.Event {
	f.t.Helper()
	var err error
	b.Map = f.rules
	f.last, err = f.Apply(f.ctx, b, store.At(f.now))
	require.NoError(f.t, err)
	var events []schemas.Event
	for _, box := range f.last.Events {
		for _, e := range box.Events {
			e.Request = "" // see TestAnswersNameTheirRequest
			events = append(events, e)
		}
	}
	return events
}

// answer applies one record and answers the state that was told about it: "" for none.
func (f *fixture) answer(record any) schemas.State {
	f.t.Helper()
	events := f.do(record)
	if len(events) == 0 {
		return ""
	}
	require.Len(f.t, events, 1)
	return events[0].State
}

// resolve decides the requests whose wait is over and answers the states that were told.
func (f *fixture) resolve() []schemas.State {
	f.t.Helper()
	keys, _, err := f.Resolvable(f.ctx, [16]byte{}, 100)
	require.NoError(f.t, err)
	if len(keys) == 0 {
		return nil
	}
	var states []schemas.State
	for _, e := range f.apply(Batch{Resolve: keys}) {
		states = append(states, e.State)
	}
	return states
}

// own acquires every slot.
func (f *fixture) own() {
	f.t.Helper()
	epoch, err := f.NextEpoch(f.ctx)
	require.NoError(f.t, err)
	taken, err := f.Acquire(f.ctx, f.allSlots(), epoch, "me")
	require.NoError(f.t, err)
	require.Len(f.t, taken, len(f.allSlots()))
	f.epoch = epoch
}

func (f *fixture) allSlots() []int {
	n, err := f.SlotCount(f.ctx)
	require.NoError(f.t, err)
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// claim moves claimed of every slot to pos.
func (f *fixture) claim(pos int64) {
	f.t.Helper()
	if f.epoch == 0 {
		f.own()
	}
	all := f.allSlots()
	for _, slot := range f.unsureSlots() { // an owner confirms them first
		require.NoError(f.t, f.Claim(f.ctx, f.slotRow(slot).Turn, []int{slot}, []int64{0}, f.epoch, f.slotRow(slot).Claimed))
	}
	require.NoError(f.t, f.Claim(f.ctx, f.slotRow(0).Turn, all, make([]int64, len(all)), f.epoch, pos))
}

// settle closes every slot up to pos: but for the exits, all of it was delivered.
func (f *fixture) settle(pos int64, exits ...line.Transition) line.Settled {
	f.t.Helper()
	settled, err := f.Settle(f.ctx, f.doneUpTo(pos, exits...), exits, store.At(f.now))
	require.NoError(f.t, err)
	require.Empty(f.t, settled.Mismatch)
	require.Empty(f.t, settled.Fenced)
	return settled
}

// tallyOf is what an owner counts of tasks.
func tallyOf(entries []line.Entry) (t line.Tally) {
	for _, e := range entries {
		t.Add(e.Seq)
	}
	return t
}

// countIn counts a task in its slot.
func countIn(slots map[int]line.Tally, e line.Entry) {
	t := slots[e.Slot]
	t.Add(e.Seq)
	slots[e.Slot] = t
}

// doneUpTo is what an owner that has seen everything would settle.
func (f *fixture) doneUpTo(pos int64, exits ...line.Transition) []line.Done {
	f.t.Helper()
	slots, err := f.Slots(f.ctx)
	require.NoError(f.t, err)
	var done []line.Done
	for _, s := range slots {
		entries, err := f.Entries(f.ctx, []line.Range{{Slot: s.Slot, From: s.Done, To: pos}})
		require.NoError(f.t, err)
		entries = slices.DeleteFunc(entries, func(e line.Entry) bool {
			return slices.ContainsFunc(exits, func(x line.Transition) bool { return x.Seq == e.Seq })
		})
		done = append(done, line.Done{Slot: s.Slot, Epoch: f.epoch, From: s.Done, To: pos, Tally: tallyOf(entries)})
	}
	return done
}

// deliver claims and settles everything up to pos.
func (f *fixture) deliver(pos int64) {
	f.t.Helper()
	f.claim(pos)
	f.settle(pos)
}

// exit takes the task out of its place.
func (f *fixture) transition(id string, state task.State, pos int64, attempt int) line.Transition {
	f.t.Helper()
	row := f.row(id)
	return line.Transition{Seq: row.Seq, Slot: row.Slot, Epoch: f.epoch, State: state, Pos: pos, Attempt: attempt, Lane: f.lane(row.Topic, row.Class)}
}

// lane is that of rows as this program writes them.
func (f *fixture) lane(topic string, c task.Class) task.Lane {
	f.t.Helper()
	key, err := f.LaneKey(f.ctx)
	require.NoError(f.t, err)
	return key.Lane(topic, c)
}

// unkey gives the rows of a topic the lanes that a program of a version before keys gives them.
func (f *fixture) unkey(topic string) {
	f.t.Helper()
	for c := range task.Class(task.Classes) {
		_, err := f.db.ExecContext(f.ctx, "UPDATE tasks SET lane = ? WHERE topic = ? AND lane = ?", int64(task.Unkeyed(topic, c)), []byte(topic), int64(f.lane(topic, c)))
		require.NoError(f.t, err)
	}
}

// awaitReport claims the task, delivers it as its n-th attempt, and waits a minute for the report.
func (f *fixture) awaitReport(id string, attempt int) {
	f.t.Helper()
	pos := f.row(id).Pos
	f.now = max(f.now, pos)
	f.claim(f.now)
	f.settle(f.now, f.transition(id, task.StateReport, f.now+time.Minute.Milliseconds(), attempt))
}

// rows reads the rows of an id: at most one, while the unique key holds.
func (f *fixture) rows(id string) []task.Task {
	f.t.Helper()
	key := task.Ident(target, id)
	out, err := tables.Fetch(f.ctx, f.db, tables.ScanTask, "SELECT "+tables.TaskColumns+" FROM tasks WHERE ident = ?", key[:])
	require.NoError(f.t, err)
	return out
}

func (f *fixture) row(id string) task.Task {
	f.t.Helper()
	rows := f.rows(id)
	require.Len(f.t, rows, 1, "rows of %s", id)
	return rows[0]
}

func (f *fixture) place(id string) handle.Place {
	f.t.Helper()
	t := f.row(id)
	return handle.PlaceOf(&t)
}

func (f *fixture) body(id string) schemas.Body {
	f.t.Helper()
	body, err := schemas.DecodeBody(f.row(id).Body)
	require.NoError(f.t, err)
	return body
}

// state is the task's, as Get shows it; "" when none is known.
func (f *fixture) state(id string) string {
	f.t.Helper()
	v, err := look.New(f.Store).Get(f.ctx, target, id)
	if err == look.ErrNotFound {
		return ""
	}
	require.NoError(f.t, err)
	return v.State
}

// count answers how many rows a table has.
func (f *fixture) count(table string) (n int) {
	f.t.Helper()
	require.NoError(f.t, f.db.QueryRowContext(f.ctx, "SELECT COUNT(*) FROM "+table).Scan(&n))
	return n
}

// dump is everything that is stored, for "nothing has changed".
func (f *fixture) dump() map[string][]string {
	f.t.Helper()
	out := map[string][]string{}
	for _, table := range []string{"tasks", "slots", "sources", "outbox", "waiting", "dead_letters", "timers", "audit", "tags", "unknown_targets"} {
		rows, err := f.db.QueryContext(f.ctx, "SELECT * FROM "+table+" ORDER BY 1, 2")
		require.NoError(f.t, err)
		columns, err := rows.Columns()
		require.NoError(f.t, err)
		for rows.Next() {
			cells := make([]any, len(columns))
			into := make([]any, len(columns))
			for i := range cells {
				into[i] = &cells[i]
			}
			require.NoError(f.t, rows.Scan(into...))
			out[table] = append(out[table], fmt.Sprintf("%v", cells))
		}
		require.NoError(f.t, rows.Err())
		require.NoError(f.t, rows.Close())
	}
	return out
}
