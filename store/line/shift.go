package line

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Shift is how far the owner of a split slot has moved tasks to where they belong. It begins at
// done, whatever an earlier owner has done, and again in each life of the database, which may have
// forgotten moves. It is not safe for use by several goroutines.
type Shift struct {
	Slot  int
	Epoch int64

	begun bool
	life  string // of the database, when it was last asked
	time  shiftRange
	held  shiftRange
	left  map[int64]bool // stay behind for now: their owner has them in flight, or waits for an answer about them
}

// NewShift begins to move tasks of a slot held under an epoch.
func NewShift(slot int, epoch int64) *Shift {
	return &Shift{Slot: slot, Epoch: epoch, left: map[int64]bool{}}
}

// Left is how many tasks stay behind for now.
func (sh *Shift) Left() int { return len(sh.left) }

// Waits: nothing is to be moved but the tasks that stay behind for now.
func (sh *Shift) Waits() bool { return sh.time.done && sh.held.done && len(sh.left) > 0 }

type shiftRange struct {
	at   shiftPlace
	to   int64 // its last place
	done bool
}

// shiftPlace is a place in the index on (slot, pos, lane): all up to it is looked at.
type shiftPlace struct {
	pos  int64
	lane task.Lane
	seq  int64 // 0: nothing at pos itself
}

const (
	// shiftPage is how many tasks a step looks at. Settlements wait for its locks.
	shiftPage = 250
	// shiftAhead is how far ahead, ms, tasks are in place before held ones are looked at. Held
	// tasks come first: while they wait here, later ones of their target are held elsewhere too.
	shiftAhead = 10_000
)

// MoveOn moves a page of a split slot's tasks to where they belong: the next due, then held ones,
// then the others. waits names tasks whose owner waits for an answer: they stay for now. Repeat the
// call until Moved.Whole, also after errors. handle.ErrFenced: another owner, or an unsure slot.
func (l Line) MoveOn(ctx context.Context, sh *Shift, now int64, waits func(seq int64) bool) (Moved, error) {
	var out Moved
	var after Shift
	err := l.h.Transact(ctx, func(tx *sql.Tx) error {
		after = *sh
		after.left = map[int64]bool{}
		for seq := range sh.left {
			after.left[seq] = true
		}
		m := shifter{h: l.h, tx: tx, waits: waits}
		err := m.step(ctx, &after, now)
		out = m.moved
		return err
	})
	if err != nil {
		return Moved{}, fmt.Errorf("moving tasks of slot %d on: %w", sh.Slot, err)
	}
	*sh = after
	return out, nil
}

func (m *shifter) step(ctx context.Context, sh *Shift, now int64) error {
	rows, err := tables.Fetch(ctx, m.tx, handle.ScanSlot, "SELECT "+m.h.SlotColumns()+" FROM slots WHERE slot = ?", sh.Slot)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return handle.ErrFenced
	}
	switch m.slot = rows[0]; {
	case !m.h.Conditions.HeldUnder(m.slot, sh.Epoch), m.slot.Unsure:
		return handle.ErrFenced
	case !m.slot.Split() || m.slot.Whole():
		m.moved.Whole = true
		return nil
	}
	var life string
	if err := m.tx.QueryRowContext(ctx, "SELECT "+m.h.Life).Scan(&life); err != nil {
		return fmt.Errorf("asking for the life of the database: %w", err)
	}
	if life != sh.life {
		*sh = *NewShift(sh.Slot, sh.Epoch)
		sh.life = life
	}
	if !sh.begun {
		sh.begun = true
		sh.time = shiftRange{at: shiftPlace{pos: m.slot.Done}, to: timeEnd()}
		sh.held = shiftRange{at: shiftPlace{pos: timeEnd()}, to: everywhere}
	}
	r := &sh.time
	if !sh.held.done && (sh.time.done || sh.time.at.pos > now+shiftAhead) {
		r = &sh.held
	}
	if r.done {
		return m.moveLeft(ctx, sh)
	}
	page, err := m.page(ctx, r)
	if err != nil {
		return err
	}
	leavers, err := m.leavers(ctx, page)
	if err != nil {
		return err
	}
	leavers = slices.DeleteFunc(leavers, func(l leaver) bool {
		if m.waits(l.seq) {
			sh.left[l.seq] = true
		}
		return sh.left[l.seq]
	})
	return m.shift(ctx, sh, leavers, r == &sh.held, r.moved())
}

