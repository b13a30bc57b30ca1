package intake

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// CancelFilter selects tasks that are to come. The zero value selects all.
type CancelFilter struct {
	Topic    string
	IDPrefix string
	Tag      string          // one of the task's
	From, To int64           // place in the line, with a tag the due time, at or after, and before, Unix ms; 0: no bound
	After    *look.ListPlace // where the piece before ended
	// Ends is when a piece that waits for requests of its tasks ends before it is done: More is then where
	// it began, and what was too late counts again. Zero: never.
	Ends time.Time
}

// Cancelled is what one piece of a cancellation has done.
type Cancelled struct {
	Cancelled, TooLate int64
	Removed            []handle.Place  // for the index
	Events             []handle.Box    // their answers, which the owner of slot 0 publishes
	More               *look.ListPlace // where the next piece begins; nil: this was the last
	Entry              int64           // in the audit log: give it back with the next piece
}

// What one piece looks for, and what one of its transactions cancels. Claims of the slots wait for
// its locks.
const (
	cancelPiece = 1000
	cancelTasks = 500
	cancelBytes = 8 << 20 // of bodies, and one more
)

// selected is a task to cancel.
type selected struct {
	key  [16]byte // identity
	seq  int64    // of the row that the task had when it was listed; 0: its identity is looked up
	size int      // of its body
}

// CancelPiece cancels the next tasks that the filter selects, as a cancel without a version would
// cancel each of them. It looks at a bounded number of tasks, finds them as List does, and cancels
// them in short transactions, so call it until More is nil. Each is decided under the same locks as
// any other cancel: after the answer cancelled, no delivery follows. A task that left the filter
// meanwhile is left alone. Repeating a piece is harmless.
//
// entry is the Entry of the piece before, 0 with the first: all pieces have one entry in the audit
// log. rest is called after each transaction, with how long it took.
func (in Intake) CancelPiece(ctx context.Context, f CancelFilter, entry int64, rest func(context.Context, time.Duration) error) (Cancelled, error) {
	out := Cancelled{Entry: entry}
	page, err := look.New(in.h.Ref()).List(ctx, look.ListFilter{Topic: f.Topic, IDPrefix: f.IDPrefix, Tag: f.Tag, From: f.From, To: f.To, Limit: cancelPiece, Sizes: f.IDPrefix == "", After: f.After})
	if err != nil {
		return out, err
	}
	var left []selected
	listed := make(map[[16]byte]bool, len(page.Tasks)) // a task that is replaced while a page is read may be listed twice
	for _, v := range page.Tasks {
		if key := task.Ident(v.Topic, v.ID); !listed[key] {
			listed[key] = true
			left = append(left, selected{key, v.Seq, v.Size})
		}
	}
	if f.IDPrefix != "" { // the list has looked at many tasks with other ids, and a server may read a whole body to tell its size
		if err := in.measure(ctx, left); err != nil {
			return out, err
		}
	}
	earlier := map[[16]byte]int{}
	for len(left) > 0 {
		bite, others := withinBytes(left)
		now, err := in.h.Time(ctx)
		if err != nil {
			return out, err
		}
		began := time.Now()
		again, err := in.cancelTasks(ctx, bite, f, func() int64 { return now.Add(time.Since(began)).UnixMilli() }, earlier, &out)
		if err == nil {
			err = in.measure(ctx, again)
		}
		if err != nil {
			return out, fmt.Errorf("cancelling %d tasks: %w", len(bite), err)
		}
		left = append(again, others...)
		if err := rest(ctx, time.Since(began)); err != nil {
			return out, err
		}
		if len(again) > 0 && !f.Ends.IsZero() && time.Now().After(f.Ends) {
			if out.More = f.After; out.More == nil {
				out.More = &look.ListPlace{Pos: math.MinInt64}
			}
			return out, nil
		}
	}
	out.More = page.More
	return out, nil
}

// withinBytes cuts tasks into those of one transaction and the others.
func withinBytes(tasks []selected) (bite, others []selected) {
	n, bytes := 0, 0
	for n < min(len(tasks), cancelTasks) && bytes < cancelBytes {
		bytes += tasks[n].size
		n++
	}
	return tasks[:n], tasks[n:]
}

// measure notes how large the bodies of tasks are by now.
func (in Intake) measure(ctx context.Context, tasks []selected) error {
	if len(tasks) == 0 {
		return nil
	}
	at := make(map[[16]byte]*selected, len(tasks))
	for i := range tasks {
		at[tasks[i].key] = &tasks[i]
	}
	keys := tables.Idents(tasks, func(t selected) [16]byte { return t.key })
	type row struct {
		ident []byte
		size  int
	}
	rows, err := tables.Fetch(ctx, in.h.Reads(), func(r *sql.Rows, v *row) error { return r.Scan(&v.ident, &v.size) },
		"SELECT ident, LENGTH(body) FROM tasks WHERE ident IN ("+tables.Marks(len(keys))+")", keys...)
	if err != nil {
		return fmt.Errorf("measuring %d tasks: %w", len(keys), err)
	}
	for _, r := range rows {
		at[[16]byte(r.ident)].size = r.size
	}
	return nil
}

