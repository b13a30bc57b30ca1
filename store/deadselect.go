package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/notyet/notyet/store/internal/tables"
)

const (
	deadExamined = 5000   // letters that one page looks at, at most
	deadAtOnce   = 1000   // of them, those that one statement reads
	deadCounted  = 10_000 // letters that one statement counts
)

// DeadPage is a page of dead letters. Next is the id after which the next one begins; 0: this was the
// last. A page can be short or empty without being the last, because looking at letters that the filter
// excludes is limited too.
type DeadPage struct {
	IDs  []int64
	Next int64
}

// SelectDead returns the first letters that a filter selects, at most f.Limit (0: 100).
//
// Where a page ends says nothing about letters of topics that are not allowed but how many there are in
// all: every letter of a stretch is read, whatever the filter says about its content, and looked at here.
func (s *Store) SelectDead(ctx context.Context, f DeadFilter) (page DeadPage, err error) {
	if f, err = s.skipOld(ctx, f); err != nil {
		return page, err
	}
	if f.Limit <= 0 {
		f.Limit = 100
	}
	for looked := 0; looked < deadExamined; {
		n := min(deadAtOnce, deadExamined-looked)
		if len(f.match()) == 0 && f.Allowed == nil {
			n = min(n, f.Limit-len(page.IDs)+1) // all of them are wanted
		}
		rows, err := s.deadStretch(ctx, f, n)
		if err != nil {
			return DeadPage{}, fmt.Errorf("selecting dead letters: %w", err)
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
		if len(rows) < n {
			return page, nil
		}
		looked += n
		f.After = rows[n-1].id
	}
	page.Next = f.After
	return page, nil
}

// deadHead is a dead letter that was looked at.
type deadHead struct {
	id      int64
	topic   string
	matches bool
}

// deadStretch reads the next n letters of the index that the filter narrows most.
func (s *Store) deadStretch(ctx context.Context, f DeadFilter, n int) ([]deadHead, error) {
	query, a := s.deadQuery(f, "id, topic, COALESCE("+f.matchSQL()+", 0)")
	return tables.Ask(ctx, s.db, func(r *sql.Rows, l *deadHead) error { return r.Scan(&l.id, &l.topic, &l.matches) }, query, append(a, n)...)
}

// deadQuery is a query for the next letters of the index that the filter narrows most. The number of
// them is its last argument.
func (s *Store) deadQuery(f DeadFilter, columns string) (query string, a []any) {
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
		table = s.dialect.Use(table, index)
	}
	return "SELECT " + columns + " FROM " + table + " WHERE " + strings.Join(conditions, " AND ") + " ORDER BY id LIMIT ?", a
}

// condition is a part of a filter.
type condition struct {
	sql  string
	args []any
}

// index returns the index that narrows the filter most, with what it is asked for. "": the primary key.
func (f DeadFilter) index() (name string, where []condition) {
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
func (f DeadFilter) match() (rest []condition) {
	add := func(set bool, sql string, args ...any) {
		if set {
			rest = append(rest, condition{sql, args})
		}
	}
	index, _ := f.index()
	add(f.Kind != "" && index != "kind", "kind = ?", []byte(f.Kind))
	add(!f.Replayed && index != "kind", "replayed_at = 0")
	add(f.Topic != "" && len(f.IDs) > 0, "topic = ?", []byte(f.Topic))
	add(f.TaskID != "" && len(f.IDs) > 0, "task_id = ?", []byte(f.TaskID))
	like := "%" + strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(f.Reason) + "%"
	add(f.Reason != "", "CAST(reason AS CHAR) LIKE ? ESCAPE '!'", like)
	add(f.Since > 0, "died_at >= ?", f.Since)
	add(f.Until > 0, "died_at < ?", f.Until)
	return rest
}

func (f DeadFilter) matchSQL() string {
	all := []string{"1 = 1"}
	for _, c := range f.match() {
		all = append(all, c.sql)
	}
	return "(" + strings.Join(all, " AND ") + ")"
}

// firstSince reads the index on died_at, and only that: for a bare MIN(id), SQLite would walk the table.
const firstSince = "SELECT COALESCE(MIN(+id), ?) FROM dead_letters WHERE died_at >= ?"

// skipOld makes a run begin at the first letter that died at or after f.Since. Otherwise it would
// read all older ones. Only the first page needs this.
func (s *Store) skipOld(ctx context.Context, f DeadFilter) (DeadFilter, error) {
	if f.Since <= 0 || f.After > 0 {
		return f, nil
	}
	first, err := tables.Ask(ctx, s.db, func(r *sql.Rows, id *int64) error { return r.Scan(id) }, firstSince, int64(math.MaxInt64), f.Since)
	if err != nil || len(first) == 0 {
		return f, fmt.Errorf("looking for the first letter that died since: %w", err)
	}
	f.After = first[0] - 1
	return f, nil
}

// CountDead counts the dead letters that the filter selects, whatever its Limit, for as long as within
// says (0: until all are counted). next is the id after which to go on; 0: all are counted.
func (s *Store) CountDead(ctx context.Context, f DeadFilter, within time.Duration) (n, next int64, err error) {
	if f, err = s.skipOld(ctx, f); err != nil {
		return 0, 0, err
	}
	type part struct{ looked, last, n int64 }
	for began := time.Now(); ; {
		query, a := s.deadQuery(f, "id, COALESCE("+f.matchSQL()+", 0) AS matches")
		rows, err := tables.Ask(ctx, s.db, func(r *sql.Rows, p *part) error { return r.Scan(&p.looked, &p.last, &p.n) },
			"SELECT COUNT(*), COALESCE(MAX(id), 0), COALESCE(SUM(matches), 0) FROM ("+query+") AS letters", append(a, deadCounted)...)
		if err != nil || len(rows) == 0 {
			return 0, 0, fmt.Errorf("counting dead letters: %w", err)
		}
		n += rows[0].n
		if rows[0].looked < deadCounted {
			return n, 0, nil
		}
		f.After = rows[0].last
		if within > 0 && time.Since(began) >= within {
			return n, f.After, nil
		}
	}
}
