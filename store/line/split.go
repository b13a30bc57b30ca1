package line

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	spreads "github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Why a slot is not split now.
var (
	// ErrBusy: the slot has something in flight, or too many tasks that fall due in a moment.
	ErrBusy = errors.New("the slot is busy")
	// ErrNotReady: a slot to which tasks would move has no owner yet.
	ErrNotReady = errors.New("a slot that takes tasks over has no owner yet")
)

const (
	// SplitAhead is how far ahead, ms, all tasks are in place once a slot is split. No claim goes
	// further before the others have followed, so they have that time. splitLeast is the least.
	SplitAhead = 15_000
	splitLeast = 3000
	// splitMost is how many tasks a split looks at, while the slot's tasks wait. splitMoves is how
	// many leave with it, unless more fall due within splitLeast.
	splitMost  = 20_000
	splitMoves = 3000
	// keyBytes is how much of a body is read for its key. For a longer key, the whole body is read.
	keyBytes = 256
)

// timeEnd is the last place that is no held one.
func timeEnd() int64 { return task.Held(0) - 1 }

// Moved is what a step of a change has done.
type Moved struct {
	Added   []handle.Place // where tasks stand now
	Removed []handle.Place // where they stood
	Timers  []int          // slots to which timers went
	// Whole: all of the slot stands where it belongs.
	Whole bool
}

// shifter is one attempt at moving tasks of a slot to where they belong.
type shifter struct {
	h     *handle.Handle
	tx    *sql.Tx
	waits func(seq int64) bool // its owner waits for an answer about a task: that one stays until the answer has come
	slot  handle.Slot          // that they leave, locked or not
	moved Moved
}

// leaver is a task that belongs to another slot.
type leaver struct {
	seq, pos, due int64
	lane          task.Lane
	to            int
	doubt         bool // it may have been delivered, so no caller can change it
}

type shifterRow struct {
	leaver
	replay    int
	topic, id string
	begin     []byte // of the body
}

func scanShifter(r *sql.Rows, v *shifterRow) error {
	return r.Scan(&v.seq, &v.pos, &v.lane, &v.due, &v.replay, &v.topic, &v.id, &v.begin)
}

const shifterColumns = "seq, pos, lane, due, replay, topic, id, SUBSTR(body, 1, 256)"

// leavers returns the rows that belong to another slot.
func (m *shifter) leavers(ctx context.Context, rows []shifterRow) ([]leaver, error) {
	out := make([]leaver, 0, len(rows)/2)
	for _, r := range rows {
		key, ok := schemas.BodyKey(r.begin)
		if !ok && len(r.begin) == keyBytes {
			body, there, err := tables.One[[]byte](ctx, m.tx, "SELECT body FROM tasks WHERE seq = ?", r.seq)
			if err != nil {
				return nil, fmt.Errorf("reading the key of a task: %w", err)
			}
			if !there {
				continue // it has ended or was replaced
			}
			key, ok = schemas.BodyKey(body)
		}
		if r.to = m.home(r.topic, key, task.Hashed(r.seq, r.replay, r.id), ok); r.to != m.slot.Slot {
			out = append(out, r.leaver)
		}
	}
	return out, nil
}

// home is where a key belongs. An unreadable one stays, or goes to slot 0 if its slot is given up.
func (m *shifter) home(topic string, key []byte, id string, known bool) int {
	switch {
	case known:
		return spreads.Of(topic, key, id, m.slot.Target)
	case m.slot.Slot >= m.slot.Target:
		return 0
	}
	return m.slot.Slot
}

