package intake

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
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
	cancelTasks = 400
	cancelBytes = 8 << 20 // of bodies, and one more
)

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
	page, err := look.New(in.h.Ref()).List(ctx, look.ListFilter{Topic: f.Topic, IDPrefix: f.IDPrefix, Tag: f.Tag, From: f.From, To: f.To, Limit: cancelPiece, After: f.After})
	if err != nil {
		return out, err
	}
	earlier := map[[16]byte]int{}
	for left := page.Tasks; len(left) > 0; {
		bite, others, err := in.withinBytes(ctx, left)
		if err != nil {
			return out, err
		}
		now, err := in.h.Time(ctx)
		if err != nil {
			return out, err
		}
		began := time.Now()
		again, err := in.cancelTasks(ctx, bite, f, func() int64 { return now.Add(time.Since(began)).UnixMilli() }, earlier, &out)
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
func (in Intake) withinBytes(ctx context.Context, tasks []look.View) (bite, rest []look.View, err error) {
	all := tasks
	tasks = tasks[:min(len(tasks), cancelTasks)]
	keys := tables.Idents(tasks, func(v look.View) [16]byte { return task.Ident(v.Topic, v.ID) })
	type row struct {
		ident []byte
		size  int
	}
	rows, err := tables.Fetch(ctx, in.h.Reads(), func(r *sql.Rows, v *row) error { return r.Scan(&v.ident, &v.size) }, "SELECT ident, LENGTH(body) FROM tasks WHERE ident IN ("+tables.Marks(len(keys))+")", keys...)
	if err != nil {
		return nil, nil, fmt.Errorf("measuring %d tasks: %w", len(keys), err)
	}
	sizes := make(map[[16]byte]int, len(rows))
	for _, r := range rows {
		sizes[[16]byte(r.ident)] = r.size
	}
	bytes := 0
	for i, v := range tasks {
		if bytes >= cancelBytes {
			return all[:i], all[i:], nil
		}
		bytes += sizes[task.Ident(v.Topic, v.ID)]
	}
	return tasks, all[len(tasks):], nil
}

// cancelTasks cancels tasks in one transaction, and adds what it did to out. It returns tasks of
// unsure slots, and tasks for which more waits than one transaction takes, and notes in earlier how much that is: what comes later
// comes after the cancel, so an id that gets requests all the time holds up nobody.
func (in Intake) cancelTasks(ctx context.Context, tasks []look.View, f CancelFilter, now func() int64, earlier map[[16]byte]int, out *Cancelled) (again []look.View, err error) {
	b := Batch{}
	for _, v := range tasks {
		b.Resolve = append(b.Resolve, task.Ident(v.Topic, v.ID))
	}
	var done Cancelled
	var waits map[[16]byte]int
	err = in.h.Transact(ctx, func(tx *sql.Tx) error {
		spread, err := in.h.SpreadIn(ctx, tx)
		if err != nil {
			return err
		}
		c := canceller{work: work{intake: in, tx: tx, spread: spread, resolving: true, clock: now}, filter: f, earlier: earlier, waits: map[[16]byte]int{}}
		if err := c.run(ctx, b); err != nil {
			return err
		}
		done, again, waits = c.done, c.again, c.waits
		done.Entry = out.Entry
		if n := done.Cancelled; n > 0 && done.Entry > 0 {
			return handle.AuditMore(ctx, tx, done.Entry, n)
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
	again   []look.View
}

// run goes the way of work.run, with cancels that come from no intake.
func (c *canceller) run(ctx context.Context, b Batch) error {
	list, err := c.gather(ctx, b)
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
		c.again = append(c.again, look.View{Topic: t.Topic, ID: t.ID})
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
