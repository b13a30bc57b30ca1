package dispatcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/embedded"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/store"
)

func TestLongestLag(t *testing.T) {
	for name, c := range map[string]struct {
		counts []int64
		want   time.Duration
	}{
		"nothing":                          {nil, 0},
		"as much as goes through":          {[]int64{15_000, 15_000, 15_000}, grain},
		"little":                           {[]int64{300, 300, 300}, 10 * time.Millisecond},
		"one burst":                        {[]int64{0, 0, 60_000, 0}, 2 * time.Second},
		"a burst over two grains":          {[]int64{0, 30_000, 30_000}, 1500 * time.Millisecond},
		"two bursts with time in between":  {[]int64{30_000, 0, 0, 60_000}, 2 * time.Second},
		"two bursts without that much":     {[]int64{60_000, 0, 60_000}, 3 * time.Second},
		"a burst that little work follows": {[]int64{60_000, 3000, 3000}, 2 * time.Second},
	} {
		require.Equal(t, c.want, longestLag(c.counts), name)
	}
}

// Before a burst the look-ahead grows, and is as it always is without one, or without the index.
func TestBurstsAreForeseen(t *testing.T) {
	redis, err := embedded.StartRedis()
	require.NoError(t, err)
	t.Cleanup(redis.Close)
	ix, err := index.New(index.Config{Addrs: []string{redis.Addr()}}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(ix.Close)
	sh := alone(t, Config{MemberID: "one", LookAhead: 10 * time.Millisecond, BurstLookAhead: 10 * time.Second})
	fl := sh.inFlight()
	fl.Owning.Took([]store.Slot{{Slot: 0}, {Slot: 1}}, 5, nil, nil)
	la := newLookahead(sh, fl.Claims, ix)

	due := la.clock.Millis() + 8_000
	entries := make([]index.Entry, 900)
	for i := range entries {
		entries[i] = index.Entry{Slot: i % 2, Pos: due, Seq: int64(i)}
	}
	next := func(at int64) { fl.Claims.NextKnown([]store.SlotPos{{Slot: 0, Pos: at}, {Slot: 1, Pos: at}}) }
	ahead := func() int64 { la.adjust(t.Context()); return la.ahead.Load() }

	next(due)
	require.NoError(t, ix.Add(t.Context(), entries[:300]))
	require.Equal(t, int64(10), ahead(), "few")
	require.NoError(t, ix.Add(t.Context(), entries[300:]))
	require.Equal(t, int64(30), ahead(), "as long as it takes to read 900")
	la.cfg.BurstLookAhead = 500 * time.Millisecond
	require.Equal(t, int64(10), ahead(), "they are further ahead than that")
	la.cfg.BurstLookAhead = 0
	require.Equal(t, int64(10), ahead())
	la.cfg.BurstLookAhead = 10 * time.Second
	redis.Close()
	require.Equal(t, int64(10), ahead())
	require.Equal(t, 1, counted(la.metrics.indexErrors))
	fl.Owning.Took([]store.Slot{{Slot: 0}, {Slot: 1}}, 6, nil, nil)
	require.Equal(t, int64(10), ahead(), "all is claimed")
	require.Equal(t, 1, counted(la.metrics.indexErrors), "and nobody asks")
}
