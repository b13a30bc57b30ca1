package intake

import (
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
)

// letter is a dead letter that the case need not bring about by a task's life.
func (f *fixture) letter(d task.DeadLetter) {
	f.t.Helper()
	f.do(&d)
}

func TestDeadLetterFilters(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for i, d := range []task.DeadLetter{
			{Kind: schemas.KindDead, Topic: "orders", TaskID: "a", Reason: "no such topic"},
			{Kind: schemas.KindExpired, Topic: "orders", TaskID: "b", Reason: "100% too late"},
			{Kind: schemas.KindRejected, Topic: "orders", TaskID: "c", Reason: "value_x is wrong!"},
			{Kind: schemas.KindDead, Topic: "invoices", TaskID: "a", Reason: "Größe über 1000 % der Grenze"},
			{Kind: schemas.KindDead, Topic: "Orders", TaskID: "d", Reason: "valueAx"},
		} {
			s.now = t0 + int64(i)*1000
			s.letter(d)
		}
		all, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
		require.NoError(t, err)
		require.Len(t, all, 5)
		_, err = s.db.ExecContext(s.ctx, "UPDATE dead_letters SET replayed_at = 7 WHERE id = ?", all[1].ID)
		require.NoError(t, err)

		for name, c := range map[string]struct {
			filter letters.Filter
			want   string // the task ids
		}{
			"all that were not replayed":      {letters.Filter{}, "a c a d"},
			"all":                             {letters.Filter{Replayed: true}, "a b c a d"},
			"by id":                           {letters.Filter{IDs: []int64{all[3].ID, all[0].ID, 999_999_999}}, "a a"},
			"by kind":                         {letters.Filter{Kind: schemas.KindDead}, "a a d"},
			"by topic, its letters' case too": {letters.Filter{Topic: "orders", Replayed: true}, "a b c"},
			"by task id":                      {letters.Filter{TaskID: "a"}, "a a"},
			"by both":                         {letters.Filter{TaskID: "a", Topic: "invoices"}, "a"},
			"by a part of the reason":         {letters.Filter{Reason: "such"}, "a"},
			"a % is a %":                      {letters.Filter{Reason: "0%", Replayed: true}, "b"},
			"a _ is a _":                      {letters.Filter{Reason: "value_x"}, "c"},
			"a ! is a !":                      {letters.Filter{Reason: "wrong!"}, "c"},
			"by letters beyond ASCII":         {letters.Filter{Reason: "über"}, "a"},
			"since":                           {letters.Filter{Since: t0 + 3000}, "a d"},
			"until":                           {letters.Filter{Until: t0 + 3000}, "a c"},
			"since and until":                 {letters.Filter{Since: t0 + 2000, Until: t0 + 3000}, "c"},
			"the first":                       {letters.Filter{Limit: 2}, "a c"},
			"the next":                        {letters.Filter{Limit: 2, After: all[2].ID}, "a d"},
			"none":                            {letters.Filter{Topic: "none"}, ""},
		} {
			letters, err := lettertest.All(s.ctx, s.dead, c.filter)
			require.NoError(t, err, name)
			got := ""
			for i, d := range letters {
				if i > 0 {
					require.Greater(t, d.ID, letters[i-1].ID, name)
					got += " "
				}
				got += d.TaskID
			}
			require.Equal(t, c.want, got, name)
			if c.filter.Limit == 0 {
				n, _, err := s.dead.Count(s.ctx, c.filter, 0)
				require.NoError(t, err)
				require.EqualValues(t, len(letters), n, name)
			}
		}
	})
}

// Pages of dead letters add up to the whole.
func TestDeadLettersInPages(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var records []any
		for i := range 250 {
			records = append(records, &task.DeadLetter{Kind: schemas.KindDead, Topic: target, TaskID: fmt.Sprint(i)})
		}
		s.do(records...)
		seen, after := map[string]bool{}, int64(0)
		for {
			page, err := lettertest.All(s.ctx, s.dead, letters.Filter{After: after})
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			require.LessOrEqual(t, len(page), 100)
			for _, d := range page {
				require.False(t, seen[d.TaskID])
				seen[d.TaskID] = true
			}
			after = page[len(page)-1].ID
		}
		require.Len(t, seen, 250)
	})
}

