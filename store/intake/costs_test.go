package intake

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
)

// cost is what one step costs the database.
type cost struct{ statements, rows int64 }

// plainCosts is the model of docs/scale.md: what n plain tasks of one batch cost in so many slots, step by step.
func plainCosts(n, slots int64) map[string]cost {
	return map[string]cost{
		"store":  {8 + n/28, n + 1}, // at most so many statements: a task is a row, and the intake offset is one
		"claim":  {2, slots},
		"ids":    {1, 0},
		"bodies": {(n + 127) / 128, 0},
		"settle": {3, slots},
		"forget": {slots * 3 * (n/slots/900 + 1), n},
	}
}

// A task that is simply delivered costs one row when it is stored and one when it is forgotten. Nothing between depends on how many there are,
// but the reading.
func TestCostsOfPlainTasks(t *testing.T) {
	for _, tasks := range []int64{128, 1280, 3840} {
		f, n := countStatements(t)
		f.own()
		model := plainCosts(tasks, int64(len(f.allSlots())))
		costs := func(step string, do func() error) {
			s, r := n.statements.Load(), n.rows.Load()
			require.NoError(t, do())
			require.Equal(t, model[step].rows, n.rows.Load()-r, "%s: rows of %d tasks", step, tasks)
			require.LessOrEqual(t, n.statements.Load()-s, model[step].statements, "%s: statements of %d tasks", step, tasks)
		}
		requests := make([]any, tasks)
		for i := range requests {
			requests[i] = f.schedule(fmt.Sprint(i), in(time.Hour+time.Duration(i)*time.Millisecond), tell(schemas.EventsNone))
		}
		costs("store", func() error { f.do(requests...); return nil })
		f.now += 2 * time.Hour.Milliseconds()
		costs("claim", func() error { return claimTo(f.ctx, f.Store, f.allSlots(), f.epoch, f.now) })
		var ranges []line.Range
		for _, s := range f.allSlots() {
			ranges = append(ranges, line.Range{Slot: s, From: 0, To: f.now})
		}
		var seqs []int64
		costs("ids", func() error {
			entries, err := f.Claimed(f.ctx, ranges)
			for _, e := range entries {
				seqs = append(seqs, e.Seq)
			}
			return err
		})
		require.Len(t, seqs, int(tasks))
		costs("bodies", func() error {
			_, _, err := f.Tasks(f.ctx, seqs, 64<<20)
			return err
		})
		done := f.doneUpTo(f.now)
		costs("settle", func() error {
			_, err := f.Settle(f.ctx, done, nil, store.At(f.now))
			return err
		})
		costs("forget", func() error {
			for _, r := range ranges {
				for r.From < r.To {
					var err error
					if _, r, err = f.Retire(f.ctx, r); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
}

// TestBytesOfPendingTasks shows what so many pending tasks take on the server that NOTYET_MYSQL_DSN names: NOTYET_COST_TASKS=200000.
func TestBytesOfPendingTasks(t *testing.T) {
	tasks, _ := strconv.Atoi(os.Getenv("NOTYET_COST_TASKS"))
	if tasks == 0 {
		t.Skip("NOTYET_COST_TASKS is not set")
	}
	for _, backend := range backends() {
		if backend.name != "mysql" {
			continue
		}
		f := backend.fixture(t)
		body := strings.Repeat("x", 200)
		for n := 0; n < tasks; n += 2000 {
			requests := make([]any, 2000)
			for i := range requests {
				requests[i] = f.schedule(fmt.Sprintf("order-%d", n+i), in(time.Hour+time.Duration(rand.Int64N(int64(time.Hour)))), value(body), tell(schemas.EventsNone))
			}
			f.do(requests...)
		}
		_, err := f.db.ExecContext(f.ctx, "ANALYZE TABLE tasks")
		require.NoError(t, err)
		var data, index int64
		require.NoError(t, f.db.QueryRowContext(f.ctx, "SELECT data_length, index_length FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'tasks'").Scan(&data, &index))
		t.Logf("%d pending tasks with values of %d bytes: %d bytes of rows and %d of indexes each", tasks, len(body), data/int64(tasks), index/int64(tasks))
	}
}