// page reads the next tasks of a range, and moves it on.
func (m *shifter) page(ctx context.Context, r *shiftRange) ([]shifterRow, error) {
	var out []shifterRow
	read := func(where string, a ...any) error {
		if len(out) >= shiftPage {
			return nil
		}
		rows, err := tables.Fetch(ctx, m.tx, scanShifter, "SELECT "+shifterColumns+" FROM "+m.h.Dialect.Use("tasks", "line")+" WHERE slot = ? AND "+where+" ORDER BY pos, lane, seq LIMIT ?",
			append(append([]any{m.slot.Slot}, a...), shiftPage-len(out))...)
		out = append(out, rows...)
		return err
	}
	at := r.at
	var err error
	if at.seq != 0 { // each in the order of the index: one condition for all would read all of a crowded place again
		err = read("pos = ? AND lane = ? AND seq > ?", at.pos, int64(at.lane), at.seq)
		if err == nil {
			err = read("pos = ? AND lane > ?", at.pos, int64(at.lane))
		}
	}
	if err == nil {
		err = read("pos > ? AND pos <= ?", at.pos, r.to)
	}
	if err != nil {
		return nil, fmt.Errorf("reading tasks of the slot: %w", err)
	}
	if r.done = len(out) < shiftPage; !r.done {
		last := out[len(out)-1]
		r.at = shiftPlace{last.pos, last.lane, last.seq}
	}
	return out, nil
}

// moved is the place up to which all tasks are in place once the range is moved on.
func (r *shiftRange) moved() int64 {
	if r.done {
		return r.to
	}
	return r.at.pos - 1
}

// shift moves leavers, and notes how far the slot's tasks are in place.
func (m *shifter) shift(ctx context.Context, sh *Shift, leavers []leaver, held bool, to int64) error {
	leavers, err := m.lockRows(ctx, leavers)
	if err != nil {
		return err
	}
	at, err := m.lockShift(ctx, sh, leavers)
	if err != nil {
		return err
	}
	claimed := at[sh.Slot].Claimed
	leavers = slices.DeleteFunc(leavers, func(l leaver) bool {
		if l.pos <= claimed {
			sh.left[l.seq] = true
		}
		return l.pos <= claimed
	})
	if err := m.write(ctx, leavers, at); err != nil {
		return err
	}
	column := "moved"
	if held {
		column = "moved_held"
	}
	_, err = m.tx.ExecContext(ctx, "UPDATE slots SET "+column+" = ? WHERE slot = ? AND "+column+" < ?", to, sh.Slot, to)
	return err
}

// lockShift locks the slot against others, and the leavers' slots against claims, all in one order.
// It verifies the owner.
func (m *shifter) lockShift(ctx context.Context, sh *Shift, leavers []leaver) (map[int]handle.Slot, error) {
	below, above := handle.SlotSet{}, handle.SlotSet{}
	for _, l := range leavers {
		if l.to < sh.Slot {
			below.Add(l.to)
		} else {
			above.Add(l.to)
		}
	}
	at := map[int]handle.Slot{}
	for _, step := range []struct {
		set    handle.SlotSet
		clause string
	}{{below, handle.LockShared}, {handle.SlotSet{sh.Slot: {}}, handle.LockExclusive}, {above, handle.LockShared}} {
		rows, err := m.h.LockSlots(ctx, m.tx, step.set, step.clause)
		if err != nil {
			return nil, err
		}
		maps.Copy(at, rows)
	}
	if now := at[sh.Slot]; !m.h.Conditions.HeldUnder(now, sh.Epoch) || now.Unsure {
		return nil, handle.ErrFenced
	}
	return at, nil
}

