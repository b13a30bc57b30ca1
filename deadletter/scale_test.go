package deadletter

import (
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/outbox"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/mysqltest"
)

// TestMillion runs each operator command on many letters and logs its cost. NOTYET_LETTERS sets
// their number; published figures use 1000000.
func TestMillion(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // whatever GOGC says: the heap is judged
	letters := 10_000
	file := ":memory:" // its commits wait for no disk
	if v := os.Getenv("NOTYET_LETTERS"); v != "" {
		var err error
		letters, err = strconv.Atoi(v)
		require.NoError(t, err)
		file = t.TempDir() + "/notyet.db"
	}
	t.Run("sqlite", func(t *testing.T) { handle(t, "sqlite:"+file, letters) })
	t.Run("mysql", func(t *testing.T) { handle(t, mysqltest.Fresh(t), letters) })
}

// The letters have ten topics in turn. One in a hundred is expired, one in a thousand rejected, and
// one in ten thousand has a reason of its own. A batch of them died every 500 s.
const (
	batchSize  = 500
	firstDeath = 1_700_000_000_000
	rareReason = "disk full on broker 3"
)

func letter(i int) *task.DeadLetter {
	d := &task.DeadLetter{
		Kind: schemas.KindDead, Topic: "topic-" + strconv.Itoa(i%10), TaskID: "order-" + strconv.Itoa(i), Due: diedAt(i), Attempt: 16, Reason: "attempts exhausted: HTTP 503 from the shop",
	}
	switch {
	case i%10_000 == 777:
		d.Reason = rareReason
	case i%1000 == 1:
		d.Kind, d.Reason = schemas.KindRejected, "notyet-dely is not a header of notyet"
	case i%100 == 2:
		d.Kind, d.Reason = schemas.KindExpired, "could not be delivered within 1h0m0s of its due time"
	}
	value := `{"order":` + strconv.Itoa(i) + `,"text":"` + strings.Repeat("x", 300) + `"}`
	d.Body = schemas.EncodeBody(nil, []byte(d.TaskID), []byte(value), nil, schemas.DefaultSettings())
	return d
}

func diedAt(i int) int64 { return firstDeath + int64(i/batchSize)*batchSize*1000 }

// writeLetters writes letters 0 to n-1, which get the ids 1 to n.
func (g *fixture) writeLetters(n int) {
	g.t.Helper()
	for i := 0; i < n; i += batchSize {
		b := intake.Batch{Advance: []intake.Advance{{Source: g.source.ID, From: int64(i), To: int64(min(n, i+batchSize))}}}
		for int64(i+len(b.Changes)) < b.Advance[0].To {
			d := letter(i + len(b.Changes))
			d.Seq = task.Seq(g.source.ID, int64(i+len(b.Changes)))
			b.Changes = append(b.Changes, task.Change{Seq: d.Seq, Rejected: d})
		}
		applied, err := intake.New(g).Apply(g.t.Context(), b, store.At(diedAt(i)))
		require.NoError(g.t, err)
		require.NoError(g.t, outbox.New(g).Delete(g.t.Context(), applied.Events))
	}
}

