package line

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Entry is a task in the line without its body, by the (slot, pos) index alone.
type Entry struct {
	slots.Place
	Lane task.Lane
	// Due is known of tasks that may share a later place than their own: of Claimed at the first
	// place of a range, of Doubts where a place has several.
	Due int64
}

// Range is a piece of a slot's line: (From, To].
type Range struct {
	Slot     int
	From, To int64
}

func rangesWhere(ranges []Range) (string, []any) {
	a := make([]any, 0, 3*len(ranges))
	for _, r := range ranges {
		a = append(a, r.Slot, r.From, r.To)
	}
	return strings.Repeat(" OR (slot = ? AND pos > ? AND pos <= ?)", len(ranges))[len(" OR "):], a
}

// Claimed reads a claim's tasks, with the due times at the first places. Only the owner adds or
// removes tasks within a claimed range, so one read after the claim is complete.
func (l Line) Claimed(ctx context.Context, ranges []Range) ([]Entry, error) {
	entries, err := l.Entries(ctx, ranges)
	if err != nil {
		return nil, err
	}
	first := make(map[slots.Pos]bool, len(ranges))
	for _, r := range ranges {
		first[slots.Pos{Slot: r.Slot, Pos: r.From + 1}] = true
	}
	return entries, l.addDues(ctx, entries, func(i int) bool { return first[entries[i].at()] })
}

// mostDues bounds the due times that Doubts reads: about 100 ms of work for the database.
const mostDues = 20_000

// Doubts reads an owner's claimed tasks, with the due times where several share a place. They came
// to a claimed place, or were called back there, and are to go in the order of due times.
func (l Line) Doubts(ctx context.Context, ranges []Range) ([]Entry, error) {
	entries, err := l.Entries(ctx, ranges)
	if err != nil {
		return nil, err
	}
	left := mostDues
	return entries, l.addDues(ctx, entries, func(i int) bool {
		shared := i > 0 && entries[i-1].at() == entries[i].at() || i+1 < len(entries) && entries[i+1].at() == entries[i].at()
		if shared {
			left--
		}
		return shared && left >= 0
	})
}

// Entries reads pieces of lines, ordered by slot, pos and seq, from the index alone.
func (l Line) Entries(ctx context.Context, ranges []Range) ([]Entry, error) {
	var out []Entry
	for part := range slices.Chunk(ranges, tables.MaxRanges) {
		where, a := rangesWhere(part)
		rows, err := tables.Fetch(ctx, l.h.DB, func(r *sql.Rows, e *Entry) error { return r.Scan(&e.Slot, &e.Pos, &e.Seq, &e.Lane) },
			"SELECT slot, pos, seq, lane FROM tasks WHERE "+where, a...)
		if err != nil {
			return nil, fmt.Errorf("reading claimed entries: %w", err)
		}
		out = append(out, rows...)
	}
	slices.SortFunc(out, func(a, b Entry) int { // nearly sorted: the index orders tasks of one place by lane
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Pos, b.Pos), cmp.Compare(a.Seq, b.Seq))
	})
	return out, nil
}

func (e Entry) at() slots.Pos { return slots.Pos{Slot: e.Slot, Pos: e.Pos} }

func (l Line) addDues(ctx context.Context, entries []Entry, wanted func(i int) bool) error {
	bySeq := map[int64]*Entry{}
	var seqs []any
	for i := range entries {
		if wanted(i) {
			e := &entries[i]
			bySeq[e.Seq], seqs = e, append(seqs, e.Seq)
		}
	}
	type due struct{ seq, due int64 }
	dues, err := tables.FetchIn(ctx, l.h.DB, func(r *sql.Rows, d *due) error { return r.Scan(&d.seq, &d.due) }, "SELECT seq, due FROM tasks WHERE seq", seqs, "")
	for _, d := range dues {
		bySeq[d.seq].Due = d.due
	}
	return wrap.Err(err, "reading the due times of %d entries", len(seqs))
}

// Count returns the tasks of each piece, but for empty slots. It reads the index only.
func (l Line) Count(ctx context.Context, ranges []Range) (map[int]int, error) {
	found, err := tallies(ctx, l.h.DB, ranges, "0")
	counts := make(map[int]int, len(found))
	for slot, t := range found {
		counts[slot] = t.Count
	}
	return counts, err
}

