package intake

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
)

// TestTagAmongMany shows what lists, forecasts and cancels by a tag cost on the server that NOTYET_MYSQL_DSN names, where 1,000 of many
// pending tasks have the tag: NOTYET_TAG_TASKS=1000000.
func TestTagAmongMany(t *testing.T) {
	tasks, _ := strconv.Atoi(os.Getenv("NOTYET_TAG_TASKS"))
	if tasks == 0 {
		t.Skip("NOTYET_TAG_TASKS is not set")
	}
	f := backends()[2].fixture(t)
	f.fill(tasks, func(i int) []option {
		if i%(tasks/1000) == 0 {
			return []option{tagged("all,rare")}
		}
		return []option{tagged("all")}
	})
	_, err := f.db.ExecContext(f.ctx, "ANALYZE TABLE tasks, tags")
	require.NoError(t, err)
	handlers := func() map[string]int {
		rows, err := f.db.QueryContext(f.ctx, "SHOW GLOBAL STATUS LIKE 'Handler_read%'")
		require.NoError(t, err)
		defer rows.Close()
		out := map[string]int{}
		for rows.Next() {
			var name string
			var n int
			require.NoError(t, rows.Scan(&name, &n))
			out[name] = n
		}
		return out
	}
	show := func(what string, do func() int) {
		before, began := handlers(), time.Now()
		n := do()
		took := time.Since(began)
		for name, v := range handlers() {
			if v-before[name] > 20 {
				t.Logf("%s: %s %d", what, name, v-before[name])
			}
		}
		t.Logf("%s: %d in %v", what, n, took)
	}
	show("list rare", func() int { return len(f.listed(look.ListFilter{Tag: "rare", Limit: 1000})) })
	show("first page of all", func() int {
		page, err := look.New(f.Store).List(f.ctx, look.ListFilter{Tag: "all", Limit: 100})
		require.NoError(t, err)
		return len(page.Tasks)
	})
	for _, tag := range []string{"rare", "all"} {
		show("forecast "+tag, func() int {
			steps, _, err := look.New(f.Store).Forecast(f.ctx, look.ForecastFilter{Tag: tag, From: t0, To: t0 + 2*time.Hour.Milliseconds(), Step: 60_000})
			require.NoError(t, err)
			n := 0
			for _, s := range steps {
				n += int(s.Count)
			}
			return n
		})
	}
	show("sweep", func() int {
		n := 0
		for at, first := (*line.TagPlace)(nil), true; first || at != nil; first = false {
			var err error
			_, at, err = f.SweepTags(f.ctx, at)
			require.NoError(t, err)
			n++
		}
		return n
	})
	show("cancel rare", func() int { return int(f.cancelAll(look.ListFilter{Tag: "rare"}).Cancelled) })
	show("cancel 100000 of all", func() int {
		return int(f.cancelAll(look.ListFilter{Tag: "all", To: t0 + 3_600_000 + int64(min(tasks, 100_000))}).Cancelled)
	})
}
