package intake

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fxamacker/cbor/v2"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// TakeOut takes tasks at rest out of the line, with the changes that wait for them, and returns how
// many. Others stay: those in flight, those that have ended, and runs that leave with their timer.
// arrived is the last number that the other database has stored. This one may have been set back
// behind that.
func (in Moves) TakeOut(ctx context.Context, f Following, arrived int64, seqs []int64) (n int, err error) {
	n, err = in.tasksLeave(ctx, f, arrived, seqs, (*leaving).takeOut)
	return n, wrap.Err(err, "taking tasks out of the line")
}

// tasksLeave has tasks leave in pieces, and returns how many left.
func (in Moves) tasksLeave(ctx context.Context, f Following, arrived int64, seqs []int64, out func(*leaving, context.Context, []int64) (int, error)) (int, error) {
	pieces, err := in.pieces(ctx, seqs, sizeOfTasks)
	if err != nil {
		return 0, fmt.Errorf("reading how large %d tasks are: %w", len(seqs), err)
	}
	return leaveIn(ctx, in, f, arrived, pieces, out)
}

// leaveIn has something leave in a transaction for each part, and returns how much left.
func leaveIn[P any](ctx context.Context, in Moves, f Following, arrived int64, parts []P, out func(*leaving, context.Context, P) (int, error)) (n int, err error) {
	for _, part := range parts {
		left := 0
		err := in.h.Transact(ctx, func(tx *sql.Tx) error {
			left = 0
			l, err := in.leaving(ctx, tx, f, arrived)
			if err == nil {
				left, err = out(l, ctx, part)
			}
			return err
		})
		if n += left; err != nil {
			return n, err
		}
	}
	return n, nil
}

// sizeOfTasks reads tasks' bytes, with what waits for them.
const sizeOfTasks = "SELECT t.seq, LENGTH(t.body) + COALESCE((SELECT SUM(w.size) FROM waiting w WHERE w.ident = t.ident), 0) FROM tasks t WHERE t.seq"

// pieces cuts rows into what one transaction takes. query reads their ids and bytes.
func (in Moves) pieces(ctx context.Context, ids []int64, query string) (out [][]int64, err error) {
	type size struct{ id, bytes int64 }
	rows, err := tables.FetchIn(ctx, in.h.Reads(), func(r *sql.Rows, v *size) error { return r.Scan(&v.id, &v.bytes) }, query, ids, "")
	bytes := int64(0)
	for _, v := range rows {
		if len(out) == 0 || bytes+v.bytes > followBytes || len(out[len(out)-1]) >= followRows {
			out, bytes = append(out, nil), 0
		}
		last := len(out) - 1
		out[last], bytes = append(out[last], v.id), bytes+v.bytes
	}
	return out, err
}

// standOf locks tasks, and tells how far they are. A row stays that has what a dead letter lacks.
func (l *leaving) standOf(ctx context.Context, seqs []int64) (stand, error) {
	slices.Sort(seqs)
	rows, err := tables.FetchIn(ctx, l.tx, func(r *sql.Rows, t *task.Task) error { return tables.ScanTaskNotes(r, t) },
		"SELECT "+tables.TaskColumns+tables.TaskNotes+" FROM tasks t WHERE t.seq", seqs, noContentOfALetter+" ORDER BY t.seq"+l.h.Locking(handle.LockExclusive))
	if err != nil {
		return stand{}, err
	}
	return l.stand(ctx, rows)
}

const noContentOfALetter = " AND (t.slot <> -1 OR NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.seq = t.seq AND d.replayed_at = 0 AND LENGTH(d.body) = 0))"

// TakeOutEnded has ended tasks leave, and returns how many left. The other database then knows
// which ids were used, and up to which version.
func (in Moves) TakeOutEnded(ctx context.Context, f Following, arrived int64, seqs []int64) (n int, err error) {
	n, err = in.tasksLeave(ctx, f, arrived, seqs, (*leaving).takeOutEnded)
	return n, wrap.Err(err, "having ended tasks leave")
}

func (l *leaving) takeOutEnded(ctx context.Context, seqs []int64) (int, error) {
	of, err := l.standOf(ctx, seqs)
	if err == nil && of.unsure {
		err = errUnsureSlots
	}
	if err != nil {
		return 0, err
	}
	if l.f.Nowhere {
		of.out = append(of.out, of.atRest...)
	}
	l.ended(of.out, of.sent)
	return len(l.left), l.write(ctx)
}

// ended has tasks leave that have ended out of the line, and in it.
func (l *leaving) ended(out, sent []task.Task) {
	for i := range out {
		l.left = append(l.left, leaver{Task: &out[i]})
	}
	for i := range sent {
		t := &sent[i]
		t.Slot, t.Pos, t.State, t.Attempt = task.OutOfLine, task.HeldSince(t.Pos), task.StateSucceeded, t.Attempt+1
		l.left = append(l.left, leaver{Task: t})
	}
}

