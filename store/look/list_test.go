package look_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// t0 is the place of the first task, Unix ms.
const t0 = 1_700_000_000_000

// A page of a hundred thousand tasks costs what a page costs: index entries, and the rows that are shown. It runs on SQLite:
// servers get the same statements, and there the rows would have to be written one by one.
func TestAPageReadsNoMoreThanItNeeds(t *testing.T) {
	ctx, path := t.Context(), t.TempDir()+"/notyet.db"
	st, err := store.Open(ctx, store.Config{DSN: "sqlite:" + path}, zap.NewNop())
	require.NoError(t, err)
	defer st.Close()
	require.NoError(t, st.Migrate(ctx, 4))
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	key, err := st.LaneKey(ctx)
	require.NoError(t, err)
	const rows = 100_000
	_, err = db.ExecContext(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO tasks (seq, ident, slot, pos, lane, due, state, attempt, replay, version, created, topic, id, body)
		SELECT i, CAST(i AS BLOB), i % 4, ? + i / 50, CASE WHEN i % 1000 = 0 THEN ? ELSE ? END, 0, 0, 0, 0, -1, 0,
		CAST(CASE WHEN i % 1000 = 0 THEN 'rare' ELSE 'flood' END AS BLOB), CAST('id-' || i AS BLOB), zeroblob(2000) FROM n`,
		rows, t0, int64(key.Lane("rare", task.ClassNormal)), int64(key.Lane("flood", task.ClassNormal)))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		filter                 look.ListFilter
		tasks, entries, looked int // at most, but for tasks
	}{
		"all":               {look.ListFilter{}, 100, 500, 100},
		"a thousand":        {look.ListFilter{Limit: 1000}, 1000, 3000, 1000},
		"a rare topic":      {look.ListFilter{Topic: "rare"}, 100, 200, 100},
		"a flooded topic":   {look.ListFilter{Topic: "flood"}, 100, 200, 100},
		"no such topic":     {look.ListFilter{Topic: "none"}, 0, 0, 0},
		"a prefix of none":  {look.ListFilter{IDPrefix: "x"}, 0, 3 * look.ListExamined, look.ListExamined},
		"a state of none":   {look.ListFilter{State: "waiting_retry", Topic: "flood"}, 0, 3 * look.ListExamined, look.ListExamined},
		"nothing has ended": {look.ListFilter{Ended: true}, 0, 0, 0},
	} {
		page, entries, looked, err := look.New(st).PageCost(ctx, c.filter)
		require.NoError(t, err)
		require.Len(t, page.Tasks, c.tasks, name)
		require.LessOrEqual(t, entries, c.entries, name)
		require.LessOrEqual(t, looked, c.looked, name)
	}
	// Each range is read from an index alone, in its order: nothing is sorted, no row is touched.
	for _, column := range []string{"slot", "lane"} {
		for _, descending := range []bool{false, true} {
			queries, a := look.RangeQueries(column, look.ListPlace{Pos: t0 + 5, Lane: 1, Seq: 7}, descending, 100)
			rest := a
			for _, q := range queries {
				n := strings.Count(q, "?")
				plan, err := tables.Fetch(ctx, db, func(r *sql.Rows, line *string) error { var x, y, z int; return r.Scan(&x, &y, &z, line) }, "EXPLAIN QUERY PLAN "+q, rest[:n]...)
				require.NoError(t, err)
				rest = rest[n:]
				text := strings.Join(plan, "; ")
				require.Contains(t, text, "SEARCH tasks USING COVERING INDEX", q)
				require.NotContains(t, text, "TEMP B-TREE", q)
			}
		}
	}
}
