package intake

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fxamacker/cbor/v2"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Arrive stores what has left another database, in the order of the numbers, and leaves out what is
// stored already. The places are for the index.
func (in Moves) Arrive(ctx context.Context, f Following, page []Leaver) (added []handle.Place, err error) {
	lacking := int64(0)
	err = in.h.Transact(ctx, func(tx *sql.Tx) error {
		added, lacking = nil, 0
		arrived, err := in.move(ctx, tx, f, "arrived", true)
		if err != nil {
			return err
		}
		rest := slices.DeleteFunc(slices.Clone(page), func(l Leaver) bool { return l.Num <= arrived })
		if len(rest) == 0 {
			return nil
		}
		lacking = rest[0].Num - 1 - arrived
		if added, err = in.admit(ctx, tx, rest, true); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE homes SET arrived = ? WHERE n = ?", rest[len(rest)-1].Num, f.N)
		return err
	})
	if err == nil && lacking > 0 {
		in.h.Log.Warn("numbers of what follows its targets are lacking: where this database was set back, the former one may not keep those tasks any more",
			zap.Int("rule", f.N), zap.Int64("numbers", lacking))
	}
	return added, wrap.Err(err, "storing %d tasks that follow their targets", len(page))
}

// decoding is of what has left. Names may be any bytes.
var decoding, _ = cbor.DecOptions{UTF8: cbor.UTF8DecodeInvalid}.DecMode()

// arrival is the work of a transaction in which tasks come from another database.
type arrival struct{ *work }

// admit puts what has left a line into a line of this database. It comes from another one, or is
// put back.
func (in Moves) admit(ctx context.Context, tx *sql.Tx, page []Leaver, comes bool) ([]handle.Place, error) {
	spread, err := in.h.SpreadIn(ctx, tx)
	if err != nil {
		return nil, err
	}
	w := arrival{&work{intake: in.Intake, tx: tx, spread: spread, resolving: true}}
	var list []*identity
	var tasks []*task.Task
	var left []leaver
	var timers []*leftTimer
	var dead []*task.DeadLetter
	var waiting []leaver
	for _, row := range page {
		var l leaver
		if err := decoding.Unmarshal(row.data, &l); err != nil {
			return nil, fmt.Errorf("decoding what has left: %w", err)
		}
		switch {
		case l.Timer != nil: // perhaps with its run, which others wait for
			timers = append(timers, l.Timer)
		case l.Letter != nil:
			dead = append(dead, l.Letter)
		case l.Task == nil:
			waiting = append(waiting, l)
		}
		if l.Task != nil {
			left, tasks, list = append(left, l), append(tasks, l.Task), append(list, &identity{key: task.Ident(l.Task.Topic, l.Task.ID)})
		}
	}
	here, err := w.lockTimers(ctx, timers, tasks)
	if err != nil {
		return nil, err
	}
	followed := tasks
	if comes {
		tasks = withTimers(left, here)
	}
	timers = w.lackingTimers(timers, here)
	slices.SortFunc(list, inOrder)
	if err := w.readKnown(ctx, list, "''"); err != nil {
		return nil, err
	}
	same, err := w.sameSeqs(ctx, tasks)
	if err != nil {
		return nil, err
	}
	if err := w.lockSlots(ctx, list); err != nil {
		return nil, err
	}
	if tasks, err = w.makeRoom(ctx, tasks, list, same); err != nil {
		return nil, err
	}
	if waiting, err = w.lacking(ctx, waiting, followed, tasks); err != nil {
		return nil, err
	}
	for _, t := range tasks {
		if t.Slot != task.OutOfLine {
			w.settleIn(t)
			w.applied.Added = append(w.applied.Added, handle.PlaceOf(t))
		}
	}
	if err := w.insertTasks(ctx, tasks); err != nil {
		return nil, err
	}
	if err := w.insertTimers(ctx, timers); err != nil {
		return nil, err
	}
	if err := in.h.InsertDead(ctx, tx, dead); err != nil {
		return nil, err
	}
	if err := w.reopen(ctx, tasks, here); err != nil {
		return nil, err
	}
	if err := w.unread.write(ctx, tx); err != nil {
		return nil, err
	}
	return w.applied.Added, insertWaiting(ctx, tx, waiting)
}

// settleIn places a task behind what is claimed. A held one is held again, if it has to be.
func (w arrival) settleIn(t *task.Task) {
	if key, ok := schemas.BodyKey(t.Body); ok {
		t.Slot = w.spread.Of(t.Topic, key, task.Hashed(t.Seq, t.Replay, t.ID))
	} else {
		t.Slot = 0
	}
	pos := task.HeldSince(t.Pos)
	if t.State == task.StateLine {
		pos = t.Due
	}
	t.Pos = max(pos, w.slots[t.Slot].Claimed+1)
}

// sameSeqs reads and locks the tasks here with the numbers of those that follow.
func (w arrival) sameSeqs(ctx context.Context, tasks []*task.Task) (map[int64]*task.Task, error) {
	seqs := make([]int64, len(tasks))
	for i, t := range tasks {
		seqs[i] = t.Seq
	}
	slices.Sort(seqs)
	scan := func(r *sql.Rows, t *task.Task) error {
		return r.Scan(&t.Seq, &t.Slot, &t.Pos, &t.State, &t.Replay, &t.Topic, &t.ID)
	}
	rows, err := tables.FetchIn(ctx, w.tx, scan, "SELECT seq, slot, pos, state, replay, topic, id FROM tasks WHERE seq", seqs, w.intake.h.Locking(handle.LockExclusive))
	same := make(map[int64]*task.Task, len(rows))
	for i := range rows {
		same[rows[i].Seq] = &rows[i]
	}
	return same, err
}

