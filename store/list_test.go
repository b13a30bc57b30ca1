package store

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

func TestList(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for i := range 12 {
			s.do(s.schedule(fmt.Sprint(i), in(time.Duration(i+1)*time.Second)))
		}
		other := s.schedule("other", in(90*ms))
		other.Topic = "invoices"
		s.do(other, s.cancel("3"))
		s.deliver(t0 + 6000)

		ids := func(f ListFilter) (out []string) {
			t.Helper()
			page, err := s.List(s.ctx, f)
			require.NoError(t, err)
			for _, v := range page.Tasks {
				out = append(out, v.ID)
			}
			return out
		}
		require.Equal(t, []string{"6", "7", "8", "9", "10", "11"}, ids(ListFilter{}), "what comes next, in order")
		require.Equal(t, []string{"6", "7"}, ids(ListFilter{Limit: 2}))
		require.Equal(t, []string{"9", "10"}, ids(ListFilter{Limit: 2, From: t0 + 9500}))
		require.Empty(t, ids(ListFilter{Topic: "invoices"}))
		require.Equal(t, []string{"5", "4", "2", "1", "0", "other", "3"}, ids(ListFilter{Ended: true}), "what was settled last, the latest first")
		require.Equal(t, []string{"5", "4"}, ids(ListFilter{Ended: true, Limit: 2}))
		require.Equal(t, []string{"other"}, ids(ListFilter{Ended: true, Topic: "invoices"}))
		require.Equal(t, []string{"5", "4"}, ids(ListFilter{Ended: true, From: t0 + 4000}))
	})
}

// Many tasks at one place are listed in one order every time, so that pages can be compared.
func TestListOfOnePlace(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var records []any
		for i := range 60 {
			records = append(records, s.schedule(fmt.Sprintf("%02d", i)))
		}
		s.do(records...)
		for _, ended := range []bool{false, true} {
			page, err := s.List(s.ctx, ListFilter{Ended: ended})
			require.NoError(t, err)
			views := page.Tasks
			require.Len(t, views, 60)
			for i, v := range views {
				want := i
				if ended {
					want = 59 - i
				}
				require.Equal(t, fmt.Sprintf("%02d", want), v.ID)
			}
			s.deliver(t0 + 1000)
		}
	})
}

// Pages that are read one after the other are the whole list, in its order, each task once, whatever their size.
func TestPagesMakeTheWhole(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var records []any
		for i := range 90 {
			r := s.schedule(fmt.Sprintf("%02d", i), in(time.Duration(1+i/30)*time.Second))
			if i%3 == 0 {
				r.Topic = "invoices"
			}
			records = append(records, r)
		}
		s.do(records...)
		s.do(s.cancel("01"), s.cancel("02"))
		s.deliver(t0 + 2000)
		for _, f := range []ListFilter{{}, {Ended: true}, {Topic: target}, {Topic: target, Ended: true}, {Topic: "invoices"}, {IDPrefix: "1", Ended: true}, {State: "cancelled"}} {
			f.Limit = 1000
			whole, err := s.List(s.ctx, f)
			require.NoError(t, err)
			require.NotEmpty(t, whole.Tasks, "%+v", f)
			require.Nil(t, whole.More)
			for _, limit := range []int{1, 7, 30} {
				f.Limit, f.After = limit, nil
				var got []View
				for range 200 {
					page, err := s.List(s.ctx, f)
					require.NoError(t, err)
					require.LessOrEqual(t, len(page.Tasks), limit)
					got = append(got, page.Tasks...)
					if f.After = page.More; page.More == nil {
						break
					}
				}
				require.Equal(t, whole.Tasks, got, "%+v by %d", f, limit)
			}
		}
		_, err := s.List(s.ctx, ListFilter{State: "lost"})
		require.ErrorIs(t, err, ErrState)
	})
}

