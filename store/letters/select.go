package letters

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

const (
	Examined = 5000   // letters that one page looks at, at most
	AtOnce   = 1000   // of them, those that one statement reads
	Counted  = 10_000 // letters that one statement counts
)

// Page is a page of dead letters. The next one begins behind the id Next; 0: this was the last. A
// page can be short or empty without being the last: looking at excluded letters is limited too.
type Page struct {
	IDs  []int64
	Next int64
}

// Select returns the first letters of a filter, at most f.Limit (0: 100).
//
// Where a page ends tells only the number of letters of topics that are not allowed: every letter
// of a stretch is read, whatever the filter says about its content, and looked at here.
func (ls Letters) Select(ctx context.Context, f Filter) (page Page, err error) {
	if f, err = ls.skipOld(ctx, f); err != nil {
		return page, err
	}
	if f.Limit <= 0 {
		f.Limit = 100
	}
	last := int64(0)
	for looked := 0; looked < Examined; {
		n := min(AtOnce, Examined-looked)
		if len(f.match()) == 0 && f.Allowed == nil {
			n = min(n, f.Limit-len(page.IDs)+1) // all of them are wanted
		}
		rows, next, err := ls.stretch(ctx, f, n)
		if err != nil {
			return Page{}, fmt.Errorf("selecting dead letters: %w", err)
		}
		for _, l := range rows {
			if !l.matches || f.Allowed != nil && !f.Allowed(l.topic) {
				continue
			}
			if len(page.IDs) == f.Limit {
				page.Next = page.IDs[f.Limit-1]
				return page, nil
			}
			page.IDs = append(page.IDs, l.id)
		}
		if next == 0 {
			return page, nil
		}
		looked += n
		f, last = f.Behind(next), next
	}
	page.Next = last
	return page, nil
}

// Behind is the filter of the page behind an id.
func (f Filter) Behind(id int64) Filter {
	if f.Newest {
		f.UpTo = id - 1
	} else {
		f.After = id
	}
	return f
}

type head struct {
	id      int64
	topic   string
	matches bool
}

// stretch reads the next n letters of the index that the filter narrows most. next is the id behind
// which to go on; 0: these were the last.
func (ls Letters) stretch(ctx context.Context, f Filter, n int) (rows []head, next int64, err error) {
	tagged := f.Tag != ""
	if tagged {
		ids, err := ls.tagged(ctx, f, n)
		if err != nil || len(ids) == 0 {
			return nil, 0, err
		}
		if len(ids) == n {
			next = ids[n-1]
		}
		f.IDs = ids
	}
	query, a := ls.PageQuery(f, n)
	rows, err = tables.Ask(ctx, ls.h.Reads(), func(r *sql.Rows, l *head) error { return r.Scan(&l.id, &l.topic, &l.matches) }, query, a...)
	if !tagged && len(rows) == n {
		next = rows[n-1].id
	}
	if f.Newest && next == 1 { // ids begin at 1
		next = 0
	}
	return rows, next, err
}

// tagged returns the ids of the next n letters with the filter's tag. A letter may be gone by now.
func (ls Letters) tagged(ctx context.Context, f Filter, n int) ([]int64, error) {
	where, a := "kind = ? AND tag = ? AND pos > ?", []any{handle.TagOfLetter, []byte(f.Tag), f.After}
	if f.UpTo > 0 {
		where, a = where+" AND pos <= ?", append(a, f.UpTo)
	}
	if len(f.IDs) > 0 {
		where, a = where+" AND pos IN ("+tables.Marks(len(f.IDs))+")", append(a, tables.Args(f.IDs)...)
	}
	return tables.Ask(ctx, ls.h.Reads(), func(r *sql.Rows, id *int64) error { return r.Scan(id) }, "SELECT pos FROM tags WHERE "+where+" ORDER BY pos"+f.order()+" LIMIT ?", append(a, n)...)
}

