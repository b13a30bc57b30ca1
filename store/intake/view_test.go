package intake

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	spreads "github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// between makes connections that call something before each query.
type between struct {
	driver driver.Driver
	dsn    string
	call   func(query string)
	busy   bool
}

func (b *between) Connect(context.Context) (driver.Conn, error) {
	c, err := b.driver.Open(b.dsn)
	if err != nil {
		return nil, err
	}
	return betweenConn{c.(sqliteConn), b}, nil
}

func (b *between) Driver() driver.Driver { return b.driver }

type betweenConn struct {
	sqliteConn
	b *between
}

func (c betweenConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if b := c.b; b.call != nil && !b.busy {
		b.busy = true
		b.call(query)
		b.busy = false
	}
	return c.sqliteConn.QueryContext(ctx, query, args)
}

// betweenQueries is a fixture in which something happens before each query of a call.
func betweenQueries(t *testing.T) (*fixture, *between) {
	path := t.TempDir() + "/notyet.db"
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	b := &between{driver: db.Driver(), dsn: path + "?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_pragma=synchronous(OFF)"}
	s, err := store.Open(t.Context(), store.Config{Connector: b}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.NoError(t, s.Migrate(t.Context(), testSlots))
	return newFixture(t, s), b
}

// scheduleMany schedules tasks x-0, x-1 and so on, a second apart, an hour from now.
func (f *fixture) scheduleMany(n int, with ...option) {
	f.t.Helper()
	for from := 0; from < n; from += 500 {
		var asked []any
		for i := from; i < min(from+500, n); i++ {
			asked = append(asked, f.schedule(fmt.Sprint("x-", i), append(with, in(time.Hour+time.Duration(i)*time.Second))...))
		}
		f.do(asked...)
	}
}

// splitAll begins a change to n slots, and splits all that keys leave.
func (f *fixture) splitAll(n int) {
	f.t.Helper()
	f.takeAll()
	_, err := f.SetSlots(f.ctx, n)
	require.NoError(f.t, err)
	f.takeAll()
	rows, err := f.Slots(f.ctx)
	require.NoError(f.t, err)
	for _, s := range rows {
		if spreads.Leaving(s.Slot, s.Base, s.Target) {
			_, err := f.Split(f.ctx, s.Slot, f.epoch, s.Claimed, f.now, nobodyWaits)
			require.NoError(f.t, err)
		}
	}
}

// follow moves a page of tasks out of one split slot, and returns how many those were.
func (f *fixture) follow(shifts map[int]*line.Shift) (n int) {
	f.t.Helper()
	rows, err := f.Slots(f.ctx)
	require.NoError(f.t, err)
	for _, s := range rows {
		if !s.Split() || s.Whole() {
			continue
		}
		if shifts[s.Slot] == nil {
			shifts[s.Slot] = line.NewShift(s.Slot, f.epoch)
		}
		moved, err := f.MoveOn(f.ctx, shifts[s.Slot], f.now, nobodyWaits)
		require.NoError(f.t, err)
		if len(moved.Added) > 0 {
			return len(moved.Added)
		}
	}
	return 0
}

// Whoever reads slots, lanes or tags by several statements answers as if nothing moved between two of them.
func TestReadersSeeOneState(t *testing.T) {
	const n = 1500
	end := int64(t0) + 3*time.Hour.Milliseconds()
	list := func(filter look.ListFilter) func(*fixture) any {
		return func(f *fixture) any { return f.listed(filter) }
	}
	forecast := func(filter look.ForecastFilter) func(*fixture) any {
		filter.From, filter.To, filter.Step, filter.Stretch = t0, end, 60_000, 200
		return func(f *fixture) any {
			steps, next, err := look.New(f.Store).Forecast(f.ctx, filter)
			require.NoError(t, err)
			require.Zero(t, next)
			return steps
		}
	}
	for name, read := range map[string]func(f *fixture) any{
		"list":           list(look.ListFilter{Limit: 400}),
		"list by topic":  list(look.ListFilter{Limit: 400, Topic: target}),
		"list by tag":    list(look.ListFilter{Limit: 400, Tag: "recall"}),
		"list by prefix": list(look.ListFilter{Limit: 400, IDPrefix: "x-1"}),
		"forecast":       forecast(look.ForecastFilter{}),
		"of a topic":     forecast(look.ForecastFilter{Topic: target}),
		"of a tag":       forecast(look.ForecastFilter{Tag: "recall"}),
		"pending size": func(f *fixture) any {
			sizes, err := f.PendingSize(f.ctx, []int{f.source.ID}, true)
			require.NoError(t, err)
			return sizes
		},
		"overdue": func(f *fixture) any {
			behind, err := look.New(f.Store).Overdue(f.ctx, t0)
			require.NoError(t, err)
			return behind.Next
		},
		"count of overdue": func(f *fixture) any {
			found, oldest, err := look.New(f.Store).CountOverdue(f.ctx, end, 10*n)
			require.NoError(t, err)
			return []any{found, oldest}
		},
		"oldest overdue": func(f *fixture) any {
			oldest, _, err := look.New(f.Store).OldestOverdue(f.ctx, []string{target}, end, n)
			require.NoError(t, err)
			return oldest
		},
		"count of a target": func(f *fixture) any {
			found, err := look.New(f.Store).CountPending(f.ctx, target, t0, 10*n)
			require.NoError(t, err)
			return found
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, b := betweenQueries(t)
			f.scheduleMany(n, tagged("recall"))
			f.splitAll(9)
			want := read(f)
			shifts, moved, queries := map[int]*line.Shift{}, 0, 0
			b.call = func(query string) {
				queries++
				moved += f.follow(shifts)
			}
			got := read(f)
			b.call = nil
			require.Equal(t, want, got)
			require.Greater(t, queries, 2, "it is one statement")
			require.Positive(t, moved)
		})
	}
}