func handle(t *testing.T, dsn string, n int) {
	g := newFixtureOn(t, dsn)
	local, ctx := g.local(nil), t.Context()
	measure := func(what string, want int, f func() (int, error)) {
		t.Helper()
		began := time.Now()
		got, err := f()
		took := time.Since(began)
		require.NoError(t, err, what)
		require.Equal(t, want, got, what)
		t.Logf("%-44s %10s %9d letters %9.0f/s", what, took.Round(10*time.Microsecond), got, float64(got)/took.Seconds())
	}
	list := func(f letters.Filter) func() (int, error) {
		return func() (int, error) { found, err := local.Letters(ctx, f, "", false); return len(found.Letters), err }
	}
	count := func(f letters.Filter) func() (int, error) {
		return func() (int, error) { found, _, err := letters.New(g).Count(ctx, f, 0); return int(found), err }
	}
	measure("write", n, func() (int, error) { g.writeLetters(n); return n, nil })

	last := strconv.Itoa(n - 1)
	measure("list, first page", 100, list(letters.Filter{}))
	measure("list, page after 90 %", 100, list(letters.Filter{After: int64(n) * 9 / 10}))
	measure("list by topic, first page", 100, list(letters.Filter{Topic: "topic-3"}))
	measure("list by topic, page after 90 %", 100, list(letters.Filter{Topic: "topic-3", After: int64(n) * 9 / 10}))
	measure("list by topic that has none", 0, list(letters.Filter{Topic: "topic-none"}))
	measure("list by task id", 1, list(letters.Filter{TaskID: "order-" + last}))
	measure("list by task id and topic", 1, list(letters.Filter{TaskID: "order-" + last, Topic: "topic-" + last[len(last)-1:]}))
	measure("list by kind, 1 in 1000", min(100, n/1000), list(letters.Filter{Kind: schemas.KindRejected}))
	measure("list by reason, 1 in 10000", min(100, n/10_000), list(letters.Filter{Reason: "disk full"}))
	measure("list by reason that has none", 0, list(letters.Filter{Reason: "no such reason"}))
	measure("list by time, first tenth", 100, list(letters.Filter{Until: diedAt(n / 10)}))
	measure("list by time, last tenth", 100, list(letters.Filter{Since: diedAt(n - n/10)}))
	measure("list by time, after the last", 0, list(letters.Filter{Since: diedAt(n)}))
	measure("show", 1, func() (int, error) {
		l, err := Show(ctx, g.Store, int64(n))
		require.NotNil(t, l.Content)
		return 1, err
	})

	measure("count all", n, count(letters.Filter{}))
	measure("count a topic", n/10, count(letters.Filter{Topic: "topic-3"}))
	measure("count a reason", n/10_000, count(letters.Filter{Reason: "disk full"}))
	measure("count by time, last tenth", n/10, count(letters.Filter{Since: diedAt(n - n/10)}))

	measure("export by time, last tenth", n/10, func() (int, error) {
		return Export(ctx, local, letters.Filter{Since: diedAt(n - n/10)}, io.Discard)
	})
	out := &sink{}
	measure("export", n, func() (int, error) { return Export(ctx, local, letters.Filter{}, out) })
	t.Logf("export wrote %d MiB, its heap was at most %d MiB", out.bytes>>20, out.heap>>20)
	require.Equal(t, n, out.lines)
	require.Less(t, out.heap, uint64(64<<20), "an export holds a page, not the table")

	dead := letters.Filter{Topic: "topic-3", Kind: schemas.KindDead}
	measure("replay of a topic, dry run", n/10, func() (int, error) {
		r, err := Replay(ctx, local, dead, Options{DryRun: true})
		return int(r.Done), err
	})
	dead.Limit = n / 20
	const rate = 5000
	began := time.Now()
	measure("replay at 5000/s", n/20, func() (int, error) { r, err := Replay(ctx, local, dead, Options{Rate: rate}); return int(r.Done), err })
	require.GreaterOrEqual(t, time.Since(began), time.Duration(n/20-PageSize)*time.Second/rate, "the rate is a bound")
	dead.Limit = 0
	measure("replay of the others, unbounded", n/20, func() (int, error) { r, err := Replay(ctx, local, dead, Options{}); return int(r.Done), err })
	measure("purge of a topic", n/10, func() (int, error) {
		d, err := Purge(ctx, local, letters.Filter{Topic: "topic-4"}, nil)
		return int(d), err
	})
	measure("count what is left", n*8/10, count(letters.Filter{}))
}

// sink receives an export and samples the heap.
type sink struct {
	bytes, lines int
	heap         uint64
}

func (s *sink) Write(p []byte) (int, error) {
	s.bytes += len(p)
	if s.lines++; s.lines%10_000 == 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		s.heap = max(s.heap, m.HeapAlloc)
	}
	return len(p), nil
}
