package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
)

// part is a page of one database, in order. more is where the next one begins; nil: this was the
// last.
type part[T, P any] struct {
	items []T
	more  *P
}

// merged takes the first items of all parts. Behind the end of a part that is not the last, nothing
// is taken: that database may have items that come before. Items at one place stay on one page.
func merged[T, P any](parts []part[T, P], limit int, place func(T) P, order func(a, b P) int) (items []T, more *P) {
	for _, p := range parts {
		if p.more != nil && (more == nil || order(*p.more, *more) < 0) {
			more = p.more
		}
	}
	for _, p := range parts {
		for _, item := range p.items {
			if more == nil || order(place(item), *more) <= 0 {
				items = append(items, item)
			}
		}
	}
	slices.SortStableFunc(items, func(a, b T) int { return order(place(a), place(b)) })
	for limit > 0 && limit < len(items) && order(place(items[limit]), place(items[limit-1])) == 0 {
		limit++
	}
	if limit > 0 && limit < len(items) {
		last := place(items[limit-1])
		return items[:limit], &last
	}
	return items, more
}

// homeward removes items that another item of the same name repeats: of a target that moves, or has
// moved, two databases may have one. The home's stays.
func homeward[T any](d *databases, items []T, name func(T) any, target func(T) string, of func(T) *Member) []T {
	at := map[any]int{}
	var out []T
	for _, item := range items {
		i, twice := at[name(item)]
		switch {
		case !twice:
			at[name(item)] = len(out)
			out = append(out, item)
		case d.isHome(of(item), target(item)):
			out[i] = item
		}
	}
	return out
}

// noCursor is the mistake of a cursor that is none of ours.
func noCursor(text string) error {
	return wrong("cursor", text, "is none that a list has answered: give back the one of the page before, or leave it out")
}

// from is an item of a database.
type from[T any] struct {
	*Member
	item T
}

func fromAll[T any](m *Member, items []T) []from[T] {
	out := make([]from[T], 0, len(items))
	for _, item := range items {
		out = append(out, from[T]{m, item})
	}
	return out
}

// taskCursor is where a page of tasks ends, and in a list by tag the divider of each database.
type taskCursor struct {
	place   look.ListPlace
	settled map[int]int64
}

func (c *taskCursor) format(tag string, members []*Member) string {
	text := fmt.Sprintf("%d.%d.%d", c.place.Pos, c.place.Lane, c.place.Seq)
	for _, m := range members {
		if tag != "" {
			text += "." + strconv.FormatInt(c.settled[m.Number], 10)
		}
	}
	return text
}

func parseTaskCursor(text, tag string, members []*Member) (*taskCursor, error) {
	if text == "" {
		return nil, nil // the first page has no cursor
	}
	c := &taskCursor{settled: map[int]int64{}}
	fields := strings.Split(text, ".")
	_, _ = fmt.Sscanf(text, "%d.%d.%d", &c.place.Pos, &c.place.Lane, &c.place.Seq)
	for i, m := range members {
		if len(fields) == 3+len(members) {
			c.settled[m.Number], _ = strconv.ParseInt(fields[3+i], 10, 64)
		}
	}
	if c.format(tag, members) != text {
		return nil, noCursor(text)
	}
	return c, nil
}

// after is the place for one database. A divider that is not known, because the database did not
// answer, may be any: it bounds what is read, and not what is shown.
func (c *taskCursor) after(m *Member) *look.ListPlace {
	if c == nil {
		return nil
	}
	out := c.place
	if out.Settled = c.settled[m.Number]; out.Settled == 0 {
		for _, other := range c.settled {
			out.Settled = max(out.Settled, other)
		}
	}
	return &out
}