// moveLeft moves the tasks that need no longer stay behind. Without any left, the slot is whole.
func (m *shifter) moveLeft(ctx context.Context, sh *Shift) error {
	seqs := slices.Sorted(maps.Keys(sh.left))
	clear(sh.left)
	rows, err := tables.FetchIn(ctx, m.tx, scanShifter, "SELECT "+shifterColumns+" FROM tasks WHERE seq", seqs, " AND slot = ? AND pos > ?", m.slot.Slot, m.slot.Done)
	if err != nil {
		return fmt.Errorf("reading tasks that stayed behind: %w", err)
	}
	leavers, err := m.leavers(ctx, rows)
	if err != nil {
		return fmt.Errorf("reading tasks that stayed behind: %w", err)
	}
	going := leavers[:0]
	for _, l := range leavers {
		if l.pos <= m.slot.Claimed || m.waits(l.seq) {
			sh.left[l.seq] = true
		} else {
			going = append(going, l)
		}
	}
	n := len(going)
	if err := m.shift(ctx, sh, going, false, timeEnd()); err != nil {
		return err
	}
	if len(m.moved.Added) < n { // some have gone on meanwhile: look at them again
		for _, seq := range seqs {
			sh.left[seq] = true
		}
	}
	if len(sh.left) > 0 {
		return nil
	}
	m.moved.Whole = true
	_, err = m.tx.ExecContext(ctx, "UPDATE slots SET moved = ?, moved_held = ? WHERE slot = ?", int64(everywhere), int64(everywhere), sh.Slot)
	return err
}

// BringHome moves a page of tasks, and timers, out of a given up slot to where they belong. An
// older program has placed them there, and nobody would deliver them. held tells whether the slot's
// owner is alive, and delivers its claims. Any other owner loses the slot, and no caller can change
// the claimed tasks: some may be delivered. Repeat the call until nothing is moved.
func (l Line) BringHome(ctx context.Context, slot int, held func(handle.Slot) bool) (Moved, error) {
	var out Moved
	err := l.h.Transact(ctx, func(tx *sql.Tx) error {
		m := shifter{h: l.h, tx: tx}
		err := m.bringHome(ctx, slot, held)
		out = m.moved
		return err
	})
	return out, wrap.Err(err, "moving tasks out of slot %d, which was given up", slot)
}

func (m *shifter) bringHome(ctx context.Context, slot int, held func(handle.Slot) bool) error {
	rows, err := tables.Fetch(ctx, m.tx, handle.ScanSlot, "SELECT "+m.h.SlotColumns()+" FROM slots WHERE slot = ?", slot)
	if err != nil || len(rows) == 0 || !rows[0].GivenUp() || rows[0].Changing() {
		return err
	}
	m.slot = rows[0]
	timers, err := m.lockTimers(ctx)
	if err != nil {
		return err
	}
	from := m.slot.Done
	if m.slot.Owner != "" && held(m.slot) {
		from = m.slot.Claimed
	}
	page, err := m.page(ctx, &shiftRange{at: shiftPlace{pos: from}, to: everywhere})
	if err != nil || len(page)+len(timers) == 0 {
		return err
	}
	leavers, err := m.leavers(ctx, page)
	if err != nil {
		return err
	}
	if leavers, err = m.lockRows(ctx, leavers); err != nil {
		return err
	}
	homes := handle.SlotSet{}
	for home := range m.slot.Target {
		homes.Add(home)
	}
	at, err := m.h.LockSlots(ctx, m.tx, homes, handle.LockShared)
	if err != nil {
		return err
	}
	own, err := m.h.LockSlots(ctx, m.tx, handle.SlotSet{slot: {}}, handle.LockExclusive)
	if err != nil {
		return err
	}
	now := own[slot]
	if now.Change != m.slot.Change { // another change has begun, and it moves them
		return nil
	}
	if leavers, err = m.leaveOwner(ctx, leavers, now, held); err != nil {
		return err
	}
	if err := m.write(ctx, leavers, at); err != nil {
		return err
	}
	return m.moveTimers(ctx, timers, at)
}

// leaveOwner returns the leavers not delivered by the owner of the locked, given up slot. A dead
// owner loses the slot: its settlement would count the tasks that left.
func (m *shifter) leaveOwner(ctx context.Context, leavers []leaver, now handle.Slot, held func(handle.Slot) bool) ([]leaver, error) {
	claimed := func(l leaver) bool { return l.pos <= now.Claimed }
	if now.Owner != "" && held(now) {
		return slices.DeleteFunc(leavers, claimed), nil
	}
	if now.Owner != "" {
		if _, err := m.tx.ExecContext(ctx, "UPDATE slots SET owner = ? WHERE slot = ?", []byte{}, now.Slot); err != nil {
			return nil, fmt.Errorf("taking the slot away from %s: %w", now.Owner, err)
		}
	}
	for i := range leavers {
		leavers[i].doubt = claimed(leavers[i])
	}
	return leavers, nil
}