func (l *leaving) takeOut(ctx context.Context, seqs []int64) (int, error) {
	of, err := l.standOf(ctx, seqs)
	if err != nil {
		return 0, err
	}
	timers, err := l.timersOf(ctx, l.tx, of.atRest)
	if err != nil {
		return 0, err
	}
	slices.SortFunc(of.atRest, nearest)
	for i := range of.atRest {
		out := leaver{Task: &of.atRest[i]}
		key := task.TimerOf(out.Task.Topic, out.Task.ID)
		deleted, there := timers[key]
		if there && mustBeAlone(out.Task, key) { // only the timer knows which of them may start
			continue
		}
		if there && !deleted {
			out.With = l.now
		}
		l.left = append(l.left, out)
	}
	return len(l.left), l.write(ctx)
}

// nearest puts what is due first in front.
func nearest(a, b task.Task) int {
	return cmp.Or(cmp.Compare(task.HeldSince(a.Pos), task.HeldSince(b.Pos)), cmp.Compare(a.Seq, b.Seq))
}

// stand is how far tasks are.
type stand struct {
	atRest, inFlight, sent []task.Task // sent: they have ended in the line
	out                    []task.Task // they have ended out of the line
	unsure                 bool        // nobody knows yet whether some are in flight
}

// stand tells how far tasks are, under the locks of their slots.
func (l *leaving) stand(ctx context.Context, rows []task.Task) (out stand, err error) {
	set := handle.SlotSet{}
	for _, t := range rows {
		set.Add(t.Slot)
	}
	slots, err := l.h.LockSlotsThere(ctx, l.tx, set, handle.LockShared)
	if err != nil {
		return out, err
	}
	for _, t := range rows {
		s, there := slots[t.Slot]
		ph := t.Phase(s.Claimed, s.Done)
		switch {
		case t.Slot == task.OutOfLine:
			out.out = append(out.out, t)
		case l.f.Nowhere:
			out.atRest = append(out.atRest, t)
		case !there || s.Unsure:
			out.unsure = true
		case t.AtRest(ph):
			out.atRest = append(out.atRest, t)
		case ph == task.Ended:
			out.sent = append(out.sent, t)
		default:
			out.inFlight = append(out.inFlight, t)
		}
	}
	return out, nil
}

// leaving is a transaction in which something leaves.
type leaving struct {
	Moves
	tx        *sql.Tx
	f         Following
	last, now int64 // the last number given, and the time
	left      []leaver
}

func (in Moves) leaving(ctx context.Context, tx *sql.Tx, f Following, arrived int64) (*leaving, error) {
	now, err := in.h.TimeIn(ctx, tx)
	if err != nil {
		return nil, err
	}
	last, err := in.move(ctx, tx, f, "taken", false)
	if err != nil {
		return nil, err
	}
	if life, err := in.lifeIn(ctx, tx); err != nil || life != f.Life {
		return nil, cmp.Or(err, ErrForgotten)
	}
	// Somebody may have stood still since all had followed: the targets may live here again.
	if done, err := in.move(ctx, tx, f, "followed", false); err != nil || done != 0 {
		return nil, cmp.Or(err, ErrNoMove)
	}
	return &leaving{Moves: in, tx: tx, f: f, last: max(last, arrived), now: now.UnixMilli()}, nil
}

// write stores what leaves, with the changes that wait for its tasks, and takes those out of their
// tables.
func (l *leaving) write(ctx context.Context) error {
	if len(l.left) == 0 {
		return nil
	}
	var tasks []*task.Task
	var gone []int64
	for _, out := range l.left {
		if out.Task != nil {
			tasks, gone = append(tasks, out.Task), append(gone, out.Task.Seq)
		}
	}
	waiting, err := l.takeWaiting(ctx, l.tx, tasks)
	if err != nil {
		return err
	}
	var left []leaver
	for _, out := range l.left {
		if left = append(left, out); out.Task != nil {
			left = append(left, waiting[task.Ident(out.Task.Topic, out.Task.ID)]...)
		}
	}
	if err := deleteTasks(ctx, l.tx, gone); err != nil {
		return err
	}
	if err := insertLeavers(ctx, l.tx, l.f, l.last, l.now, left); err != nil {
		return err
	}
	_, err = l.tx.ExecContext(ctx, "UPDATE homes SET taken = ? WHERE n = ?", l.last+int64(len(left)), l.f.N)
	return err
}