// Tasks returns a page of tasks: the next due first, or the last ended first.
func (f *Fleet) Tasks(ctx context.Context, w TaskFilter) (out Tasks, err error) {
	if l := f.alone(); l != nil {
		return l.Tasks(ctx, w)
	}
	if w.ID != "" {
		return f.tasksWithID(ctx, w)
	}
	among := f.among(w.Topic)
	cursor, err := parseTaskCursor(w.Cursor, w.Tag, among)
	if err != nil {
		return Tasks{}, err
	}
	replies, missing, err := each(ctx, f.databases, w.Topic, func(ctx context.Context, l *Local, m *Member) (look.ListPage, error) {
		return l.tasksAfter(ctx, w, cursor.after(m))
	})
	if err != nil {
		return Tasks{}, err
	}
	next := taskCursor{settled: map[int]int64{}}
	var parts []part[from[look.View], look.ListPlace]
	for _, r := range replies {
		parts = append(parts, part[from[look.View], look.ListPlace]{fromAll(r.Member, r.got.Tasks), r.got.More})
		next.settled[r.Number] = r.got.Settled
	}
	found, more := merged(parts, w.Limit, func(v from[look.View]) look.ListPlace { return v.item.Entry }, func(a, b look.ListPlace) int {
		if w.Ended || look.EndsIn(w.State) {
			return b.Compare(a)
		}
		return a.Compare(b)
	})
	if more != nil {
		next.place = *more
		out.Cursor = next.format(w.Tag, among)
	}
	type name struct {
		topic, id string
		seq       int64
	}
	found = homeward(f.databases, found, func(v from[look.View]) any { return name{v.item.Topic, v.item.ID, v.item.Seq} },
		func(v from[look.View]) string { return v.item.Topic }, func(v from[look.View]) *Member { return v.Member })
	out.Tasks, out.Missing = make([]Task, 0, len(found)), missing
	for _, v := range found {
		out.Tasks = append(out.Tasks, newTask(v.item, w.Content))
	}
	return out, nil
}

// tasksWithID goes by target, as the list of one database does.
func (f *Fleet) tasksWithID(ctx context.Context, w TaskFilter) (out Tasks, err error) {
	replies, missing, err := each(ctx, f.databases, w.Topic, func(ctx context.Context, l *Local, _ *Member) (Tasks, error) { return l.Tasks(ctx, w) })
	if err != nil {
		return Tasks{}, err
	}
	var found []from[Task]
	for _, r := range replies {
		found = append(found, fromAll(r.Member, r.got.Tasks)...)
	}
	found = homeward(f.databases, found, func(t from[Task]) any { return t.item.Topic }, func(t from[Task]) string { return t.item.Topic }, func(t from[Task]) *Member { return t.Member })
	slices.SortFunc(found, func(a, b from[Task]) int { return cmp.Compare(a.item.Topic, b.item.Topic) })
	out.Tasks, out.Missing = make([]Task, 0, len(found)), missing
	for _, t := range found {
		out.Tasks = append(out.Tasks, t.item)
	}
	return out, nil
}

// Timers returns a page of timers, in the order of topics and ids.
func (f *fleetTimers) Timers(ctx context.Context, w TimerFilter) (out Timers, err error) {
	if l := f.alone(); l != nil {
		return l.Timers(ctx, w)
	}
	replies, missing, err := each(ctx, f.databases, w.Topic, func(ctx context.Context, l *Local, _ *Member) (Timers, error) { return l.Timers(ctx, w) })
	if err != nil {
		return Timers{}, err
	}
	var parts []part[from[Timer], look.TimerName]
	for _, r := range replies {
		more, _ := parseTimerCursor(r.got.Cursor) // it is ours
		parts = append(parts, part[from[Timer], look.TimerName]{fromAll(r.Member, r.got.Timers), more})
	}
	named := func(t from[Timer]) look.TimerName { return look.TimerName{Topic: t.item.Topic, ID: t.item.ID} }
	found, more := merged(parts, w.Limit, named, func(a, b look.TimerName) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID))
	})
	found = homeward(f.databases, found, func(t from[Timer]) any { return named(t) }, func(t from[Timer]) string { return t.item.Topic }, func(t from[Timer]) *Member { return t.Member })
	out.Timers, out.Cursor, out.Missing = make([]Timer, 0, len(found)), formatTimerCursor(more), missing
	for _, t := range found {
		out.Timers = append(out.Timers, t.item)
	}
	return out, nil
}

func formatTimerCursor(p *look.TimerName) string {
	if p == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(p.Topic + "\x00" + p.ID))
}