// lockRows locks the rows of leavers, before any slot, and leaves out those that have gone on.
func (m *shifter) lockRows(ctx context.Context, leavers []leaver) ([]leaver, error) {
	type at struct{ seq, pos int64 }
	slices.SortFunc(leavers, func(a, b leaver) int { return cmp.Compare(a.seq, b.seq) })
	rows, err := tables.FetchIn(ctx, m.tx, func(r *sql.Rows, v *at) error { return r.Scan(&v.seq, &v.pos) },
		"SELECT seq, pos FROM tasks WHERE seq", seqsOfLeavers(leavers), " AND slot = ? ORDER BY seq"+m.h.Locking(handle.LockExclusive), m.slot.Slot)
	var out []leaver
	for _, r := range rows {
		i, _ := slices.BinarySearchFunc(leavers, r.seq, func(l leaver, seq int64) int { return cmp.Compare(l.seq, seq) })
		if leavers[i].pos == r.pos {
			out = append(out, leavers[i])
		}
	}
	return out, wrap.Err(err, "locking %d tasks that move", len(leavers))
}

func seqsOfLeavers(leavers []leaver) []int64 {
	out := make([]int64, len(leavers))
	for i, l := range leavers {
		out[i] = l.seq
	}
	return out
}

// write moves leavers to their locked slots, at the same place unless claimed there.
func (m *shifter) write(ctx context.Context, leavers []leaver, at map[int]handle.Slot) error {
	type place struct {
		slot  int
		pos   int64 // 0: as it is
		doubt bool
	}
	alike := map[place][]leaver{}
	for _, l := range leavers {
		p := place{slot: l.to, doubt: l.doubt}
		pos := l.pos
		if claimed := at[l.to].Claimed; l.pos <= claimed {
			p.pos, pos = claimed+1, claimed+1
		}
		alike[p] = append(alike[p], l)
		due := pos
		if !task.IsHeld(pos) {
			due = min(l.due, pos)
		}
		m.moved.Removed = append(m.moved.Removed, handle.NewPlace(m.slot.Slot, l.pos, l.seq, l.due))
		m.moved.Added = append(m.moved.Added, handle.NewPlace(l.to, pos, l.seq, due))
	}
	for p, leavers := range alike {
		set, a := "slot = ?", []any{p.slot}
		if p.pos != 0 { // idle is compared before pos changes
			set, a = "slot = ?, idle = CASE WHEN idle = pos THEN ? ELSE 0 END, pos = ?", []any{p.slot, p.pos, p.pos}
		}
		if p.doubt {
			set, a = set+", idle = 0, state = CASE WHEN state = ? THEN ? ELSE state END", append(a, int(task.StateLine), int(task.StateRetry))
		}
		if err := tables.ExecIn(ctx, m.tx, "UPDATE tasks SET "+set+" WHERE seq", seqsOfLeavers(leavers), a...); err != nil {
			return fmt.Errorf("moving %d tasks to slot %d: %w", len(leavers), p.slot, err)
		}
	}
	return nil
}

// Split spreads the keys of a slot over the coming number of slots. Its owner has settled all up to
// claimed, and claims nothing meanwhile: so no first attempt of a key is in flight here when the
// next one is placed elsewhere. Timers go with it, and tasks that fall due soon. The others follow
// with MoveOn, and nobody claims beyond them before. waits is as with MoveOn.
//
// ErrFenced: the slot has another owner, or is unsure. ErrBusy and ErrNotReady: later. Repeating
// the call is harmless: a slot that is split already, or that no key leaves, is left alone.
func (l Line) Split(ctx context.Context, slot int, epoch, claimed, now int64, waits func(seq int64) bool) (Moved, error) {
	ahead, err := l.splitReach(ctx, slot, claimed, now)
	if err != nil {
		return Moved{}, fmt.Errorf("splitting slot %d: %w", slot, err)
	}
	var out Moved
	err = l.h.Transact(ctx, func(tx *sql.Tx) error {
		out = Moved{}
		m := shifter{h: l.h, tx: tx, waits: waits}
		err := m.split(ctx, slot, epoch, claimed, now, ahead)
		out = m.moved
		return err
	})
	if err != nil {
		return Moved{}, fmt.Errorf("splitting slot %d: %w", slot, err)
	}
	l.h.ForgetSpread()
	return out, nil
}

