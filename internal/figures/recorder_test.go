package figures

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// saved is what a database has: deliveries by minute.
type saved struct {
	mu     sync.Mutex
	counts map[int64]int64
	calls  int
}

func (s *saved) put(minute, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[minute] = n
	s.calls++
}

func (s *saved) all() map[int64]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

func (s *saved) times() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// fixture is a recorder with a database of its own, in virtual time. Its clock is an hour ahead.
type fixture struct {
	*Recorder
	delivered prometheus.Counter
	saved     saved
	away      atomic.Bool // the database does not answer
	gather    prometheus.Gatherer
	stop      func()
}

const ahead = time.Hour

func newFixture(t *testing.T, gather func(prometheus.Gatherer) prometheus.Gatherer) *fixture {
	t.Helper()
	f := &fixture{delivered: prometheus.NewCounter(prometheus.CounterOpts{Name: "notyet_dispatcher_delivered_total"}), saved: saved{counts: map[int64]int64{}}}
	reg := prometheus.NewRegistry()
	reg.MustRegister(f.delivered)
	f.gather = reg
	if gather != nil {
		f.gather = gather(reg)
	}
	call := func(ctx context.Context) error {
		if f.away.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	f.Recorder = NewRecorder(Config{
		Gather: f.gather,
		Time:   func(ctx context.Context) (time.Time, error) { return time.Now().Add(ahead), call(ctx) },
		Save: func(ctx context.Context, minute int64, data []byte) error {
			if err := call(ctx); err != nil {
				return err
			}
			counts, ok := ParseMinute(data)
			require.True(t, ok)
			f.saved.put(minute, counts.N[Delivered])
			return nil
		},
		Targets: func() []string { return []string{"orders"} },
	}, zap.NewNop())
	return f
}

func (f *fixture) start(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	f.stop = func() {
		t.Helper()
		cancel()
		require.NoError(t, <-done)
	}
	synctest.Wait()
}

// first is the minute in which virtual time begins, by the database's clock.
func first() int64 { return time.Now().Add(ahead).Unix() / 60 }

func (f *fixture) now(t *testing.T) Now {
	t.Helper()
	now, ok := ParseNow(f.Now())
	require.True(t, ok, string(f.Now()))
	return now
}

// wait passes virtual time, a little beyond it, so that all that was due then is done.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestRecordsTheLastMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.start(t)
		f.delivered.Add(10)
		wait(5 * time.Second)
		now := f.now(t)
		require.Equal(t, int64(10), now.Last.N[Delivered])
		require.Equal(t, int64(10_000), now.Window, "5 s and what may have been before the first reading")
		require.Equal(t, []string{"orders"}, now.Targets)

		wait(50 * time.Second)
		require.Equal(t, int64(10), f.now(t).Last.N[Delivered])
		wait(10 * time.Second)
		now = f.now(t)
		require.Zero(t, now.Last.N[Delivered], "it is longer ago than a minute")
		require.Equal(t, int64(60_000), now.Window)
		wait(time.Hour)
		f.stop()
		require.LessOrEqual(t, len(f.readings), 15)
	})
}

func TestSavesMinutesByTheDatabasesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		m := first()
		f.start(t)
		wait(10 * time.Second)
		f.delivered.Add(3)
		require.Empty(t, f.saved.all(), "the minute is not over")
		wait(time.Minute)
		require.Equal(t, map[int64]int64{m: 3}, f.saved.all())
		wait(3 * time.Minute)
		require.Equal(t, 1, f.saved.times(), "nothing is written for minutes in which nothing was done")
		f.delivered.Add(4)
		wait(10 * time.Second)
		f.delivered.Add(5) // not read yet when the process stops
		f.stop()
		require.Equal(t, map[int64]int64{m: 3, m + 4: 9}, f.saved.all(), "the last minute is saved at the stop")
	})
}

func TestADatabaseThatIsAwayHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		m := first()
		f.start(t)
		wait(time.Second)
		f.away.Store(true)
		for range 4 {
			f.delivered.Inc()
			wait(time.Minute)
			require.NotNil(t, f.Now(), "the last minute is still known")
		}
		f.away.Store(false)
		wait(time.Minute)
		require.Equal(t, map[int64]int64{m: 1, m + 1: 1, m + 2: 1, m + 3: 1}, f.saved.all(), "nothing is lost")

		f.away.Store(true)
		for range 60 {
			f.delivered.Inc()
			wait(time.Minute)
		}
		began := time.Now()
		f.stop()
		require.LessOrEqual(t, len(f.minutes.ended), FinalAfter, "it keeps no more than the last minutes")
		require.LessOrEqual(t, time.Since(began), 3*callTimeout, "a stop does not wait for long")
	})
}

// stuck is a metric that does not answer once it is told so.
type stuck struct {
	prometheus.Gatherer
	hangs chan struct{} // closed: it answers
	on    atomic.Bool
}

func (s *stuck) Gather() ([]*dto.MetricFamily, error) {
	if s.on.Load() {
		<-s.hangs
	}
	return s.Gatherer.Gather()
}

func TestAMetricThatHangsIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hanging := &stuck{hangs: make(chan struct{})}
		f := newFixture(t, func(g prometheus.Gatherer) prometheus.Gatherer { hanging.Gatherer = g; return hanging })
		f.start(t)
		wait(time.Second)
		require.NotNil(t, f.Now())
		hanging.on.Store(true)
		wait(time.Minute)
		require.Nil(t, f.Now(), "old figures are not shown as new ones")
		began := time.Now()
		f.stop()
		require.LessOrEqual(t, time.Since(began), 2*callTimeout)
		close(hanging.hangs)
	})
}

func TestMinutes(t *testing.T) {
	at := func(n int64) Counts { return Counts{N: map[string]int64{Delivered: n}} }
	for name, c := range map[string]struct {
		minutes, counts []int64
		want            map[int64]int64
	}{
		"one after the other":                   {[]int64{5, 5, 6, 7}, []int64{1, 2, 3, 5}, map[int64]int64{5: 3, 6: 2}},
		"a process that stood still":            {[]int64{5, 9}, []int64{1, 3}, map[int64]int64{5: 3}},
		"a clock that wavers at the turn":       {[]int64{5, 6, 5, 6, 7}, []int64{1, 2, 3, 4, 5}, map[int64]int64{5: 2, 6: 3}},
		"a clock that was set back by an hour":  {[]int64{65, 5, 6}, []int64{1, 3, 4}, map[int64]int64{65: 3, 5: 1}},
		"nothing was done":                      {[]int64{5, 6, 7}, []int64{0, 0, 0}, map[int64]int64{}},
		"the counters begin before the minutes": {[]int64{5, 6}, []int64{8, 8}, map[int64]int64{5: 8}},
	} {
		t.Run(name, func(t *testing.T) {
			var m minutes
			for i, minute := range c.minutes {
				m.note(minute, at(c.counts[i]))
			}
			got := map[int64]int64{}
			for _, e := range m.ended {
				figures, ok := ParseMinute(e.document)
				require.True(t, ok)
				got[e.minute] = figures.N[Delivered]
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestWhatCannotBeSavedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		save, fails := f.cfg.Save, 3
		f.cfg.Save = func(ctx context.Context, minute int64, data []byte) error { // Run alone calls it
			if fails > 0 {
				fails--
				_ = save(ctx, minute, data) // it was done all the same
				return errors.New("no answer")
			}
			return save(ctx, minute, data)
		}
		m := first()
		f.start(t)
		f.delivered.Add(3)
		wait(2 * time.Minute)
		require.Equal(t, map[int64]int64{m: 3}, f.saved.all(), "the same once more, and not twice as much")
		require.Equal(t, 4, f.saved.times())
		f.stop()
	})
}