func parseTimerCursor(text string) (*look.TimerName, bool) {
	name, err := base64.RawURLEncoding.DecodeString(text)
	topic, id, found := strings.Cut(string(name), "\x00")
	if err != nil || !found {
		return nil, false
	}
	return &look.TimerName{Topic: topic, ID: id}, true
}

// Targets lists the targets with a policy, by name, and those with tasks still held. The policies
// in a target's former homes are no more in force.
func (f *Fleet) Targets(ctx context.Context, w TargetFilter) (out Targets, err error) {
	if l := f.alone(); l != nil {
		return l.Targets(ctx, w)
	}
	replies, missing, err := each(ctx, f.databases, "", func(ctx context.Context, l *Local, _ *Member) (Targets, error) { return l.Targets(ctx, w) })
	if err != nil {
		return Targets{}, err
	}
	var parts []part[TargetPolicy, string]
	for _, r := range replies {
		p := part[TargetPolicy, string]{}
		for _, t := range r.got.Targets {
			if f.isHome(r.Member, t.Topic) {
				p.items = append(p.items, t)
			}
		}
		if r.got.Cursor != "" {
			p.more = &r.got.Cursor
		}
		parts = append(parts, p)
	}
	found, more := merged(parts, w.Limit, func(t TargetPolicy) string { return t.Topic }, func(a, b string) int { return cmp.Compare(a, b) })
	if w.Like != "" {
		found = nearest(schemas.TargetName(w.Like), found)
	}
	out.Targets, out.Missing = append([]TargetPolicy{}, found...), missing
	if more != nil {
		out.Cursor = *more
	}
	return out, nil
}

// nearest returns the target of a name, or those with a similar one.
func nearest(name string, found []TargetPolicy) (out []TargetPolicy) {
	var names []string
	known := map[string]TargetPolicy{}
	for _, t := range found {
		known[t.Topic], names = t, append(names, t.Topic)
	}
	if t, ok := known[name]; ok {
		return []TargetPolicy{t}
	}
	for _, topic := range similar(name, names) {
		out = append(out, known[topic])
	}
	return out
}

// Audit returns a page of the audit log, the newest entries first.
func (f *Fleet) Audit(ctx context.Context, w AuditFilter) (out AuditLog, err error) {
	if l := f.alone(); l != nil {
		return l.Audit(ctx, w)
	}
	var after *look.AuditPlace
	if w.Cursor != "" {
		if after, err = parseAuditCursor(w.Cursor); err != nil {
			return AuditLog{}, err
		}
	}
	replies, missing, err := each(ctx, f.databases, w.Topic, func(ctx context.Context, l *Local, m *Member) (AuditLog, error) {
		mine := w
		if after != nil {
			mine.Cursor = formatAuditCursor(m.auditPlace(*after))
		}
		page, err := l.Audit(ctx, mine)
		for i := range page.Entries {
			page.Entries[i].ID = m.outside(page.Entries[i].ID)
		}
		return page, err
	})
	if err != nil {
		return AuditLog{}, err
	}
	var parts []part[AuditEntry, look.AuditPlace]
	for _, r := range replies {
		p := part[AuditEntry, look.AuditPlace]{items: r.got.Entries}
		if r.got.Cursor != "" {
			if p.more, err = parseAuditCursor(r.got.Cursor); err != nil {
				return AuditLog{}, err
			}
			p.more.ID = r.outside(p.more.ID)
		}
		parts = append(parts, p)
	}
	found, more := merged(parts, w.Limit, func(e AuditEntry) look.AuditPlace { return look.AuditPlace{At: e.At, ID: e.ID} }, func(a, b look.AuditPlace) int {
		return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(b.ID, a.ID))
	})
	out.Entries, out.Missing = append([]AuditEntry{}, found...), missing
	if more != nil {
		out.Cursor = formatAuditCursor(*more)
	}
	return out, nil
}

// auditPlace is the place for one database: of the entries at the same time, those of databases
// with a higher number come first.
func (m *Member) auditPlace(p look.AuditPlace) look.AuditPlace {
	switch number, own := inside(p.ID); {
	case number == m.Number:
		p.ID = own
	case number > m.Number:
		p.ID = math.MaxInt64
	default:
		p.ID = 0
	}
	return p
}
