package look

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	stdslices "slices"
	"strings"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// ListFilter selects tasks to list.
type ListFilter struct {
	Topic    string
	IDPrefix string
	Tag      string // one of the task's. The order is then that of due times, see beginTag
	State    string // one of View's; "": all that are to come, or all that have ended
	From, To int64  // place in the line, with a tag the due time, at or after, and before, Unix ms; 0: no bound
	Limit    int    // 0: 100
	Ended    bool   // the latest settled ones first, instead of the next to come
	Body     bool   // with their content
	After    *ListPlace
	// Allowed tells whether a task of the topic may be listed. nil: all.
	Allowed func(topic string) bool
}

// ListPlace is where a page ends: a place in the order of all lists.
type ListPlace struct {
	Pos  int64
	Lane task.Lane
	Seq  int64
	// Settled divides the order of a list by tag, see beginTag; 0: no tag. All pages have the first
	// one's: read anew, it may have risen or fallen, and tasks would change sides.
	Settled int64
}

// Compare orders places as a list of coming tasks does.
func (p ListPlace) Compare(o ListPlace) int {
	return cmp.Or(cmp.Compare(p.Pos, o.Pos), cmp.Compare(p.Lane, o.Lane), cmp.Compare(p.Seq, o.Seq))
}

// ListPage is one page. The next one begins at More; nil: this was the last. A page can be short or
// empty without being the last, because looking at excluded tasks is limited too.
type ListPage struct {
	Tasks   []View
	More    *ListPlace
	Settled int64 // see ListPlace
}

// These bound the cost of one page. An entry of an index is 30 bytes; a row without its body about
// 200; bodies are read a few at a time.
const (
	ListExamined  = 5000     // rows
	listBodyBytes = 16 << 20 // of bodies; the one that passes it is still taken
	listBodies    = 16       // rows whose bodies are asked for at once
)

// ErrState: no task is ever in that state.
var ErrState = errors.New("state is none of pending, claimed, waiting_report, waiting_retry, delivered, succeeded, cancelled, stopped, dead")

// endedStates tells which states are those of ended tasks.
var endedStates = map[string]bool{
	"pending": false, "claimed": false, "waiting_report": false, "waiting_retry": false,
	"delivered": true, "succeeded": true, "cancelled": true, "stopped": true, "dead": true,
}

// EndsIn tells whether a state is one of ended tasks.
func EndsIn(state string) bool { return endedStates[state] }

// List reads one page of the tasks that come next, or that were settled last, in the order of
// place. It merges index entries of the topic's lanes, or of the slots' lines. However long the
// lines are, it looks at no more rows than the page and its limits allow.
//
// A page is of one state of the database. A move to another slot leaves a task at its place, or
// puts it at a later one. So no move takes a task from a coming page to a page already read.
func (r Reader) List(ctx context.Context, f ListFilter) (ListPage, error) {
	return r.list(ctx, &lister{f: f})
}

func (r Reader) list(ctx context.Context, l *lister) (page ListPage, err error) {
	l.f.Limit = cmp.Or(max(l.f.Limit, 0), 100)
	if l.f.State != "" {
		ended, known := endedStates[l.f.State]
		if !known {
			return page, ErrState
		}
		l.f.Ended = ended
	}
	err = r.view(ctx, func(v view) error {
		l.view = v
		if err := l.begin(ctx); err != nil {
			return err
		}
		page, err = l.run(ctx)
		if page.Settled = l.settled; err == nil && l.also != nil {
			err = l.also(v, page.Tasks)
		}
		return err
	})
	if err != nil {
		return ListPage{}, fmt.Errorf("listing tasks: %w", err)
	}
	return page, nil
}

// lister merges streams of index entries.
type lister struct {
	view
	f       ListFilter
	streams []*stream
	least   int64                    // the place before which no task is to come; of a list of ended tasks: none
	settled int64                    // see ListPlace
	entries int                      // read from indexes
	looked  int                      // rows
	also    func(view, []View) error // reads more of the same state; nil: nothing
}

// stream is a run of an index: of one slot's line, of one lane, or of a tag.
type stream struct {
	column   string // slot, lane or tag
	value    int64
	tag      []byte
	from, to int64 // places, both included
	offset   int64 // of a tag: how much later a place is in the list than in the table
	after    *ListPlace
	read     []ListPlace // entries that were read and not yet taken
	end      bool
}

