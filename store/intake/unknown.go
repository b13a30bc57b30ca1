package intake

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Unknown says which changes of a batch are for missing target topics. An intake has a row for each
// missing topic among its tasks and timers.
type Unknown struct {
	Changes []int          // their places in Batch.Changes, ascending
	Most    map[string]int // rows, by intake; without one, an intake has any number and no rows
	// Letter tells whether an intake's next rejection has a dead letter. nil: each has.
	Letter func(intake string) bool
}

// unknownNames is a batch's missing topics of one intake.
type unknownNames struct {
	h       *handle.Handle
	tx      *sql.Tx
	in      string
	most    int
	list    []string // in the order of the batch, each once
	changes []int
	have    map[string]bool // there is a row
}

// boundUnknown returns a batch's changes, with marks on targets beyond the intake's quota.
func (w *work) boundUnknown(ctx context.Context, b Batch) ([]task.Change, error) {
	byIntake, seen := map[string]*unknownNames{}, map[[2]string]bool{}
	for _, place := range b.Unknown.Changes {
		in := w.intake.known.topic(b.Changes[place].Seq)
		if b.Unknown.Most[in] <= 0 {
			continue
		}
		if byIntake[in] == nil {
			byIntake[in] = &unknownNames{h: w.intake.h, tx: w.tx, in: in, most: b.Unknown.Most[in]}
		}
		n, name := byIntake[in], b.Changes[place].Request.Topic
		n.changes = append(n.changes, place)
		if !seen[[2]string{in, name}] {
			seen[[2]string{in, name}], n.list = true, append(n.list, name)
		}
	}
	if len(byIntake) == 0 {
		return b.Changes, nil
	}
	changes := slices.Clone(b.Changes) // another try begins without marks
	for _, in := range slices.Sorted(maps.Keys(byIntake)) {
		n := byIntake[in]
		if err := n.take(ctx); err != nil {
			return nil, fmt.Errorf("bounding the unknown targets of %s: %w", in, err)
		}
		for _, place := range n.changes {
			if c := &changes[place]; !n.have[c.Request.Topic] {
				c.Beyond = task.QuotaUnknownTargets
				c.NoLetter = c.NoLetter || b.Unknown.Letter != nil && !b.Unknown.Letter(in)
			}
		}
	}
	return changes, nil
}

// take adds rows for names while there is room. Writers of one intake take turns. Without
// room, only existing rows are locked: a full intake must not delay the batch's other intakes.
func (n *unknownNames) take(ctx context.Context) error {
	if err := n.read(ctx); err != nil || len(n.have) == len(n.list) {
		return err
	}
	if rows, err := n.count(ctx); err != nil || rows >= n.most {
		return err
	}
	if err := n.add(ctx, []string{""}); err != nil { // locked from now on
		return err
	}
	rows, err := n.count(ctx)
	if err != nil {
		return err
	}
	if err := n.read(ctx); err != nil {
		return err
	}
	var add []string
	for _, name := range n.list {
		if !n.have[name] && rows+len(add) < n.most {
			n.have[name] = true
			add = append(add, name)
		}
	}
	return tables.Chunks(add, func(part []string) error { return n.add(ctx, part) })
}

func (n *unknownNames) add(ctx context.Context, names []string) error {
	var values []any
	for _, name := range names {
		values = append(values, []byte(n.in), []byte(name))
	}
	_, err := n.tx.ExecContext(ctx, "INSERT INTO unknown_targets (intake, topic) VALUES "+strings.Repeat(",(?,?)", len(names))[1:]+n.h.Dialect.Keep("intake, topic", "topic"), values...)
	return err
}

// read reads the names with a row, and keeps the rows from being deleted.
func (n *unknownNames) read(ctx context.Context) error {
	n.have = map[string]bool{}
	return tables.Chunks(n.list, func(part []string) error {
		values := []any{[]byte(n.in)}
		for _, name := range part {
			values = append(values, []byte(name))
		}
		found, err := tables.Fetch(ctx, n.tx, scanName, "SELECT topic FROM unknown_targets WHERE intake = ? AND topic IN ("+tables.Marks(len(part))+")"+n.h.Locking(handle.LockShared), values...)
		for _, name := range found {
			n.have[name] = true
		}
		return err
	})
}

func (n *unknownNames) count(ctx context.Context) (int, error) {
	rows, _, err := tables.One[int](ctx, n.tx, "SELECT COUNT(*) FROM unknown_targets WHERE intake = ? AND topic <> ?", []byte(n.in), []byte{})
	return rows, err
}

func scanName(r *sql.Rows, name *string) error { return r.Scan(name) }

// UnknownTargets returns the names of an intake's rows.
func (in Intake) UnknownTargets(ctx context.Context, intake string) ([]string, error) {
	names, err := tables.Fetch(ctx, in.h.Reads(), scanName, "SELECT topic FROM unknown_targets WHERE intake = ? AND topic <> ? ORDER BY topic", []byte(intake), []byte{})
	return names, wrap.Err(err, "reading the unknown targets of %s", intake)
}

// ForgetUnknown deletes the row of an existing topic, or of a topic for which the intake has no
// coming task and no timer.
func (in Intake) ForgetUnknown(ctx context.Context, intake, topic string, exists bool) error {
	err := in.h.Transact(ctx, func(tx *sql.Tx) error {
		key := []any{[]byte(intake), []byte(topic)}
		// A batch that counts on the row holds it until its tasks are there.
		rows, err := tables.Fetch(ctx, tx, scanName, "SELECT topic FROM unknown_targets WHERE intake = ? AND topic = ?"+in.h.Locking(handle.LockExclusive), key...)
		if err != nil || len(rows) == 0 {
			return err
		}
		if !exists {
			if lives, err := in.livesFor(ctx, tx, intake, topic); err != nil || lives {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, "DELETE FROM unknown_targets WHERE intake = ? AND topic = ?", key...)
		return err
	})
	return wrap.Err(err, "forgetting the unknown target %s of %s", topic, intake)
}

func (in Intake) livesFor(ctx context.Context, tx *sql.Tx, intake, topic string) (bool, error) {
	key, err := in.h.LaneKeyIn(ctx, tx)
	if err != nil {
		return false, err
	}
	slots, err := in.h.Slots(ctx, tx)
	if err != nil {
		return false, err
	}
	// Ended tasks stand in the lane too. Only the first open place of the slots tells where they
	// may be left out: done stays where it is while nobody uses a slot.
	done, first := make([]handle.SlotPos, len(slots)), int64(math.MaxInt64)
	for i, s := range slots {
		done[i] = handle.SlotPos{Slot: s.Slot, Pos: s.Done}
	}
	open, err := in.h.Beyond(ctx, tx, done)
	if err != nil {
		return false, err
	}
	for _, p := range open {
		first = min(first, p.Pos)
	}
	of := " AND seq >> 48 IN (SELECT src FROM sources WHERE sources.topic = ?) LIMIT 1"
	found := func(query string, args ...any) bool {
		_, some, asked := tables.One[int](ctx, tx, query+of, append(args, []byte(intake))...)
		err = asked
		return some || err != nil
	}
	if found("SELECT 1 FROM timers WHERE topic = ? AND state <> ?", []byte(topic), int(task.TimerDeleted)) {
		return true, err
	}
	for _, lane := range key.Lanes(topic) {
		if found("SELECT 1 FROM "+in.h.Dialect.Use("tasks", "lane")+" JOIN slots ON slots.slot = tasks.slot WHERE lane = ? AND pos >= ? AND pos > done AND topic = ?", int64(lane), first, []byte(topic)) {
			return true, err
		}
	}
	return false, nil
}