// A view shows one state, and leaves the connection as it was.
func TestView(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		if s.backend.name == "sqlite-memory" {
			t.Skip("one connection")
		}
		s.db.SetMaxOpenConns(2)
		s.do(s.schedule("a"))
		count := func(q dialect.Querier) (n int) {
			t.Helper()
			require.NoError(t, q.QueryRowContext(s.ctx, "SELECT COUNT(*) FROM tasks").Scan(&n))
			return n
		}
		require.NoError(t, s.h.View(s.ctx, func(q dialect.Querier) error {
			require.Equal(t, 1, count(q))
			s.do(s.schedule("b"), s.cancel("a"))
			require.Equal(t, 1, count(q))
			return nil
		}))
		s.db.SetMaxOpenConns(1)
		require.Equal(t, 2, count(s.h.Reads()))
		s.do(s.schedule("c"))
		tx, err := s.db.BeginTx(s.ctx, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback()) }()
		require.Equal(t, 3, count(tx))
		if !s.backend.sqlite {
			other := s.another()
			_, err := New(other).Apply(s.ctx, s.batch(s.schedule("d")), store.At(s.now))
			require.NoError(t, err)
			require.Equal(t, 4, count(tx), "transactions read what is committed, as before")
		}
	})
}

// A list begins at the first open place, whatever was delivered before: done stands where it is in slots that nobody uses. It logs what a
// first page costs: NOTYET_LIST_DELIVERED=200000 sets how many were delivered.
func TestListBeginsAtTheFirstOpenPlace(t *testing.T) {
	delivered := 2 * look.ListExamined
	if n, err := strconv.Atoi(os.Getenv("NOTYET_LIST_DELIVERED")); err == nil {
		delivered = n
	}
	for name, c := range map[string]struct{ slots, end int }{"all slots in use": {1, 1}, "idle slots": {4, 4}, "a slot that was given up": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, f *fixture) {
				f.takeAll()
				set := func(n int) {
					t.Helper()
					_, err := f.SetSlots(f.ctx, n)
					require.NoError(t, err)
					f.finishAll(t)
					f.takeAll()
				}
				set(c.slots)
				n, err := f.DropSlots(f.ctx, func(store.Slot) bool { return false })
				require.NoError(t, err)
				require.Equal(t, testSlots-c.slots, n)
				f.do(f.schedule("old", in(time.Second)))
				f.now += 2000
				f.claimFar(f.now)
				f.drain()
				if c.end != c.slots {
					set(c.end)
				}
				for from := 0; from < delivered; from += 1000 {
					var asked []any
					for i := range 1000 {
						asked = append(asked, f.schedule(fmt.Sprint("d-", from+i), in(time.Second+time.Duration(i)*time.Millisecond), key("one"), tagged("recall")))
					}
					f.do(asked...)
					f.now += 3000
					s := f.slotRow(f.row("d-0").Slot) // a slot is claimed when it has something
					require.NoError(t, f.Claim(f.ctx, s.Turn, []int{s.Slot}, []int64{s.Claimed}, f.epoch, f.now))
					f.drain()
				}
				f.do(f.schedule("pending", in(time.Hour), key("one"), tagged("recall")))
				for what, filter := range map[string]look.ListFilter{"topic": {Topic: target}, "tag": {Tag: "recall"}, "both": {Tag: "recall", Topic: target}, "all": {}} {
					began := time.Now()
					page, err := look.New(f.Store).List(f.ctx, filter)
					t.Logf("by %s, behind %d delivered: %v", what, delivered, time.Since(began))
					require.NoError(t, err)
					require.Len(t, page.Tasks, 1, what)
					require.Equal(t, "pending", page.Tasks[0].ID)
				}
			})
		})
	}
}