func TestPurgeDead(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var records []any
		for i := range 7 {
			records = append(records, &task.DeadLetter{Kind: schemas.KindDead, Topic: target, TaskID: fmt.Sprint(i), Reason: "r"})
		}
		records = append(records, &task.DeadLetter{Kind: schemas.KindDead, Topic: "other", TaskID: "x"})
		s.do(records...)
		all, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
		require.NoError(t, err)
		_, err = s.db.ExecContext(s.ctx, "UPDATE dead_letters SET replayed_at = 7 WHERE id = ?", all[0].ID)
		require.NoError(t, err)

		f, purged := letters.Filter{Topic: target, Limit: 4}, int64(0)
		for pages := 1; ; pages++ {
			n, next, err := s.dead.Purge(s.ctx, f)
			require.NoError(t, err)
			purged += n
			if f.After = next; next == 0 {
				require.Equal(t, 2, pages)
				break
			}
		}
		require.EqualValues(t, 6, purged)
		left, err := lettertest.All(s.ctx, s.dead, letters.Filter{Replayed: true})
		require.NoError(t, err)
		require.Len(t, left, 2, "what was replayed, and what was not meant")
		n, _, err := s.dead.Purge(s.ctx, letters.Filter{Replayed: true})
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
	})
}

// Of a million letters, those of a task, of a topic, and since a time are found without reading the others.
func TestLettersAreFoundByIndex(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for i := range 500 {
			s.now++
			s.letter(task.DeadLetter{Kind: schemas.KindDead, Topic: "topic" + strconv.Itoa(i%10), TaskID: strconv.Itoa(i)})
		}
		// JSON, as the other forms of EXPLAIN differ between MariaDB, MySQL 8.4 and MySQL 9.
		explain, key := "EXPLAIN FORMAT=JSON ", `"(?:key|index_name)": "(\w+)"`
		if s.backend.sqlite {
			explain, key = "EXPLAIN QUERY PLAN ", `INDEX dead_letters_(\w+)`
		}
		used := regexp.MustCompile(key)
		// plan is the indexes that the query is answered from.
		plan := func(query string, a ...any) []string {
			rows, err := s.db.QueryContext(s.ctx, explain+query, a...)
			require.NoError(t, err)
			var names []string
			for _, m := range used.FindAllStringSubmatch(strings.Join(cells(t, rows), "\n"), -1) {
				names = append(names, m[1])
			}
			return names
		}
		page := func(f letters.Filter) []string {
			query, a := s.dead.PageQuery(f, 100)
			return plan(query, a...)
		}
		require.Equal(t, []string{"task"}, page(letters.Filter{TaskID: "77"}))
		require.Equal(t, []string{"task"}, page(letters.Filter{TaskID: "77", Topic: "topic7"}))
		require.Equal(t, []string{"topic"}, page(letters.Filter{Topic: "topic7"}))
		require.Equal(t, []string{"kind"}, page(letters.Filter{Kind: schemas.KindDead}))
		require.Equal(t, []string{"died"}, plan(letters.FirstSince, 0, s.now-50))
		require.NotContains(t, page(letters.Filter{Since: s.now - 50}), "died", "a page must not sort all that died since")
	})
}

// cells are all of a result, as text.
func cells(t *testing.T, rows *sql.Rows) []string {
	t.Helper()
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	var out []string
	for rows.Next() {
		row, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		require.NoError(t, rows.Scan(into...))
		for _, cell := range row {
			out = append(out, cell.String)
		}
	}
	require.NoError(t, rows.Err())
	return out
}

// A run over pages that ends at the last letter there was does not meet what dies while it runs.
func TestPurgeDeadUpTo(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		last, err := s.dead.Last(s.ctx)
		require.NoError(t, err)
		require.Zero(t, last)
		s.letter(task.DeadLetter{Kind: schemas.KindDead, Topic: target, TaskID: "before"})
		last, err = s.dead.Last(s.ctx)
		require.NoError(t, err)
		s.letter(task.DeadLetter{Kind: schemas.KindDead, Topic: target, TaskID: "meanwhile"})
		n, next, err := s.dead.Purge(s.ctx, letters.Filter{Limit: 1, UpTo: last})
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		n, _, err = s.dead.Purge(s.ctx, letters.Filter{Limit: 1, After: next, UpTo: last})
		require.NoError(t, err)
		require.Zero(t, n)
		letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Equal(t, "meanwhile", letters[0].TaskID)
	})
}

// The rows of dead tasks stay when their letters are purged: what callers are answered does not change.
func TestPurgeLeavesTheTask(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.die("a")
		_, _, err := s.dead.Purge(s.ctx, letters.Filter{})
		require.NoError(t, err)
		require.Zero(t, s.count("dead_letters"))
		require.Equal(t, schemas.StateTooLate, s.answer(s.cancel("a")))
	})
}

// die lets a task be scheduled and die.
func (f *fixture) die(id string, with ...option) {
	f.t.Helper()
	f.do(f.schedule(id, append([]option{wantReport}, with...)...))
	f.awaitReport(id, 1)
	require.Equal(f.t, schemas.StateDead, f.answer(says(id, 1, schemas.StatusFail)))
}
