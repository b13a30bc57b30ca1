package index_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/internal/index"
)

// server is what a test may ask past the index.
type server struct {
	redis.UniversalClient
	cfg index.Config // where it is
}

// everywhere calls f with each server of a cluster that has a part of the keys, and otherwise with the only one.
func (s *server) everywhere(t *testing.T, f func(ctx context.Context, one redis.UniversalClient)) {
	ctx := context.Background()
	cluster, ok := s.UniversalClient.(*redis.ClusterClient)
	if !ok {
		f(ctx, s.UniversalClient)
		return
	}
	var one sync.Mutex // the library calls for all servers at once
	require.NoError(t, cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		one.Lock()
		defer one.Unlock()
		f(ctx, c)
		return nil
	}))
}

func (s *server) keys(t *testing.T, pattern string) (all []string) {
	s.everywhere(t, func(ctx context.Context, one redis.UniversalClient) {
		keys, err := one.Keys(ctx, pattern).Result()
		assert.NoError(t, err)
		all = append(all, keys...)
	})
	return all
}

// onEveryServer runs f on miniredis, by both kinds of client, always, and on the servers that
// NOTYET_REDIS_ADDRS names when it is set (with NOTYET_REDIS_CLUSTER or NOTYET_REDIS_MASTER a cluster, or sentinels), under a prefix of its own.
func onEveryServer(t *testing.T, f func(t *testing.T, x *index.Index, raw *server, prefix string)) {
	run := func(t *testing.T, cfg index.Config, raw redis.UniversalClient) {
		x, err := index.New(cfg, zaptest.NewLogger(t, zaptest.Level(zap.InfoLevel)))
		require.NoError(t, err)
		t.Cleanup(x.Close)
		s := &server{raw, cfg}
		t.Cleanup(func() { _ = raw.Close() })
		t.Cleanup(func() {
			for _, key := range s.keys(t, "{"+cfg.Prefix+":*") {
				require.NoError(t, raw.Unlink(context.Background(), key).Err())
			}
		})
		f(t, x, s, cfg.Prefix)
	}
	t.Run("miniredis", func(t *testing.T) {
		addr := miniredis.RunT(t).Addr()
		run(t, index.Config{Addrs: []string{addr}, Prefix: "notyet"}, redis.NewClient(&redis.Options{Addr: addr}))
	})
	// One node that has all the hash slots: the client of a cluster, at least.
	t.Run("miniredis as a cluster", func(t *testing.T) {
		addr := miniredis.RunT(t).Addr()
		run(t, index.Config{Addrs: []string{addr}, Prefix: "notyet", Cluster: true}, redis.NewClient(&redis.Options{Addr: addr}))
	})
	t.Run("redis", func(t *testing.T) {
		addrs := os.Getenv("NOTYET_REDIS_ADDRS")
		if addrs == "" {
			t.Skip("NOTYET_REDIS_ADDRS is not set")
		}
		cfg := index.Config{
			Addrs: strings.Split(addrs, ","), Prefix: fmt.Sprintf("test-%x", rand.Uint64()),
			Cluster: os.Getenv("NOTYET_REDIS_CLUSTER") == "true", MasterName: os.Getenv("NOTYET_REDIS_MASTER"),
		}
		run(t, cfg, redis.NewUniversalClient(&redis.UniversalOptions{Addrs: cfg.Addrs, IsClusterMode: cfg.Cluster, MasterName: cfg.MasterName}))
	})
}

// A channel is the whole server's, so a database of its own (redis.db) would not keep an installation's wakes from another.
func TestInstallationsShareAServer(t *testing.T) {
	onEveryServer(t, func(t *testing.T, _ *index.Index, raw *server, prefix string) {
		ctx := t.Context()
		var both []*index.Index
		var wakes []<-chan []index.SlotPos
		for _, id := range []string{"5f0c1a2b00000000", "5f0c1a2c00000000"} {
			cfg := raw.cfg
			cfg.Installation = id
			x, err := index.New(cfg, zaptest.NewLogger(t))
			require.NoError(t, err)
			t.Cleanup(x.Close)
			both, wakes = append(both, x), append(wakes, x.Wakes(ctx))
		}
		require.Eventually(t, func() bool {
			var here int64
			raw.everywhere(t, func(ctx context.Context, one redis.UniversalClient) {
				n, err := one.PubSubNumSub(ctx, prefix+":5f0c1a2b:wake", prefix+":5f0c1a2c:wake").Result()
				assert.NoError(t, err)
				here += n[prefix+":5f0c1a2b:wake"] + n[prefix+":5f0c1a2c:wake"]
			})
			return here == 2
		}, time.Minute, time.Millisecond)
		require.NoError(t, both[0].Add(ctx, []index.Entry{{Slot: 1, Pos: base, Seq: 1}}))
		require.NoError(t, both[0].Wake(ctx, []index.SlotPos{{Slot: 1, Pos: base}}))
		require.NoError(t, both[1].Wake(ctx, []index.SlotPos{{Slot: 2, Pos: base}}))
		require.Equal(t, []index.SlotPos{{Slot: 2, Pos: base}}, <-wakes[1], "the other's was published before")
		require.Equal(t, []index.SlotPos{{Slot: 1, Pos: base}}, <-wakes[0])
		next, err := both[1].Next(ctx, []index.SlotPos{{Slot: 1}})
		require.NoError(t, err)
		require.Empty(t, next)
		require.NoError(t, both[1].Clear(ctx, 1))
		next, err = both[0].Next(ctx, []index.SlotPos{{Slot: 1}})
		require.NoError(t, err)
		require.Len(t, next, 1)
	})
}