// What divides a list by tag belongs to the list. Read anew for each page, it would fall as the database is set back, and rise as tasks are
// delivered or put off.
func TestPagesByTagWhileOffsetsMove(t *testing.T) {
	for name, move := range map[string]func(f *fixture){
		"slots are added": func(f *fixture) {
			_, err := f.SetSlots(f.ctx, testSlots+2)
			require.NoError(f.t, err)
		},
		"the database is set back": func(f *fixture) {
			_, err := f.db.ExecContext(f.ctx, "UPDATE slots SET done = 0, claimed = 0")
			require.NoError(f.t, err)
		},
		"attempts fail": func(f *fixture) {
			f.now += 2 * time.Hour.Milliseconds()
			f.claim(f.now)
			f.settleAs("x-", task.StateRetry, func(task.Task) int64 { return f.now + time.Hour.Milliseconds() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, f *fixture) {
				f.takeAll()
				f.do(f.schedule("other", in(500*time.Millisecond)), f.schedule("far", in(8*time.Hour)))
				var want []string
				for i := range 6 {
					f.do(f.schedule(fmt.Sprint("held-", i), in(time.Second+time.Duration(i)*time.Millisecond), tagged("recall")))
					want = append(want, fmt.Sprint("x-", i), fmt.Sprint("held-", i))
				}
				f.now += 5000
				f.claim(f.now) // their target is paused
				f.settleAs("held-", task.StateLine, func(row task.Task) int64 { return task.Held(row.Due) })
				f.scheduleMany(6, tagged("recall"))
				var seen []string
				for filter := (look.ListFilter{Tag: "recall", Limit: 5}); ; {
					page, err := look.New(f.Store).List(f.ctx, filter)
					require.NoError(t, err)
					for _, v := range page.Tasks {
						seen = append(seen, v.ID)
					}
					if filter.After == nil {
						move(f)
					}
					if filter.After = page.More; filter.After == nil {
						break
					}
				}
				require.ElementsMatch(t, want, seen, "each once")
			})
		})
	}
}

// settleAs settles all that is claimed, and puts the tasks with a prefix at other places.
func (f *fixture) settleAs(prefix string, state task.State, place func(task.Task) int64) {
	f.t.Helper()
	var moves []line.Transition
	for _, row := range f.live() {
		if strings.HasPrefix(row.ID, prefix) {
			e := f.transition(row.ID, state, place(row), row.Attempt)
			e.From = row.Pos
			moves = append(moves, e)
		}
	}
	f.settle(f.now, moves...)
}