func TestListFilters(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("order-1", in(time.Second)), s.schedule("order-2", in(2*time.Second)), s.schedule("other", in(3*time.Second)))
		ids := func(f ListFilter) (out []string) {
			page, err := s.List(s.ctx, f)
			require.NoError(t, err)
			for _, v := range page.Tasks {
				out = append(out, v.ID)
				require.Equal(t, f.Body, len(v.Body) > 0)
			}
			return out
		}
		require.Equal(t, []string{"order-1", "order-2"}, ids(ListFilter{IDPrefix: "order-"}))
		require.Equal(t, []string{"order-2", "other"}, ids(ListFilter{From: t0 + 1001}))
		require.Equal(t, []string{"order-1"}, ids(ListFilter{To: t0 + 2000}))
		require.Equal(t, []string{"order-1", "order-2", "other"}, ids(ListFilter{Body: true, State: "pending"}))
		require.Empty(t, ids(ListFilter{State: "delivered"}))
		require.Empty(t, ids(ListFilter{Allowed: func(topic string) bool { return topic != target }}))
	})
}

// A page of a hundred thousand tasks costs what a page costs: index entries, and the rows that are shown.
func TestAPageReadsNoMoreThanItNeeds(t *testing.T) {
	eachLarge(t, func(t *testing.T, s *fixture) {
		if !s.backend.sqlite {
			t.Skip("the same statements; there the rows would have to be written one by one")
		}
		const rows = 100_000
		_, err := s.db.ExecContext(s.ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
			INSERT INTO tasks (seq, ident, slot, pos, lane, due, state, attempt, replay, version, created, topic, id, body)
			SELECT i, CAST(i AS BLOB), i % 4, ? + i / 50, CASE WHEN i % 1000 = 0 THEN ? ELSE ? END, 0, 0, 0, 0, -1, 0,
			CAST(CASE WHEN i % 1000 = 0 THEN 'rare' ELSE 'flood' END AS BLOB), CAST('id-' || i AS BLOB), zeroblob(2000) FROM n`,
			rows, t0, int64(s.lane("rare", task.ClassNormal)), int64(s.lane("flood", task.ClassNormal)))
		require.NoError(t, err)
		for name, c := range map[string]struct {
			filter                 ListFilter
			tasks, entries, looked int // at most, but for tasks
		}{
			"all":               {ListFilter{}, 100, 500, 100},
			"a thousand":        {ListFilter{Limit: 1000}, 1000, 3000, 1000},
			"a rare topic":      {ListFilter{Topic: "rare"}, 100, 200, 100},
			"a flooded topic":   {ListFilter{Topic: "flood"}, 100, 200, 100},
			"no such topic":     {ListFilter{Topic: "none"}, 0, 0, 0},
			"a prefix of none":  {ListFilter{IDPrefix: "x"}, 0, 3 * listExamined, listExamined},
			"a state of none":   {ListFilter{State: "waiting_retry", Topic: "flood"}, 0, 3 * listExamined, listExamined},
			"nothing has ended": {ListFilter{Ended: true}, 0, 0, 0},
		} {
			l, err := s.lister(s.ctx, c.filter)
			require.NoError(t, err)
			page, err := l.run(s.ctx)
			require.NoError(t, err)
			require.Len(t, page.Tasks, c.tasks, name)
			require.LessOrEqual(t, l.entries, c.entries, name)
			require.LessOrEqual(t, l.looked, c.looked, name)
		}
		// Each range is read from an index alone, in its order: nothing is sorted, no row is touched.
		for _, column := range []string{"slot", "lane"} {
			for _, descending := range []bool{false, true} {
				st := &stream{column: column, value: 1, from: 0, to: 1 << 62, after: &ListPlace{Pos: t0 + 5, Lane: 1, Seq: 7}}
				queries, a := st.query(0, descending, 100)
				rest := a
				for _, q := range queries {
					n := strings.Count(q, "?")
					plan, err := tables.Fetch(s.ctx, s.db, func(r *sql.Rows, line *string) error { var x, y, z int; return r.Scan(&x, &y, &z, line) }, "EXPLAIN QUERY PLAN "+q, rest[:n]...)
					require.NoError(t, err)
					rest = rest[n:]
					text := strings.Join(plan, "; ")
					require.Contains(t, text, "SEARCH tasks USING COVERING INDEX", q)
					require.NotContains(t, text, "TEMP B-TREE", q)
				}
			}
		}
	})
}