// PageQuery reads the id and topic of the next n letters, and whether the filter selects each.
func (ls Letters) PageQuery(f Filter, n int) (query string, a []any) {
	query, a = ls.query(f, "id, topic, COALESCE("+f.matchSQL()+", 0)")
	return query, append(a, n)
}

// query is a query for the next letters of the index that the filter narrows most. Their number is
// the last argument.
func (ls Letters) query(f Filter, columns string) (query string, a []any) {
	for _, c := range f.match() {
		a = append(a, c.args...)
	}
	index, where := f.index()
	var conditions []string
	for _, c := range where {
		conditions, a = append(conditions, c.sql), append(a, c.args...)
	}
	table := "dead_letters"
	if index != "" {
		table = ls.h.Dialect.Use(table, index)
	}
	return "SELECT " + columns + " FROM " + table + " WHERE " + strings.Join(conditions, " AND ") + " ORDER BY id" + f.order() + " LIMIT ?", a
}

func (f Filter) order() string {
	if f.Newest {
		return " DESC"
	}
	return ""
}

type condition struct {
	sql  string
	args []any
}

// index returns the index that narrows the filter most, and its conditions. "": the primary key.
func (f Filter) index() (name string, where []condition) {
	where = []condition{{"id > ?", []any{f.After}}}
	add := func(sql string, args ...any) { where = append(where, condition{sql, args}) }
	if f.UpTo > 0 {
		add("id <= ?", f.UpTo)
	}
	switch {
	case len(f.IDs) > 0:
		add("id IN ("+tables.Marks(len(f.IDs))+")", tables.Args(f.IDs)...)
	case f.TaskID != "":
		name = "task"
		add("task_id = ?", []byte(f.TaskID))
		if f.Topic != "" {
			add("topic = ?", []byte(f.Topic))
		}
	case f.Topic != "":
		name = "topic"
		add("topic = ?", []byte(f.Topic))
	case f.Kind != "" && !f.Replayed && f.Allowed == nil:
		name = "kind"
		add("kind = ? AND replayed_at = 0", []byte(f.Kind))
	}
	return name, where
}

// match returns what index leaves of the filter.
func (f Filter) match() (rest []condition) {
	add := func(set bool, sql string, args ...any) {
		if set {
			rest = append(rest, condition{sql, args})
		}
	}
	index, _ := f.index()
	add(f.Kind != "" && index != "kind", "kind = ?", []byte(f.Kind))
	add(!f.Replayed && index != "kind", "replayed_at = 0")
	add(f.Replayed && f.Settled > 0, "replayed_at < ?", f.Settled)
	add(f.Topic != "" && len(f.IDs) > 0, "topic = ?", []byte(f.Topic))
	add(f.TaskID != "" && len(f.IDs) > 0, "task_id = ?", []byte(f.TaskID))
	like := "%" + strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(f.Reason) + "%"
	add(f.Reason != "", "CAST(reason AS CHAR) LIKE ? ESCAPE '!'", like)
	add(f.Since > 0, "died_at >= ?", f.Since)
	add(f.Until > 0, "died_at < ?", f.Until)
	return rest
}

func (f Filter) matchSQL() string {
	all := []string{"1 = 1"}
	for _, c := range f.match() {
		all = append(all, c.sql)
	}
	return "(" + strings.Join(all, " AND ") + ")"
}

// FirstSince reads the index on died_at only: for a bare MIN(id), SQLite would walk the table.
const FirstSince = "SELECT COALESCE(MIN(+id), ?) FROM dead_letters WHERE died_at >= ?"

// skipOld makes a run begin at the first letter since f.Since, without reading all older ones. Only
// the first page needs this.
func (ls Letters) skipOld(ctx context.Context, f Filter) (Filter, error) {
	if f.Since <= 0 || f.After > 0 {
		return f, nil
	}
	first, err := tables.Ask(ctx, ls.h.Reads(), func(r *sql.Rows, id *int64) error { return r.Scan(id) }, FirstSince, int64(math.MaxInt64), f.Since)
	if err != nil || len(first) == 0 {
		return f, fmt.Errorf("looking for the first letter that died since: %w", err)
	}
	f.After = first[0] - 1
	return f, nil
}