// ErrStranger: two databases count differently, so one of them is of another installation.
var ErrStranger = errors.New("another task has the number of one that follows its target")

// makeRoom deletes the ended tasks of the identities, from before the targets left this database,
// and returns the tasks that are to be stored. One that is here already is left out: this database
// was set back, and has read the request again. So is one that has ended before another of its id,
// or was replaced by it: the former home was set back.
// Where a run of a timer has the id, the task gets another one, as a request whose default id is
// taken.
func (w arrival) makeRoom(ctx context.Context, tasks []*task.Task, list []*identity, bySeq map[int64]*task.Task) (out []*task.Task, err error) {
	here := map[[16]byte]*task.Task{}
	for _, id := range list {
		here[id.key] = id.before
	}
	ended := func(t *task.Task) bool {
		return t.Slot == task.OutOfLine || t.Phase(w.slots[t.Slot].Claimed, w.slots[t.Slot].Done) == task.Ended
	}
	gone := map[int64]bool{}
	for _, t := range tasks {
		if same := bySeq[t.Seq]; same != nil {
			if same.Topic != t.Topic || same.ID != t.ID && same.ID != task.TakenID(t) && task.TakenID(same) != t.ID {
				if err := fmt.Errorf("%w: %d, of %s/%s, which follows, and of %s/%s", ErrStranger, t.Seq, t.Topic, t.ID, same.Topic, same.ID); t.Slot != task.OutOfLine {
					return nil, err
				}
				w.intake.h.Log.Warn("an ended task does not follow its target: its id may be used once more", zap.String("topic", t.Topic), zap.String("id", t.ID))
				continue
			}
			if !ended(same) || same.Replay >= t.Replay {
				continue
			}
			gone[same.Seq] = true
		}
		if other := here[task.Ident(t.Topic, t.ID)]; other != nil && other.Seq != t.Seq {
			if task.IsRun(t.Seq) && t.Replay == 0 { // it was made here, or cancelled before it was made
				continue
			}
			switch over := t.Slot == task.OutOfLine; {
			case over && (!ended(other) || other.Pos > t.Pos), laterRequest(other, t):
				continue
			case ended(other):
				gone[other.Seq] = true
			default:
				t.ID = task.TakenID(t)
			}
		}
		out = append(out, t)
	}
	deleted := make([]int64, 0, len(gone))
	for seq := range gone {
		deleted = append(deleted, seq)
	}
	return out, deleteTasks(ctx, w.tx, deleted)
}

// laterRequest tells whether one task's request came behind another's, where that can be known.
func laterRequest(t, than *task.Task) bool {
	source, offset := task.SplitSeq(t.Seq)
	before, at := task.SplitSeq(than.Seq)
	return source == before && offset > at && !task.IsRunSource(source) || t.Version > than.Version
}

// lacking returns the changes that are to be stored: not those of a task that is here already, as
// they are here too, or are decided.
func (w arrival) lacking(ctx context.Context, waiting []leaver, followed, stored []*task.Task) ([]leaver, error) {
	drop, seqs := map[[16]byte]bool{}, make([]int64, len(waiting))
	for _, t := range followed {
		if !slices.Contains(stored, t) {
			drop[task.Ident(t.Topic, t.ID)] = true
		}
	}
	for i, l := range waiting {
		seqs[i] = l.Seq
	}
	slices.Sort(seqs)
	here, err := tables.FetchIn(ctx, w.tx, func(r *sql.Rows, n *int64) error { return r.Scan(n) }, "SELECT seq FROM waiting WHERE seq", seqs, w.intake.h.Locking(handle.LockExclusive))
	return slices.DeleteFunc(waiting, func(l leaver) bool { return drop[[16]byte(l.Ident)] || slices.Contains(here, l.Seq) }), wrap.Err(err, "looking for waiting requests")
}

func insertWaiting(ctx context.Context, tx *sql.Tx, all []leaver) error {
	return tables.Pieces(all, func(l leaver) int { return len(l.Request) }, func(part []leaver) error {
		a := make([]any, 0, 4*len(part))
		for _, l := range part {
			a = append(a, l.Seq, l.Ident, l.Report, l.Request)
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO waiting (seq, ident, report, request) VALUES "+strings.Repeat(",(?,?,?,?)", len(part))[1:], a...)
		return wrap.Err(err, "storing %d waiting requests", len(part))
	})
}

// AdoptSources adds the retired sources of another database of the installation, and those of runs:
// a task from there may have its number by one. A source in use is this database's own to begin.
func (in Moves) AdoptSources(ctx context.Context, all []Source) error {
	return wrap.Err(in.h.Transact(ctx, func(tx *sql.Tx) error {
		known, err := tables.Column[int](ctx, tx, "SELECT src FROM sources")
		if err != nil {
			return err
		}
		own, err := ownRuns(ctx, tx)
		if err != nil {
			return err
		}
		var lacking []Source
		for _, s := range all {
			if task.IsRunSource(s.ID) {
				if s.ID != own {
					if err := adoptRuns(ctx, tx, s); err != nil {
						return err
					}
				}
			} else if s.Retired != 0 && !slices.Contains(known, s.ID) {
				lacking = append(lacking, s)
			}
		}
		return CopySources(ctx, tx, lacking)
	}), "copying the sources of tasks")
}