// begin opens the streams. Held tasks stand behind all others, by their missed releases.
func (l *lister) begin(ctx context.Context) error {
	l.least = math.MinInt64
	from, to := l.f.From, task.Held(0)-1
	if l.f.To > 0 {
		to = min(to, l.f.To-1)
	}
	if l.f.Topic == "" && l.f.Tag == "" {
		for _, s := range l.slots {
			if l.f.Ended {
				l.add("slot", int64(s.Slot), from, min(to, s.Done))
			} else {
				l.add("slot", int64(s.Slot), max(from, s.Done+1), to)
				l.add("slot", int64(s.Slot), task.Held(l.f.From), task.Held(to))
			}
		}
		if l.f.Ended {
			l.add("slot", task.OutOfLine, from, to)
		}
		return nil
	}
	switch {
	case l.f.Ended:
	case l.f.Tag != "" && l.f.After != nil:
		l.least = l.f.After.Settled // the first page's, for which nobody has to look again
	default:
		if err := l.findLeast(ctx); err != nil || l.least == math.MaxInt64 {
			return err
		}
	}
	if l.f.Tag != "" {
		l.beginTag(max(from, 0), to)
		return nil
	}
	lanes, err := l.h.LaneKeyIn(ctx, l.q)
	for _, lane := range lanes.Lanes(l.f.Topic) {
		l.add("lane", int64(lane), max(from, l.least), to)
		if !l.f.Ended {
			l.add("lane", int64(lane), task.Held(l.f.From), task.Held(to))
		}
	}
	return err
}

func (l *lister) findLeast(ctx context.Context) error {
	l.least = math.MaxInt64
	open, err := l.open(ctx)
	for _, p := range open {
		l.least = min(l.least, p.Pos)
	}
	return err
}

// beginTag opens two streams, because delivered tasks of the tag may be many. Of coming tasks,
// nearly all are due behind the settled part of all slots. The others come again, wait for a
// report, or are held: they come last, as held ones do. Of ended tasks, nearly all were due in the
// settled part, and come first.
func (l *lister) beginTag(from, to int64) {
	switch {
	case l.f.After != nil:
		l.settled = l.f.After.Settled
	case l.f.Ended:
		for _, s := range l.slots {
			l.settled = max(l.settled, s.Done)
		}
	default:
		l.settled = l.least - 1
	}
	l.settled = max(l.settled, 1)
	l.addTag(max(from, l.settled+1), to, 0)
	l.addTag(from, min(to, l.settled), task.Held(0))
}

func (l *lister) add(column string, value, from, to int64) {
	if from <= to {
		l.streams = append(l.streams, &stream{column: column, value: value, from: from, to: to, after: l.f.After})
	}
}

func (l *lister) addTag(from, to, offset int64) {
	if from <= to {
		l.streams = append(l.streams, &stream{column: "tag", tag: []byte(l.f.Tag), from: from + offset, to: to + offset, offset: offset, after: l.f.After})
	}
}

// run takes entries in order, as many as the page has room for, and looks at their rows.
func (l *lister) run(ctx context.Context) (ListPage, error) {
	page, bytes := ListPage{Tasks: []View{}}, 0
	for {
		want := min(l.f.Limit-len(page.Tasks), ListExamined-l.looked)
		if l.f.IDPrefix != "" || l.f.Tag != "" || l.f.State != "" || l.f.Allowed != nil {
			want = min(max(want, 500), ListExamined-l.looked) // many of them may not be wanted
		}
		if l.f.Body {
			want = min(want, listBodies)
		}
		entries, err := l.take(ctx, want)
		if err != nil || len(entries) == 0 {
			return page, err
		}
		l.looked += len(entries)
		rows, err := l.rows(ctx, entries)
		if err != nil {
			return page, err
		}
		for _, e := range entries {
			if v, ok := rows[e.Seq]; ok && l.wanted(v) && (l.f.Tag == "" || handle.TagPos(v.Due) == task.HeldSince(e.Pos)) {
				v.Entry = e
				page.Tasks = append(page.Tasks, v)
				bytes += len(v.Body)
			}
			if len(page.Tasks) == l.f.Limit || bytes >= listBodyBytes {
				page.More = l.endAt(e)
				return page, nil
			}
		}
		if l.looked >= ListExamined {
			page.More = l.endAt(entries[len(entries)-1])
			return page, nil
		}
	}
}

func (l *lister) endAt(e ListPlace) *ListPlace {
	e.Settled = l.settled
	return &e
}

func (l *lister) wanted(v View) bool {
	return (l.f.Topic == "" || v.Topic == l.f.Topic) && strings.HasPrefix(v.ID, l.f.IDPrefix) &&
		(l.f.State == "" || v.State == l.f.State) && endedStates[v.State] == l.f.Ended && (l.f.Allowed == nil || l.f.Allowed(v.Topic))
}

// take is the next n entries of all streams, in order.
func (l *lister) take(ctx context.Context, n int) ([]ListPlace, error) {
	// A stream is asked for its share and some more, so that most are asked once a page.
	share := min(n, max(n/max(len(l.streams), 1)*2, 16))
	var out []ListPlace
	for len(out) < n {
		var first *stream
		for _, s := range l.streams {
			if len(s.read) == 0 && !s.end {
				if err := l.fill(ctx, share); err != nil {
					return nil, err
				}
			}
			if len(s.read) > 0 && (first == nil || l.order(s.read[0], first.read[0]) < 0) {
				first = s
			}
		}
		if first == nil {
			return out, nil
		}
		out, first.read = append(out, first.read[0]), first.read[1:]
	}
	return out, nil
}