func tallies(ctx context.Context, q dialect.Querier, ranges []Range, sum string) (map[int]Tally, error) {
	found := make(map[int]Tally, len(ranges))
	type row struct {
		slot int
		Tally
	}
	for part := range slices.Chunk(ranges, tables.MaxRanges) {
		where, a := rangesWhere(part)
		rows, err := tables.Fetch(ctx, q, func(r *sql.Rows, t *row) error { return r.Scan(&t.slot, &t.Count, &t.Sum) }, "SELECT slot, COUNT(*), "+sum+" FROM tasks WHERE "+where+" GROUP BY slot", a...)
		if err != nil {
			return nil, fmt.Errorf("counting %d ranges: %w", len(ranges), err)
		}
		for _, r := range rows {
			t := found[r.slot]
			found[r.slot] = Tally{t.Count + r.Count, t.Sum + r.Sum}
		}
	}
	return found, nil
}

// Nth returns the place of the n-th task (from 1) of a piece, and whether there are that many. A
// claim up to there takes n tasks, and others at the very same place.
func (l Line) Nth(ctx context.Context, r Range, n int) (pos int64, ok bool, err error) {
	pos, ok, err = tables.One[int64](ctx, l.h.DB, "SELECT pos FROM tasks WHERE slot = ? AND pos > ? AND pos <= ? ORDER BY pos LIMIT 1 OFFSET ?", r.Slot, r.From, r.To, n-1)
	return pos, ok, wrap.Err(err, "measuring slot %d", r.Slot)
}

// Tasks reads tasks with their bodies, in the order of seq, until the bodies reach maxBytes. rest
// are the seqs beyond the limit. A seq that no longer exists is in neither.
func (l Line) Tasks(ctx context.Context, seqs []int64, maxBytes int) (tasks []task.Task, rest []int64, err error) {
	seqs = slices.Sorted(slices.Values(seqs))
	for len(seqs) > 0 && maxBytes > 0 {
		part := seqs[:min(len(seqs), handle.PreparedRows)]
		rows, err := l.tasks(ctx, part, maxBytes)
		if err != nil {
			return nil, nil, fmt.Errorf("reading %d task bodies: %w", len(part), err)
		}
		for i := range rows {
			maxBytes -= len(rows[i].Body)
		}
		tasks = append(tasks, rows...)
		if maxBytes <= 0 {
			next, _ := slices.BinarySearch(seqs, rows[len(rows)-1].Seq+1)
			return tasks, seqs[next:], nil
		}
		seqs = seqs[len(part):]
	}
	return tasks, seqs, nil
}

func (l Line) tasks(ctx context.Context, seqs []int64, maxBytes int) ([]task.Task, error) {
	rows, err := l.h.Query(ctx, "SELECT "+tables.TaskColumns+" FROM tasks WHERE seq IN ("+tables.Marks(len(seqs))+") ORDER BY seq", tables.Args(seqs))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := make([]task.Task, 0, len(seqs))
	for maxBytes > 0 && rows.Next() {
		var t task.Task
		if err := tables.ScanTask(rows, &t); err != nil {
			return nil, err
		}
		maxBytes -= len(t.Body)
		out = append(out, t)
	}
	return out, rows.Err()
}

// Tasks that are held.
type (
	HeldPlace = handle.HeldPlace // a place among a target's held tasks; the zero value is before all
	HeldTask  = handle.HeldTask
)

// HeldTasks returns up to n held tasks behind a place, in the order of their missed releases. They
// stand in all slots, and some may belong to another target of the same lane.
func (l Line) HeldTasks(ctx context.Context, topic string, after HeldPlace, n int) ([]HeldTask, error) {
	out, err := l.h.HeldTasks(ctx, l.h.DB, topic, &after, n)
	return out, wrap.Err(err, "reading held tasks")
}

// Head is a task without its body.
type Head struct {
	Seq     int64
	Slot    int
	Pos     int64
	Due     int64
	State   task.State
	Attempt int
	Topic   string
}

// Heads reads tasks without their bodies. A seq that no longer exists is left out.
func (l Line) Heads(ctx context.Context, seqs []int64) ([]Head, error) {
	out, err := tables.FetchIn(ctx, l.h.DB, func(r *sql.Rows, h *Head) error {
		return r.Scan(&h.Seq, &h.Slot, &h.Pos, &h.Due, &h.State, &h.Attempt, &h.Topic)
	}, "SELECT seq, slot, pos, due, state, attempt, topic FROM tasks WHERE seq", slices.Sorted(slices.Values(seqs)), "")
	return out, wrap.Err(err, "reading %d tasks without their bodies", len(seqs))
}