// cancelTasks cancels tasks in one transaction, and adds what it did to out. It returns tasks that
// have another row by now, tasks of unsure slots, and tasks for which more waits than one transaction
// takes. It notes in earlier how much that is: what comes later comes after the cancel, so an id that
// gets requests all the time holds up nobody.
func (in Intake) cancelTasks(ctx context.Context, tasks []selected, f CancelFilter, now func() int64, earlier map[[16]byte]int, out *Cancelled) (again []selected, err error) {
	var done Cancelled
	var waits map[[16]byte]int
	err = in.h.Transact(ctx, func(tx *sql.Tx) error {
		spread, err := in.h.SpreadIn(ctx, tx)
		if err != nil {
			return err
		}
		c := canceller{work: work{intake: in, tx: tx, spread: spread, resolving: true, clock: now}, filter: f, earlier: earlier, waits: map[[16]byte]int{}}
		if err := c.run(ctx, tasks); err != nil {
			return err
		}
		done, again, waits = c.done, c.again, c.waits
		done.Entry = out.Entry
		if n := done.Cancelled; n > 0 && done.Entry > 0 {
			return in.h.AuditMore(ctx, tx, done.Entry, n)
		} else if n > 0 {
			done.Entry, err = in.h.Audit(ctx, tx, n)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out.Cancelled, out.TooLate, out.Entry = out.Cancelled+done.Cancelled, out.TooLate+done.TooLate, done.Entry
	out.Removed, out.Events = append(out.Removed, done.Removed...), append(out.Events, done.Events...)
	maps.Copy(earlier, waits)
	return again, nil
}

// canceller is one attempt at one transaction of cancels.
type canceller struct {
	work
	filter  CancelFilter
	earlier map[[16]byte]int // requests that came before the cancel and are not decided yet, by task
	waits   map[[16]byte]int // the same, after this attempt
	done    Cancelled
	again   []selected
}

// run goes the way of work.run, with cancels that come from no intake.
func (c *canceller) run(ctx context.Context, tasks []selected) error {
	list, err := c.read(ctx, tasks)
	if err != nil {
		return err
	}
	if err := c.lockSlots(ctx, list); err != nil {
		return err
	}
	if err := c.readWaiting(ctx, list); err != nil {
		return err
	}
	if err := c.knowSources(ctx, list); err != nil {
		return err
	}
	c.now = c.clock()
	for _, id := range list {
		c.cancel(id)
	}
	if err := c.write(ctx, list); err != nil {
		return err
	}
	if err := c.writeWaiting(ctx, list); err != nil {
		return err
	}
	if err := c.finish(ctx); err != nil {
		return err
	}
	c.done.Removed, c.done.Events = c.applied.Removed, c.applied.Events
	return nil
}

// read reads the tasks, locked against other writers. To find rows by seq, in which they were listed, costs
// the database less than to find identities. A task that was replaced has another seq, and is tried again.
func (c *canceller) read(ctx context.Context, tasks []selected) ([]*identity, error) {
	b, listed := Batch{}, make(map[int64][16]byte, len(tasks))
	for _, t := range tasks {
		if t.seq == 0 {
			b.Resolve = append(b.Resolve, t.key)
		} else {
			listed[t.seq] = t.key
		}
	}
	list, err := c.gather(ctx, b)
	if err != nil || len(listed) == 0 {
		return list, err
	}
	seqs := slices.Sorted(maps.Keys(listed))
	rows, err := tables.Fetch(ctx, c.tx, c.scanTask, "SELECT "+tables.TaskColumns+" FROM tasks WHERE seq IN ("+tables.Marks(len(seqs))+")"+c.intake.h.Locking(handle.LockExclusive), tables.Args(seqs)...)
	if err != nil {
		return nil, fmt.Errorf("reading %d tasks: %w", len(seqs), err)
	}
	for i := range rows {
		key := task.Ident(rows[i].Topic, rows[i].ID)
		if key != listed[rows[i].Seq] {
			continue // a database that was set back has given the seq to another task
		}
		list = append(list, &identity{key: key, before: &rows[i]})
		delete(listed, rows[i].Seq)
	}
	for _, t := range tasks {
		if _, missing := listed[t.seq]; missing {
			c.again = append(c.again, selected{key: t.key})
		}
	}
	return list, nil
}

// cancel decides one task. Requests that waited for it when its turn came are decided first.
func (c *canceller) cancel(id *identity) {
	before := id.queue.requests
	c.decideDue(id)
	t, phase := id.now, c.phase(id)
	if t == nil || !c.filter.selects(t) && phase != task.Ended {
		return
	}
	left := c.stillEarlier(id, before)
	if phase == task.Unsure && t.State == task.StateLine || phase == task.Pending && left > 0 {
		c.waits[id.key] = left
		c.again = append(c.again, selected{key: id.key})
		return
	}
	r := schemas.NewRequest(schemas.OpCancel, t.Topic, t.ID)
	v := task.Decide(t, phase, task.Change{Request: &r}, c.spread, c.now)
	id.now = v.Next
	if v.ToldTooLate {
		c.taken = append(c.taken, t.Seq)
	}
	switch v.Event.State {
	case schemas.StateCancelled:
		c.done.Cancelled++
	case schemas.StateTooLate:
		c.done.TooLate++
	default:
		return
	}
	v.Event.At = c.now
	c.proven = append(c.proven, v.Event)
}

// stillEarlier returns how many of the requests that wait for a task came before its cancel. before is
// how many waited when this attempt began: they are decided in the order in which they came.
func (c *canceller) stillEarlier(id *identity, before int) int {
	earlier, known := c.earlier[id.key]
	if !known || earlier > before {
		earlier = before
	}
	return earlier - (before - id.queue.requests)
}

// selects tells whether a task that is to come still lies within the filter.
func (f *CancelFilter) selects(t *task.Task) bool {
	next := task.HeldSince(t.Pos)
	if f.Tag != "" {
		if !schemas.HasTag(schemas.BodyTag(t.Body), f.Tag) {
			return false // another request has taken its place
		}
		next = t.Due
	}
	return next >= f.From && (f.To <= 0 || next < f.To)
}
