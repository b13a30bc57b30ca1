package memindex_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/test/memindex"
)

// everything is what both indexes can do.
type everything interface {
	Add(ctx context.Context, entries []index.Entry) error
	Remove(ctx context.Context, entries []index.Entry) error
	Trim(ctx context.Context, upTo []index.SlotPos) error
	Clear(ctx context.Context, slot int) error
	SetMark(ctx context.Context, slot int, upTo int64) error
	Marks(ctx context.Context, slots []int) (map[int]int64, error)
	Next(ctx context.Context, from []index.SlotPos) ([]index.SlotPos, error)
	Count(ctx context.Context, slot int, from, to int64) (int64, error)
	Counts(ctx context.Context, slots []int, bounds []int64) ([]int64, error)
	Range(ctx context.Context, slot int, from, to int64) ([]index.Entry, error)
	Members(ctx context.Context, slot int) ([]index.Entry, error)
	Wake(ctx context.Context, at []index.SlotPos) error
	Wakes(ctx context.Context) <-chan []index.SlotPos
	Ping(ctx context.Context) error
	Close()
}

var (
	_ everything = (*index.Index)(nil)
	_ everything = (*memindex.Index)(nil)
)

// Random calls, the same of both: the index in memory answers what the one in Redis does.
func TestAnswersAsRedisDoes(t *testing.T) {
	onRedis, err := index.New(index.Config{Addrs: []string{miniredis.RunT(t).Addr()}}, zaptest.NewLogger(t))
	require.NoError(t, err)
	t.Cleanup(onRedis.Close)
	both := []everything{onRedis, memindex.New()}
	ctx, r := t.Context(), rand.New(rand.NewPCG(1, 2))
	for step := range 3000 {
		entries := make([]index.Entry, r.IntN(20))
		for i := range entries {
			entries[i] = index.Entry{Slot: r.IntN(3), Pos: r.Int64N(40) - 5, Seq: r.Int64N(60)}
		}
		slot, from := r.IntN(4), r.Int64N(40)-5
		to, what := from+r.Int64N(20)-3, r.IntN(12)
		var answers [2]any
		for i, x := range both {
			var err error
			switch what {
			case 0, 1, 2, 3:
				err = x.Add(ctx, entries)
			case 4:
				err = x.Remove(ctx, entries)
			case 5:
				err = x.Trim(ctx, []index.SlotPos{{Slot: slot, Pos: from}})
			case 6:
				if r := step % 10; r == 0 {
					err = x.Clear(ctx, slot)
				} else {
					err = x.SetMark(ctx, slot, from)
				}
			case 7:
				answers[i], err = x.Marks(ctx, []int{0, 1, 2, 3})
			case 8:
				answers[i], err = x.Next(ctx, []index.SlotPos{{Slot: 2, Pos: from}, {Slot: 0, Pos: to}, {Slot: 3, Pos: to}})
			case 9:
				answers[i], err = x.Count(ctx, slot, from, to)
			case 10:
				answers[i], err = x.Counts(ctx, []int{0, 1, 2, 3}, []int64{-10, from, from + 5, 100})
			default:
				var found []index.Entry
				found, err = x.Range(ctx, slot, from, to)
				slices.SortFunc(found, func(a, b index.Entry) int { return int(a.Seq) - int(b.Seq) })
				answers[i] = append([]index.Entry{}, found...)
			}
			require.NoError(t, err, "step %d", step)
		}
		require.Equal(t, answers[0], answers[1], "step %d, call %d, slot %d, (%d, %d]", step, what, slot, from, to)
	}
	for slot := range 3 {
		want, err := onRedis.Members(ctx, slot)
		require.NoError(t, err)
		require.NotEmpty(t, want)
		got, err := both[1].Members(ctx, slot)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestRefusesWhatAScoreCannotHold(t *testing.T) {
	require.ErrorContains(t, memindex.New().Add(t.Context(), []index.Entry{{Pos: 1<<53 + 1, Seq: 7}}), "seq 7")
}

// Nobody reads: what waits is merged, and both listeners get all that matters.
func TestWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memindex.New()
		ctx, cancel := context.WithCancel(t.Context())
		a, b := m.Wakes(ctx), m.Wakes(ctx)
		for i := range 1000 {
			require.NoError(t, m.Wake(ctx, []index.SlotPos{{Slot: i % 2, Pos: int64(2000 - i)}}))
		}
		synctest.Wait()
		for _, c := range []<-chan []index.SlotPos{a, b} {
			lowest := map[int]int64{}
			for len(lowest) < 2 || lowest[0] != 1002 || lowest[1] != 1001 {
				for _, s := range <-c {
					lowest[s.Slot] = s.Pos
				}
			}
		}
		cancel()
		synctest.Wait()
		for range a { // what was not taken yet may still come; then it is closed
		}
		for range b {
		}
	})
}

func TestForgetsWhenFlushed(t *testing.T) {
	m := memindex.New()
	require.NoError(t, m.Add(t.Context(), []index.Entry{{Slot: 1, Pos: 2, Seq: 3}}))
	require.NoError(t, m.SetMark(t.Context(), 1, 9))
	m.Flush()
	marks, err := m.Marks(t.Context(), []int{1})
	require.NoError(t, err)
	require.Empty(t, marks)
	left, err := m.Members(t.Context(), 1)
	require.NoError(t, err)
	require.Empty(t, left)
}