const base = int64(1_790_000_000_000) // a day in 2026, in ms: near enough to what scores will be

func TestAddNextRemove(t *testing.T) {
	onEveryServer(t, func(t *testing.T, x *index.Index, _ *server, _ string) {
		ctx := t.Context()
		require.NoError(t, x.Ping(ctx))
		entries := []index.Entry{
			{Slot: 1, Pos: base + 5, Seq: 3<<48 | 1},
			{Slot: 0, Pos: base + 1, Seq: 3<<48 | 2},
			{Slot: 1, Pos: base + 2, Seq: 1<<63 - 1}, // the highest seq there is
			{Slot: 7, Pos: base + 2, Seq: 0},
		}
		require.NoError(t, x.Add(ctx, entries))
		require.NoError(t, x.Add(ctx, entries), "a doubled command must change nothing")

		next, err := x.Next(ctx, []index.SlotPos{{Slot: 1, Pos: 0}, {Slot: 9, Pos: 0}, {Slot: 0, Pos: base}, {Slot: 7, Pos: base + 2}})
		require.NoError(t, err)
		require.Equal(t, []index.SlotPos{{Slot: 1, Pos: base + 2}, {Slot: 0, Pos: base + 1}}, next)
		next, err = x.Next(ctx, []index.SlotPos{{Slot: 1, Pos: base + 2}})
		require.NoError(t, err)
		require.Equal(t, []index.SlotPos{{Slot: 1, Pos: base + 5}}, next, "the first above, not at")

		members, err := x.Members(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, []index.Entry{entries[2], entries[0]}, members)

		require.NoError(t, x.Remove(ctx, entries[:3]))
		require.NoError(t, x.Remove(ctx, entries[:3]))
		for slot, want := range map[int]int{0: 0, 1: 0, 7: 1} {
			members, err := x.Members(ctx, slot)
			require.NoError(t, err)
			require.Len(t, members, want, "slot %d", slot)
		}
	})
}

func TestAddMovesAnEntryToItsLastPosition(t *testing.T) {
	onEveryServer(t, func(t *testing.T, x *index.Index, _ *server, _ string) {
		ctx := t.Context()
		require.NoError(t, x.Add(ctx, []index.Entry{{Slot: 2, Pos: base, Seq: 8}, {Slot: 3, Pos: 1, Seq: 9}, {Slot: 2, Pos: base + 9, Seq: 8}}))
		members, err := x.Members(ctx, 2)
		require.NoError(t, err)
		require.Equal(t, []index.Entry{{Slot: 2, Pos: base + 9, Seq: 8}}, members)
	})
}