// splitReach is how far ahead of now, ms, a split looks at tasks of its slot.
func (l Line) splitReach(ctx context.Context, slot int, claimed, now int64) (int64, error) {
	pos, more, err := l.Nth(ctx, Range{Slot: slot, From: claimed, To: now + SplitAhead}, splitMost)
	switch {
	case err != nil || !more:
		return SplitAhead, err
	case pos-now <= splitLeast:
		return 0, ErrBusy
	}
	return pos - 1 - now, nil
}

func (m *shifter) split(ctx context.Context, slot int, epoch, claimed, now, ahead int64) error {
	rows, err := tables.Fetch(ctx, m.tx, handle.ScanSlot, "SELECT "+m.h.SlotColumns()+" FROM slots ORDER BY slot")
	if err != nil {
		return err
	}
	if slot >= len(rows) {
		return nil
	}
	m.slot = rows[slot]
	if !spreads.Leaving(slot, m.slot.Base, m.slot.Target) || m.slot.Split() {
		return nil
	}
	timers, err := m.lockTimers(ctx)
	if err != nil {
		return err
	}
	if _, err := m.near(ctx, claimed, now+ahead, true); err != nil { // before slots, as everybody does
		return err
	}
	at, err := m.lockSplit(ctx, epoch, claimed, len(rows))
	if err != nil {
		return err
	}
	least := max(now, claimed)
	for _, s := range at {
		if s.Slot != slot {
			least = max(least, s.Claimed)
		}
	}
	to := max(now+ahead, least+splitLeast)
	near, err := m.near(ctx, claimed, to, false) // nobody adds any now
	if err != nil {
		return err
	}
	near, to = nearest(near, to, least+splitLeast)
	if err := m.write(ctx, near, at); err != nil {
		return err
	}
	if err := m.moveTimers(ctx, timers, at); err != nil {
		return err
	}
	turn := handle.NextTurn(slices.Collect(maps.Values(at)))
	if err := tables.ExecIn(ctx, m.tx, "UPDATE slots SET turn = ? WHERE slot", slices.Collect(maps.Keys(at)), turn); err != nil {
		return err
	}
	_, err = m.tx.ExecContext(ctx, "UPDATE slots SET spread = target, moved = ?, moved_held = ? WHERE slot = ?", to, timeEnd(), slot)
	return err
}

// nearest returns the tasks to move with a split, and how far: up to a place, but beyond least at
// most splitMoves of them.
func nearest(near []leaver, to, least int64) ([]leaver, int64) {
	slices.SortFunc(near, func(a, b leaver) int { return cmp.Compare(a.pos, b.pos) })
	if len(near) <= splitMoves {
		return near, to
	}
	to = max(near[splitMoves].pos-1, least)
	n, _ := slices.BinarySearchFunc(near, to+1, func(l leaver, pos int64) int { return cmp.Compare(l.pos, pos) })
	return near[:n], to
}

// near reads the leavers of a piece of the slot, and locks their rows.
func (m *shifter) near(ctx context.Context, from, to int64, lock bool) ([]leaver, error) {
	rows, err := tables.Fetch(ctx, m.tx, scanShifter, "SELECT "+shifterColumns+" FROM tasks WHERE slot = ? AND pos > ? AND pos <= ?", m.slot.Slot, from, to)
	if err != nil {
		return nil, fmt.Errorf("reading what is due soon: %w", err)
	}
	leavers, err := m.leavers(ctx, rows)
	leavers = slices.DeleteFunc(leavers, func(l leaver) bool { return m.waits(l.seq) })
	if err != nil || !lock {
		return leavers, err
	}
	return m.lockRows(ctx, leavers)
}