func (l *lister) order(a, b ListPlace) int {
	if l.f.Ended {
		return b.Compare(a)
	}
	return a.Compare(b)
}

// fill reads the next n entries of every empty stream, many streams in one statement.
func (l *lister) fill(ctx context.Context, n int) error {
	var empty []*stream
	for _, s := range l.streams {
		if len(s.read) == 0 && !s.end {
			empty = append(empty, s)
		}
	}
	for part := range stdslices.Chunk(empty, 50) {
		var queries []string
		var a []any
		for i, s := range part {
			q, qa := s.query(i, l.f.Ended, n)
			queries, a = append(queries, q...), append(a, qa...)
		}
		type row struct {
			stream int
			at     ListPlace
		}
		rows, err := tables.Ask(ctx, l.q, func(r *sql.Rows, v *row) error { return r.Scan(&v.stream, &v.at.Pos, &v.at.Lane, &v.at.Seq) },
			strings.Join(queries, " UNION ALL "), a...)
		if err != nil {
			return err
		}
		l.entries += len(rows)
		for _, r := range rows {
			r.at.Pos += part[r.stream].offset
			part[r.stream].read = append(part[r.stream].read, r.at)
		}
		for _, s := range part {
			stdslices.SortFunc(s.read, l.order)
			if s.end = len(s.read) < n; len(s.read) > n {
				s.read = s.read[:n] // of three ranges, each may have brought n
			}
			if len(s.read) > 0 {
				s.after = &s.read[len(s.read)-1]
			}
		}
	}
	return nil
}

// query reads n entries behind after, as three ranges. By one condition on three columns, the
// server would read all entries of the same place again for each page.
func (s *stream) query(i int, descending bool, n int) (queries []string, a []any) {
	beyond, order := ">", ""
	if descending {
		beyond, order = "<", " DESC"
	}
	entries, by, value := "pos, lane, seq FROM tasks WHERE "+s.column+" = ?", "pos"+order+", lane"+order+", seq"+order, any(s.value)
	if s.column == "tag" {
		entries, by, value = fmt.Sprintf("pos, 0 AS lane, seq FROM tags WHERE kind = %d AND tag = ?", handle.TagOfTask), "pos"+order+", seq"+order, s.tag
	}
	one := func(where string, values ...any) {
		queries = append(queries, fmt.Sprintf("SELECT * FROM (SELECT %d AS stream, %s AND %s ORDER BY %s LIMIT ?) AS t%d_%d", i, entries, where, by, i, len(queries)))
		a = append(append(append(a, value), values...), n)
	}
	p := s.after
	inside := p != nil && p.Pos >= s.from && p.Pos <= s.to
	from, to := s.from, s.to
	if p != nil && !descending {
		from = max(from, p.Pos+1)
	} else if p != nil {
		to = min(to, p.Pos-1)
	}
	switch {
	case inside && s.column == "tag":
		one("pos = ? AND seq "+beyond+" ?", p.Pos-s.offset, p.Seq)
	case inside && s.column == "lane":
		// The stream's lane stands before, at or behind the page's end as a whole.
		switch c := cmp.Compare(s.value, int64(p.Lane)); {
		case c == 0:
			one("pos = ? AND seq "+beyond+" ?", p.Pos, p.Seq)
		case c > 0 != descending:
			one("pos = ?", p.Pos)
		}
	case inside:
		one("pos = ? AND lane = ? AND seq "+beyond+" ?", p.Pos, int64(p.Lane), p.Seq)
		one("pos = ? AND lane "+beyond+" ?", p.Pos, int64(p.Lane))
	}
	one("pos BETWEEN ? AND ?", from-s.offset, to-s.offset)
	return queries, a
}

// rows reads the tasks of entries, with wanted bodies. It leaves out ended tasks from lists of
// others: with a tag, nearly all may have ended.
func (l *lister) rows(ctx context.Context, entries []ListPlace) (map[int64]View, error) {
	body, open := "''", ""
	if l.f.Body {
		body = "body"
	}
	if !l.f.Ended {
		open = fmt.Sprintf(" AND slot <> %d AND pos >= %d", task.OutOfLine, l.least)
	}
	out := make(map[int64]View, len(entries))
	seqs := make([]int64, 0, len(entries))
	for _, e := range entries {
		seqs = append(seqs, e.Seq)
	}
	err := tables.Chunks(seqs, func(part []int64) error {
		_, err := tables.Ask(ctx, l.q, func(r *sql.Rows, v *View) error {
			var t task.Task
			if err := tables.ScanTask(r, &t); err != nil {
				return err
			}
			*v = viewOf(&t, l.bySlot[t.Slot])
			out[t.Seq] = *v
			return nil
		}, "SELECT "+tables.TaskHead+body+" FROM tasks WHERE seq IN ("+tables.Ints(part)+")"+open)
		return err
	})
	return out, err
}