// Larger than one command and than one pipeline, over several slots.
func TestManyEntries(t *testing.T) {
	onEveryServer(t, func(t *testing.T, x *index.Index, _ *server, _ string) {
		ctx := t.Context()
		const n, slots = 12_345, 3
		entries := make([]index.Entry, n)
		for i := range entries {
			entries[i] = index.Entry{Slot: i % slots, Pos: base + int64(i), Seq: int64(i)}
		}
		rand.Shuffle(n, func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		require.NoError(t, x.Add(ctx, entries))
		total := 0
		for slot := range slots {
			members, err := x.Members(ctx, slot)
			require.NoError(t, err)
			for i, e := range members {
				require.Equal(t, index.Entry{Slot: slot, Pos: base + int64(i*slots+slot), Seq: int64(i*slots + slot)}, e)
			}
			total += len(members)
		}
		require.Equal(t, n, total)

		require.NoError(t, x.Remove(ctx, entries[1:]))
		left, err := x.Members(ctx, entries[0].Slot)
		require.NoError(t, err)
		require.Equal(t, entries[:1], left)
	})
}

func TestCountAndTrimBounds(t *testing.T) {
	onEveryServer(t, func(t *testing.T, x *index.Index, _ *server, _ string) {
		ctx := t.Context()
		for i := range int64(10) {
			require.NoError(t, x.Add(ctx, []index.Entry{{Slot: 4, Pos: base + i, Seq: i}, {Slot: 5, Pos: base + i, Seq: i}}))
		}
		for _, c := range []struct{ from, to, want int64 }{
			{base - 1, base + 9, 10}, {base, base + 9, 9}, {base, base, 0}, {base, base + 1, 1}, {base + 9, base, 0}, {base - 1, 1 << 53, 10},
		} {
			n, err := x.Count(ctx, 4, c.from, c.to)
			require.NoError(t, err)
			require.Equal(t, c.want, n, "(%d, %d]", c.from-base, c.to-base)
		}
		for range 2 {
			require.NoError(t, x.Trim(ctx, []index.SlotPos{{Slot: 4, Pos: base + 3}, {Slot: 5, Pos: base + 9}, {Slot: 6, Pos: base}}))
		}
		left, err := x.Members(ctx, 4)
		require.NoError(t, err)
		require.Len(t, left, 6)
		require.Equal(t, base+4, left[0].Pos)
		n, err := x.Count(ctx, 5, -1<<53, 1<<53)
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

func TestCountsBetweenBounds(t *testing.T) {
	onEveryServer(t, func(t *testing.T, x *index.Index, _ *server, _ string) {
		ctx := t.Context()
		var entries []index.Entry
		slots := make([]int, 130) // more than go into one round trip
		for i := range slots {
			slots[i] = i
			entries = append(entries, index.Entry{Slot: i, Pos: base, Seq: 1}, index.Entry{Slot: i, Pos: base + 5, Seq: 2}, index.Entry{Slot: i, Pos: base + 10, Seq: 3})
		}
		require.NoError(t, x.Add(ctx, entries))
		counts, err := x.Counts(ctx, slots, []int64{base - 1, base, base + 4, base + 100})
		require.NoError(t, err)
		require.Equal(t, []int64{130, 0, 260}, counts)
		found, err := x.Range(ctx, 7, base, base+5)
		require.NoError(t, err)
		require.Equal(t, []index.Entry{{Slot: 7, Pos: base + 5, Seq: 2}}, found)
		counts, err = x.Counts(ctx, slots[:2], []int64{base, base + 5})
		require.NoError(t, err)
		require.Equal(t, []int64{2}, counts)
		for _, bounds := range [][]int64{nil, {base}} {
			counts, err = x.Counts(ctx, slots, bounds)
			require.NoError(t, err)
			require.Empty(t, counts)
		}
	})
}

func TestScoresAreExact(t *testing.T) {
	onEveryServer(t, func(t *testing.T, x *index.Index, _ *server, _ string) {
		ctx := t.Context()
		const highest = int64(1 << 53)
		require.NoError(t, x.Add(ctx, []index.Entry{{Pos: highest - 1, Seq: 1}, {Pos: highest, Seq: 2}, {Pos: -highest, Seq: 3}}))
		next, err := x.Next(ctx, []index.SlotPos{{Pos: highest - 1}})
		require.NoError(t, err)
		require.Equal(t, []index.SlotPos{{Pos: highest}}, next)
		members, err := x.Members(ctx, 0)
		require.NoError(t, err)
		require.Equal(t, []index.Entry{{Pos: -highest, Seq: 3}, {Pos: highest - 1, Seq: 1}, {Pos: highest, Seq: 2}}, members)

		require.ErrorContains(t, x.Add(ctx, []index.Entry{{Pos: highest + 1, Seq: 4}}), "2^53")
	})
}

func TestMarks(t *testing.T) {
	onEveryServer(t, func(t *testing.T, x *index.Index, raw *server, prefix string) {
		ctx := t.Context()
		require.NoError(t, x.SetMark(ctx, 1, base))
		require.NoError(t, x.SetMark(ctx, 2, 0))
		require.NoError(t, raw.Set(ctx, "{"+prefix+":3}:mark", "not a number", 0).Err())
		marks, err := x.Marks(ctx, []int{0, 1, 2, 3})
		require.NoError(t, err)
		require.Equal(t, map[int]int64{1: base, 2: 0}, marks, "an absent or foreign mark means: rebuild")

		require.NoError(t, x.SetMark(ctx, 1, base+1))
		require.NoError(t, x.Add(ctx, []index.Entry{{Slot: 1, Pos: base, Seq: 1}, {Slot: 2, Pos: base, Seq: 2}}))
		for range 2 {
			require.NoError(t, x.Clear(ctx, 1))
		}
		marks, err = x.Marks(ctx, []int{1, 2})
		require.NoError(t, err)
		require.Equal(t, map[int]int64{2: 0}, marks)
		members, err := x.Members(ctx, 1)
		require.NoError(t, err)
		require.Empty(t, members)
		n, err := x.Count(ctx, 2, 0, base)
		require.NoError(t, err)
		require.EqualValues(t, 1, n, "another slot must not be touched")
	})
}

func TestEmptyCallsChangeNothing(t *testing.T) {
	onEveryServer(t, func(t *testing.T, x *index.Index, _ *server, _ string) {
		ctx := t.Context()
		require.NoError(t, x.Add(ctx, nil))
		require.NoError(t, x.Remove(ctx, nil))
		require.NoError(t, x.Trim(ctx, nil))
		require.NoError(t, x.Wake(ctx, nil))
		next, err := x.Next(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, next)
		marks, err := x.Marks(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, marks)
	})
}

func TestKeysOfASlotShareAHashTag(t *testing.T) {
	onEveryServer(t, func(t *testing.T, x *index.Index, raw *server, prefix string) {
		ctx := t.Context()
		require.NoError(t, x.Add(ctx, []index.Entry{{Slot: 17, Pos: base, Seq: 1}}))
		require.NoError(t, x.SetMark(ctx, 17, base))
		require.ElementsMatch(t, []string{"{" + prefix + ":17}:due", "{" + prefix + ":17}:mark"}, raw.keys(t, "*"+prefix+"*"))
		members, err := raw.ZRange(ctx, "{"+prefix+":17}:due", 0, -1).Result()
		require.NoError(t, err)
		require.Equal(t, []string{"1"}, members)
	})
}

func TestForeignMemberIsAnErrorNotAnEntry(t *testing.T) {
	onEveryServer(t, func(t *testing.T, x *index.Index, raw *server, prefix string) {
		ctx := t.Context()
		require.NoError(t, raw.ZAdd(ctx, "{"+prefix+":1}:due", redis.Z{Score: 1, Member: "whose?"}).Err())
		_, err := x.Members(ctx, 1)
		require.ErrorContains(t, err, "whose?")
	})
}

func TestServerAnswersAnError(t *testing.T) {
	onEveryServer(t, func(t *testing.T, x *index.Index, raw *server, prefix string) {
		ctx := t.Context()
		require.NoError(t, raw.Set(ctx, "{"+prefix+":1}:due", "a string", 0).Err())
		require.ErrorContains(t, x.Add(ctx, []index.Entry{{Slot: 0, Pos: 1, Seq: 1}, {Slot: 1, Pos: 1, Seq: 1}}), "WRONGTYPE")
		_, err := x.Next(ctx, []index.SlotPos{{Slot: 0}, {Slot: 1}})
		require.ErrorContains(t, err, "WRONGTYPE")
		require.NoError(t, raw.ZAdd(ctx, "{"+prefix+":1}:mark", redis.Z{Member: 1}).Err())
		_, err = x.Marks(ctx, []int{0, 1})
		require.ErrorContains(t, err, "WRONGTYPE", "hidden behind the absent key of slot 0")
	})
}

// A dead server must cost a caller little: one refused connection and one retry.
func TestAwayAndBack(t *testing.T) {
	m := miniredis.RunT(t)
	x, err := index.New(index.Config{Addrs: []string{m.Addr()}}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(x.Close)
	ctx := t.Context()
	require.NoError(t, x.SetMark(ctx, 1, 1))

	m.Close()
	const most = 2 * time.Second
	fastest := time.Hour
	for tries := 0; tries < 5 && fastest >= most; tries++ { // a machine may stand still
		begin := time.Now()
		_, err = x.Marks(ctx, []int{1})
		require.Error(t, err, "an unreachable server must not look like an empty one")
		require.Error(t, x.Ping(ctx))
		fastest = min(fastest, time.Since(begin))
	}
	require.Less(t, fastest, most)

	require.NoError(t, m.Restart())
	require.NoError(t, x.SetMark(ctx, 1, 2), "the first command after it is back")
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]index.Config{
		"braces":               {Prefix: "a{b"},
		"cluster and sentinel": {Cluster: true, MasterName: "m"},
		"cluster database":     {Cluster: true, DB: 1},
		"two addresses":        {Addrs: []string{"a:1", "b:1"}},
		"negative timeout":     {Timeout: -1},
	} {
		_, err := index.New(c, zap.NewNop())
		require.ErrorContains(t, err, "configuring the index", name)
	}
	for name, c := range map[string]index.Config{
		"zero":     {},
		"cluster":  {Cluster: true, Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}},
		"sentinel": {MasterName: "m", Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}, DB: 3},
	} {
		x, err := index.New(c, zap.NewNop())
		require.NoError(t, err, name)
		x.Close()
		require.Error(t, x.Ping(t.Context()), "closed")
	}
}
