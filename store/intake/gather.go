package intake

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// gather groups the changes by identity and reads the known tasks, locked against other writers.
func (w *work) gather(ctx context.Context, b Batch) ([]*identity, error) {
	list := make([]*identity, 0, len(b.Changes)+len(b.Resolve))
	byKey := make(map[[16]byte]*identity, cap(list))
	at := func(key [16]byte) *identity {
		id := byKey[key]
		if id == nil {
			id = &identity{key: key}
			byKey[key] = id
			list = append(list, id)
		}
		return id
	}
	for _, c := range b.Changes {
		switch {
		case c.Rejected != nil:
			w.reject(c)
		case c.Report != nil:
			id := at(task.Ident(c.Report.Topic, c.Report.ID))
			id.changes = append(id.changes, c)
		case ofTimer(c): // see decideTimers
		default:
			id := at(task.Ident(c.Request.Topic, c.Request.ID))
			id.changes = append(id.changes, c)
		}
	}
	for _, key := range b.Resolve {
		at(key)
	}
	slices.SortFunc(list, inOrder)
	err := w.readKnown(ctx, w.perhapsKnown(list), "body")
	for look := list; err == nil; {
		renamed := renameTaken(look)
		if len(renamed) == 0 {
			break
		}
		look = look[:0:0]
		for _, c := range renamed {
			id := at(task.Ident(c.Request.Topic, c.Request.ID))
			id.changes = append(id.changes, c)
			look = append(look, id)
		}
		err = w.readKnown(ctx, look, "body") // the new name may be taken too
	}
	slices.SortFunc(list, inOrder)
	return list, err
}

// readKnown reads and locks the tasks of identities. body is a column, or an empty literal. InnoDB
// may pass over a task that another transaction has put in the place of one for which it waited,
// any number of times. A schedule meets such a task when its own is stored, unless it is beyond a
// quota. All else, and what waits, is looked up again until a read without locks, which passes over
// nothing, finds none either.
func (w *work) readKnown(ctx context.Context, list []*identity, body string) error {
	for len(list) > 0 {
		if err := w.readOnce(ctx, list, body); err != nil {
			return err
		}
		list = slices.DeleteFunc(slices.Clone(list), func(id *identity) bool {
			return id.before != nil || len(id.changes) > 0 && onlySchedules(id.changes) && !slices.ContainsFunc(id.changes, beyondQuota)
		})
		byKey, keys := keysOf(list)
		there, err := tables.FetchIn(ctx, w.tx, func(r *sql.Rows, key *[]byte) error { return r.Scan(key) }, "SELECT ident FROM tasks WHERE ident", keys, "")
		if err != nil {
			return fmt.Errorf("looking for the tasks of %d identities: %w", len(keys), err)
		}
		list = list[:0]
		for _, key := range there {
			list = append(list, byKey[[16]byte(key)])
		}
	}
	return nil
}

func beyondQuota(c task.Change) bool { return c.Beyond != "" }

func (w *work) readOnce(ctx context.Context, list []*identity, body string) error {
	byKey, keys := keysOf(list)
	rows, err := tables.FetchIn(ctx, w.tx, w.scanTask, "SELECT "+tables.TaskHead+body+tables.TaskNotes+" FROM tasks WHERE ident", keys, w.intake.h.Locking(handle.LockExclusive))
	if err != nil {
		return fmt.Errorf("reading the tasks of %d identities: %w", len(keys), err)
	}
	for i := range rows {
		byKey[task.Ident(rows[i].Topic, rows[i].ID)].before = &rows[i]
	}
	return nil
}

// perhapsKnown leaves out identities made of intake positions: only a recreated topic repeats any.
func (w *work) perhapsKnown(list []*identity) []*identity {
	if !w.first || w.resolving {
		return list
	}
	out := make([]*identity, 0, len(list))
	for _, id := range list {
		if c := id.changes; len(c) != 1 || c[0].Request == nil || c[0].Request.GivenID || c[0].Request.Op != schemas.OpSchedule {
			out = append(out, id)
		}
	}
	return out
}

// renameTaken takes requests out of other records' identities, and returns them with new ids.
func renameTaken(list []*identity) (renamed []task.Change) {
	for _, id := range list {
		var more []task.Change
		id.changes, more = task.RenameTaken(id.before, id.changes)
		renamed = append(renamed, more...)
	}
	return renamed
}

// inOrder is the order in which all writers lock identities, so no two of them deadlock.
func inOrder(a, b *identity) int { return slices.Compare(a.key[:], b.key[:]) }

// compareKeys is that order for identities as arguments of a statement.
func compareKeys(a, b any) int { return slices.Compare(a.([]byte), b.([]byte)) }

// splitFresh decides the common case before any lock: unknown identities, scheduled once. A second
// request depends on the slot: see nowUnsure.
func (w *work) splitFresh(list *[]*identity) error {
	rest := (*list)[:0]
	for _, id := range *list {
		if id.before != nil || len(id.changes) != 1 || w.resolving || w.intake.evidence != nil || !onlySchedules(id.changes) {
			rest = append(rest, id)
			continue
		}
		if err := w.decideAll(id); err != nil {
			return err
		}
		if t := id.now; t != nil && t.Due > w.intake.h.LastClaimed(t.Slot)+nearby {
			t.Pos = t.Due
			w.fresh = append(w.fresh, t)
		} else if t != nil {
			w.late = append(w.late, t)
		}
	}
	*list = rest
	return nil
}

// nearby, in ms, is how far claimed may move while a batch is stored. Tasks due within nearby are
// stored under the lock: storing them before and moving them then would be twice the work. The
// others are stored before the lock, to keep it short.
const nearby = 1000

func onlySchedules(changes []task.Change) bool {
	for _, c := range changes {
		if c.Request == nil || c.Request.Op != schemas.OpSchedule {
			return false
		}
	}
	return true
}