// Count counts the dead letters of the filter, whatever its Limit, for as long as within says (0:
// until all are counted). next is the id after which to go on; 0: all are counted.
func (ls Letters) Count(ctx context.Context, f Filter, within time.Duration) (n, next int64, err error) {
	if f, err = ls.skipOld(ctx, f); err != nil {
		return 0, 0, err
	}
	if f.Newest = false; f.Tag != "" {
		return ls.countTagged(ctx, f, within)
	}
	type part struct{ looked, last, n int64 }
	for began := time.Now(); ; {
		query, a := ls.query(f, "id, COALESCE("+f.matchSQL()+", 0) AS matches")
		rows, err := tables.Ask(ctx, ls.h.Reads(), func(r *sql.Rows, p *part) error { return r.Scan(&p.looked, &p.last, &p.n) },
			"SELECT COUNT(*), COALESCE(MAX(id), 0), COALESCE(SUM(matches), 0) FROM ("+query+") AS letters", append(a, Counted)...)
		if err != nil || len(rows) == 0 {
			return 0, 0, fmt.Errorf("counting dead letters: %w", err)
		}
		n += rows[0].n
		if rows[0].looked < Counted {
			return n, 0, nil
		}
		f.After = rows[0].last
		if within > 0 && time.Since(began) >= within {
			return n, f.After, nil
		}
	}
}

func (ls Letters) countTagged(ctx context.Context, f Filter, within time.Duration) (n, next int64, err error) {
	for began := time.Now(); ; {
		rows, next, err := ls.stretch(ctx, f, AtOnce)
		if err != nil {
			return 0, 0, fmt.Errorf("counting dead letters: %w", err)
		}
		for _, l := range rows {
			if l.matches {
				n++
			}
		}
		if next == 0 || within > 0 && time.Since(began) >= within {
			return n, next, nil
		}
		f.After = next
	}
}

// CountDiedAgain counts the letters of the filter that were replayed at or after since, Unix ms,
// and before f.Settled where it is set, and whose tasks have died again. It looks at all letters
// from since on.
func (ls Letters) CountDiedAgain(ctx context.Context, f Filter, since int64) (n int64, err error) {
	const skew = 60_000 // between the clocks that stamp replays and deaths, ms
	from, err := ls.skipOld(ctx, Filter{Since: since - skew})
	type pair struct{ later, before int64 }
	for more := true; more && err == nil; {
		var again []pair
		again, err = tables.Ask(ctx, ls.h.Reads(), func(r *sql.Rows, p *pair) error { return r.Scan(&p.later, &p.before) },
			"SELECT later.id, COALESCE(was.id, 0) FROM (SELECT id, seq, replay FROM dead_letters WHERE id > ? ORDER BY id LIMIT ?) AS later"+
				" LEFT JOIN dead_letters was ON was.seq = later.seq AND was.replay = later.replay - 1 AND was.replayed_at >= ? ORDER BY later.id", from.After, AtOnce, since)
		selected := Filter{Kind: f.Kind, Topic: f.Topic, TaskID: f.TaskID, Tag: f.Tag, Reason: f.Reason, Since: f.Since, Until: f.Until, Replayed: true, Settled: f.Settled}
		for _, p := range again {
			if from.After = p.later; p.before > 0 && (len(f.IDs) == 0 || slices.Contains(f.IDs, p.before)) {
				selected.IDs = append(selected.IDs, p.before)
			}
		}
		if more = len(again) == AtOnce; len(selected.IDs) > 0 && err == nil {
			var some int64
			some, _, err = ls.Count(ctx, selected, 0)
			n += some
		}
	}
	return n, wrap.Err(err, "counting the letters that have died again")
}