// lockSplit locks the slot and its keys' new slots, and verifies that a split is possible.
func (m *shifter) lockSplit(ctx context.Context, epoch, claimed int64, rows int) (map[int]handle.Slot, error) {
	set := handle.SlotSet{}
	set.Add(m.slot.Slot)
	if m.slot.Target > m.slot.Base { // to new slots
		for slot := m.slot.Base; slot < min(m.slot.Target, rows); slot++ {
			set.Add(slot)
		}
	} else {
		for slot := range m.slot.Target {
			set.Add(slot)
		}
	}
	at, err := m.h.LockSlots(ctx, m.tx, set, handle.LockExclusive)
	if err != nil {
		return nil, err
	}
	now := at[m.slot.Slot]
	switch {
	case !m.h.Conditions.HeldUnder(now, epoch), now.Unsure:
		return nil, handle.ErrFenced
	case now.Base != m.slot.Base || now.Target != m.slot.Target || now.Split():
		return nil, handle.ErrSpread
	case !m.h.Conditions.Idle(now, claimed):
		return nil, ErrBusy
	}
	for _, s := range at {
		if s.Owner == "" {
			return nil, ErrNotReady
		}
	}
	return at, nil
}

type movingTimer struct {
	ident [16]byte
	to    int
}

// lockTimers locks the timers that leave, before tasks and slots.
func (m *shifter) lockTimers(ctx context.Context) (map[[16]byte]int, error) {
	leaving, err := m.timersLeaving(ctx)
	if err != nil || len(leaving) == 0 {
		return nil, err
	}
	known, keys := make(map[[16]byte]int, len(leaving)), make([]any, len(leaving))
	for i, t := range leaving {
		known[t.ident], keys[i] = t.to, t.ident[:]
	}
	_, err = tables.FetchIn(ctx, m.tx, func(r *sql.Rows, key *[]byte) error { return r.Scan(key) }, "SELECT ident FROM timers WHERE ident", keys, m.h.Locking(handle.LockExclusive))
	return known, wrap.Err(err, "locking %d timers that move", len(leaving))
}

func (m *shifter) timersLeaving(ctx context.Context) ([]movingTimer, error) {
	type row struct {
		ident     []byte
		topic, id string
		begin     []byte
	}
	rows, err := tables.Fetch(ctx, m.tx, func(r *sql.Rows, v *row) error { return r.Scan(&v.ident, &v.topic, &v.id, &v.begin) },
		"SELECT ident, topic, id, SUBSTR(body, 1, 256) FROM timers WHERE slot = ? ORDER BY ident", m.slot.Slot)
	if err != nil {
		return nil, fmt.Errorf("reading the timers of the slot: %w", err)
	}
	var out []movingTimer
	for _, r := range rows {
		key, ok := schemas.BodyKey(r.begin)
		if !ok && len(r.begin) == keyBytes {
			body, _, err := tables.One[[]byte](ctx, m.tx, "SELECT body FROM timers WHERE ident = ?", r.ident)
			if err != nil {
				return nil, fmt.Errorf("reading the key of a timer: %w", err)
			}
			key, ok = schemas.BodyKey(body)
		}
		if to := m.home(r.topic, key, r.id, ok); to != m.slot.Slot {
			out = append(out, movingTimer{[16]byte(r.ident), to})
		}
	}
	return out, nil
}

// moveTimers moves the timers that leave. No run of theirs stands behind both its due time and the
// first free place in the new slot. Later timers are read under the locks of the slots.
func (m *shifter) moveTimers(ctx context.Context, known map[[16]byte]int, at map[int]handle.Slot) error {
	leaving, err := m.timersLeaving(ctx)
	if err != nil {
		return err
	}
	byTo := map[int][]any{}
	for _, t := range leaving {
		if to, locked := known[t.ident]; locked && to != t.to {
			return handle.ErrSpread // set anew meanwhile, with another key
		}
		byTo[t.to] = append(byTo[t.to], t.ident[:])
	}
	for to, keys := range byTo {
		free := at[to].Claimed + 1
		if err := tables.ExecIn(ctx, m.tx, "UPDATE timers SET slot = ?, placed = CASE WHEN placed < ? THEN ? ELSE placed END WHERE ident", keys, to, free, free); err != nil {
			return fmt.Errorf("moving %d timers to slot %d: %w", len(keys), to, err)
		}
		m.moved.Timers = append(m.moved.Timers, to)
	}
	slices.Sort(m.moved.Timers)
	return nil
}

// everywhere is moved of a whole slot: all stands where it belongs.
const everywhere = math.MaxInt64