// takeWaiting takes the changes that wait for tasks out of their table, in the order of arrival.
func (in Moves) takeWaiting(ctx context.Context, tx *sql.Tx, rows []*task.Task) (map[[16]byte][]leaver, error) {
	keys := tables.Idents(rows, func(t *task.Task) [16]byte { return task.Ident(t.Topic, t.ID) })
	slices.SortFunc(keys, compareKeys)
	found, err := tables.FetchIn(ctx, tx, func(r *sql.Rows, w *leaver) error { return r.Scan(&w.Seq, &w.Ident, &w.Report, &w.Request) },
		"SELECT seq, ident, report, request FROM waiting WHERE ident", keys, " ORDER BY arrived"+in.h.Locking(handle.LockExclusive))
	if err != nil {
		return nil, fmt.Errorf("reading what waits for %d tasks: %w", len(rows), err)
	}
	out, seqs := map[[16]byte][]leaver{}, make([]int64, 0, len(found))
	for _, w := range found {
		key := [16]byte(w.Ident)
		out[key], seqs = append(out[key], w), append(seqs, w.Seq)
	}
	slices.Sort(seqs)
	return out, tables.ExecIn(ctx, tx, "DELETE FROM waiting WHERE seq", seqs)
}

func insertLeavers(ctx context.Context, tx *sql.Tx, f Following, last, now int64, left []leaver) error {
	rows := make([]Leaver, len(left))
	for i, l := range left {
		data, err := cbor.Marshal(l)
		if err != nil {
			return fmt.Errorf("encoding what leaves: %w", err)
		}
		rows[i] = Leaver{last + int64(i) + 1, data}
	}
	return tables.Pieces(rows, func(l Leaver) int { return len(l.data) }, func(part []Leaver) error {
		a := make([]any, 0, 4*len(part))
		for _, l := range part {
			a = append(a, []byte(f.Token), l.Num, now, l.data)
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO leaving (token, num, at, data) VALUES "+strings.Repeat(",(?,?,?,?)", len(part))[1:], a...)
		return err
	})
}

// Leavers reads some of what has left behind a number, in order.
func (in Moves) Leavers(ctx context.Context, f Following, after int64) (out []Leaver, err error) {
	rows, err := in.h.DB.QueryContext(ctx, "SELECT num, data FROM leaving WHERE token = ? AND num > ? ORDER BY num LIMIT ?", []byte(f.Token), after, followRows)
	if err != nil {
		return nil, fmt.Errorf("reading what has left: %w", err)
	}
	defer rows.Close()
	for bytes := 0; bytes < followBytes && rows.Next(); {
		var l Leaver
		if err := rows.Scan(&l.Num, &l.data); err != nil {
			return nil, err
		}
		out, bytes = append(out, l), bytes+len(l.data)
	}
	return out, rows.Err()
}

// PutBack puts a page of what has left back into the line, while the rule is only announced. False:
// nothing is left to put back.
func (in Moves) PutBack(ctx context.Context, f Following) (more bool, err error) {
	page, err := in.Leavers(ctx, f, 0)
	if err != nil || len(page) == 0 {
		return false, err
	}
	err = in.h.Transact(ctx, func(tx *sql.Tx) error {
		held, err := in.move(ctx, tx, f, "held", false)
		if err != nil || held != 0 {
			more = false
			return err
		}
		more = true
		nums := make([]int64, len(page))
		for i, l := range page {
			nums[i] = l.Num
		}
		there, err := tables.FetchIn(ctx, tx, func(r *sql.Rows, n *int64) error { return r.Scan(n) }, "SELECT num FROM leaving WHERE num", nums, " AND token = ?"+in.h.Locking(handle.LockExclusive), []byte(f.Token))
		if err != nil {
			return err
		}
		rest := slices.DeleteFunc(slices.Clone(page), func(l Leaver) bool { return !slices.Contains(there, l.Num) }) // another one was quicker
		if _, err := in.admit(ctx, tx, rest, false); err != nil {
			return err
		}
		return tables.ExecIn(ctx, tx, "DELETE FROM leaving WHERE token = ? AND num", nums, []byte(f.Token))
	})
	return more, wrap.Err(err, "putting %d tasks back into the line", len(page))
}

// Left tells whether something has left that was not put back. tx has the lock of the rules, and
// has the rule's row from then on: so nothing leaves that nobody has seen.
func (in Moves) Left(ctx context.Context, tx *sql.Tx, f Following) (bool, error) {
	if _, err := in.move(ctx, tx, f, "n", false); errors.Is(err, ErrNoMove) {
		return false, nil
	} else if err != nil {
		return false, wrap.Err(err, "locking a rule that is taken back")
	}
	_, left, err := tables.One[int64](ctx, tx, "SELECT num FROM leaving WHERE token = ? LIMIT 1"+in.h.Locking(handle.LockShared), []byte(f.Token))
	return left, wrap.Err(err, "looking for tasks that have left")
}

// Remains is what a database still has of some identities whose targets have left it.
type Remains struct {
	Seqs   []int64    // of tasks that have not ended
	Ended  []int64    // of the others
	Timers [][16]byte // with those of the tasks that are runs
	Wait   bool       // changes wait for some of them
	Taken  int64      // the last number that has left
}

// None tells whether no task and no timer is left.
func (r Remains) None() bool { return len(r.Seqs)+len(r.Ended)+len(r.Timers) == 0 }

// Remains looks for what is left of identities with a matching target. Where nothing is, nothing
// comes back: all of it has a number up to Taken.
func (in Moves) Remains(ctx context.Context, f Following, idents [][16]byte, matches func(topic string) bool) (out Remains, err error) {
	keys := tables.Idents(idents, func(id [16]byte) [16]byte { return id })
	slices.SortFunc(keys, compareKeys)
	// Waiting changes come first: they may become tasks.
	waiting, err := tables.FetchIn(ctx, in.h.Reads(), scanWaiting, "SELECT ident, report, size, request FROM waiting WHERE ident", keys, "")
	if err != nil {
		return out, fmt.Errorf("looking for what waits for tasks that follow: %w", err)
	}
	out.Wait = slices.ContainsFunc(waiting, func(h waitingChange) bool { return h.of(matches) })
	if out.Timers, err = in.timersThere(ctx, keys, matches); err != nil { // before the tasks: they may make runs
		return out, err
	}
	type row struct {
		task.Task
		ended bool
	}
	rows, err := tables.FetchIn(ctx, in.h.Reads(), func(r *sql.Rows, t *row) error { return r.Scan(&t.Seq, &t.Topic, &t.ID, &t.ended) },
		"SELECT t.seq, t.topic, t.id, t.slot = -1 OR COALESCE(t.pos <= s.done, FALSE) FROM tasks t LEFT JOIN slots s ON s.slot = t.slot WHERE t.ident", keys, noContentOfALetter)
	if err != nil {
		return out, fmt.Errorf("looking for tasks that follow: %w", err)
	}
	var runs [][16]byte
	for _, t := range rows {
		switch {
		case !matches(t.Topic):
			continue
		case t.ended:
			out.Ended = append(out.Ended, t.Seq)
		default:
			out.Seqs = append(out.Seqs, t.Seq)
		}
		if task.IsRun(t.Seq) {
			runs = append(runs, task.TimerOf(t.Topic, t.ID))
		}
	}
	if len(runs) > 0 {
		if out.Timers, err = in.timersThere(ctx, append(keys, tables.Idents(runs, func(id [16]byte) [16]byte { return id })...), matches); err != nil {
			return out, err
		}
	}
	out.Taken, _, err = in.Progress(ctx, f)
	return out, err
}

// timersThere returns those identities that are a timer's with a matching target.
func (in Moves) timersThere(ctx context.Context, keys []any, matches func(topic string) bool) (out [][16]byte, err error) {
	rows, err := tables.FetchIn(ctx, in.h.Reads(), func(r *sql.Rows, t *task.Timer) error { return r.Scan(&t.Topic, &t.ID) }, "SELECT topic, id FROM timers WHERE ident", keys, "")
	for _, t := range rows {
		if matches(t.Topic) {
			out = append(out, task.Ident(t.Topic, t.ID))
		}
	}
	return out, wrap.Err(err, "looking for timers that follow")
}

// RetireLeft deletes what left for another database before an instant, and has arrived there, a
// piece at a time.
func (in Moves) RetireLeft(ctx context.Context, before int64) (int, error) {
	tokens, err := tables.Column[[]byte](ctx, in.h.Reads(), "SELECT DISTINCT token FROM leaving")
	for _, token := range tokens {
		var nums []int64
		// The times rise with the numbers: the first ones tell whether any is old enough.
		nums, err = tables.Column[int64](ctx, in.h.Reads(), "SELECT num FROM (SELECT num, at FROM leaving WHERE token = ? AND NOT EXISTS (SELECT 1 FROM homes WHERE token = ? AND followed = 0) ORDER BY num LIMIT ?) AS l WHERE at < ?", token, token, tables.MaxRows, before)
		if err != nil || len(nums) == 0 {
			continue
		}
		_, err = in.h.Exec(ctx, "DELETE FROM leaving WHERE token = ? AND num IN ("+tables.Ints(nums)+")", token)
		return len(nums), wrap.Err(err, "deleting what has left for another database")
	}
	return 0, wrap.Err(err, "looking for what has left for another database")
}
