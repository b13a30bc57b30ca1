package intake

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// whole reads every line from its begin to pos.
func (f *fixture) whole(pos int64) []line.Entry {
	f.t.Helper()
	var ranges []line.Range
	for _, slot := range f.allSlots() {
		ranges = append(ranges, line.Range{Slot: slot, From: 0, To: pos})
	}
	entries, err := f.Entries(f.ctx, ranges)
	require.NoError(f.t, err)
	return entries
}

func TestEntries(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		high := func(r *schemas.Request) { r.Settings.Priority = schemas.PriorityHigh }
		low := func(r *schemas.Request) { r.Settings.Priority = schemas.PriorityLow }
		for i, o := range []option{low, high, in(time.Second), low, high} { // all of them due at the same time
			s.do(s.schedule(fmt.Sprint(i), key("k"), o), s.schedule(fmt.Sprint("later", i), key("k"), o, in(2000*ms)), s.schedule(fmt.Sprint("other", i)))
		}
		entries := s.whole(t0 + 1000)
		require.Len(t, entries, 10)
		require.True(t, slices.IsSortedFunc(entries, func(a, b line.Entry) int {
			return slices.Compare([]int64{int64(a.Slot), a.Pos, a.Seq}, []int64{int64(b.Slot), b.Pos, b.Seq})
		}), "by slot, pos and seq, whatever the lanes")
		for _, e := range entries {
			tasks, _, err := s.Tasks(s.ctx, []int64{e.Seq}, 1<<20)
			require.NoError(t, err)
			require.Equal(t, line.Entry{Place: handle.PlaceOf(&tasks[0]).Place, Lane: s.lane(tasks[0].Topic, tasks[0].Class)}, e)
		}
		slot := s.row("0").Slot
		for _, c := range []struct {
			from, to int64
			n        int
		}{{0, t0 + 999, 0}, {t0 + 999, t0 + 1000, 5}, {t0 + 1000, t0 + 1999, 0}, {t0 + 1000, t0 + 2000, 5}, {t0 + 2000, t0 + 1000, 0}} {
			part, err := s.Claimed(s.ctx, []line.Range{{Slot: slot, From: c.from, To: c.to}})
			require.NoError(t, err)
			part = slices.DeleteFunc(part, func(e line.Entry) bool { return len(s.idOf(e)) > 5 })
			require.Len(t, part, c.n, "(from, to]: %d, %d", c.from, c.to)
			for _, e := range part {
				require.Equal(t, map[bool]int64{true: e.Pos}[e.Pos == c.from+1], e.Due, "only those at the first place")
			}
		}
		none, err := s.Claimed(s.ctx, nil)
		require.NoError(t, err)
		require.Empty(t, none)
	})
}

// idOf names the entry's task; "other…" ones are in a slot by chance.
func (f *fixture) idOf(e line.Entry) string {
	tasks, _, err := f.Tasks(f.ctx, []int64{e.Seq}, 1<<20)
	require.NoError(f.t, err)
	if tasks[0].ID[0] == 'o' {
		return tasks[0].ID
	}
	return ""
}

// Tasks that came when their places were claimed already share a place. Their next owner knows their due times.
func TestDoubtsKnowTheDueTimesOfLateTasks(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.claim(t0 + 1000)
		s.now = t0 + 2000
		s.do(s.schedule("a", key("k"), in(-2020*ms)), s.schedule("b", key("k"), in(-2010*ms)), s.schedule("c", key("k"), in(1000*ms)))
		slot := s.row("a").Slot
		entries, err := s.Doubts(s.ctx, []line.Range{{Slot: slot, From: t0, To: t0 + 5000}})
		require.NoError(t, err)
		dues := map[int64]int64{}
		for _, e := range entries {
			dues[e.Seq] = e.Due
		}
		require.Equal(t, map[int64]int64{s.row("a").Seq: t0 - 20, s.row("b").Seq: t0 - 10, s.row("c").Seq: 0}, dues)
	})
}

// A claim that is bounded by Nth, step by step, takes every task once, however many share a place.
func TestNthBoundsAClaim(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		const same, spread = 250, 150
		var records []any
		for i := range same {
			records = append(records, s.schedule(fmt.Sprint("same", i), key("k")))
		}
		for i := range spread {
			records = append(records, s.schedule(fmt.Sprint("spread", i), key("k"), in(time.Duration(i*20)*ms)))
		}
		s.do(records...)
		slot := s.row("same0").Slot

		seen := map[int64]bool{}
		from, steps := int64(0), 0
		for ; ; steps++ {
			pos, ok, err := s.Nth(s.ctx, line.Range{Slot: slot, From: from, To: math.MaxInt64}, 40)
			require.NoError(t, err)
			if !ok {
				pos = t0 + 100_000
			}
			entries, err := s.Entries(s.ctx, []line.Range{{Slot: slot, From: from, To: pos}})
			require.NoError(t, err)
			counts, err := s.Count(s.ctx, []line.Range{{Slot: slot, From: from, To: pos}})
			require.NoError(t, err)
			require.Equal(t, len(entries), counts[slot])
			for _, e := range entries {
				require.False(t, seen[e.Seq])
				seen[e.Seq] = true
			}
			if !ok {
				break
			}
			require.GreaterOrEqual(t, len(entries), 40)
			from = pos
		}
		require.Len(t, seen, same+spread)
		require.Greater(t, steps, 3)
		_, ok, err := s.Nth(s.ctx, line.Range{Slot: (slot + 1) % testSlots, To: math.MaxInt64}, 1)
		require.NoError(t, err)
		require.False(t, ok)
		_, ok, err = s.Nth(s.ctx, line.Range{Slot: slot, To: 1}, 1)
		require.NoError(t, err)
		require.False(t, ok, "what lies beyond is not counted")
	})
}

func TestCount(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for i := range 20 {
			s.do(s.schedule(fmt.Sprint(i)))
		}
		want := map[int]int{}
		var ranges []line.Range
		for _, e := range s.whole(t0 + 1000) {
			want[e.Slot]++
		}
		for slot := range testSlots {
			ranges = append(ranges, line.Range{Slot: slot, From: 0, To: t0 + 1000})
		}
		counts, err := s.Count(s.ctx, ranges)
		require.NoError(t, err)
		require.Equal(t, want, counts)
		counts, err = s.Count(s.ctx, nil)
		require.NoError(t, err)
		require.Empty(t, counts)
	})
}

// An owner may hold every slot there can be.
func TestAsManySlotsAsThereCanBe(t *testing.T) {
	if os.Getenv("NOTYET_LONG") == "" {
		t.Skip("NOTYET_LONG=1 runs it: it goes through 4,096 slots")
	}
	each(t, func(t *testing.T, s *fixture) {
		_, err := s.db.ExecContext(s.ctx, "DELETE FROM slots")
		require.NoError(t, err)
		require.NoError(t, s.Migrate(s.ctx, 4096))
		var records []any
		for i := range 50 {
			records = append(records, s.schedule(fmt.Sprint(i)))
		}
		s.do(records...)
		s.claim(t0 + 1000)
		counts := map[int]line.Tally{}
		for _, e := range s.whole(t0 + 1000) {
			countIn(counts, e)
		}
		var done []line.Done
		for slot := range 4096 {
			done = append(done, line.Done{Slot: slot, Epoch: s.epoch, From: 0, To: t0 + 1000, Tally: counts[slot]})
		}
		settled, err := s.Settle(s.ctx, done, nil, store.At(s.now))
		require.NoError(t, err)
		require.Empty(t, settled.Mismatch)
		require.Equal(t, "delivered", s.state("7"))
		_, next, err := s.Next(s.ctx, s.allSlots())
		require.NoError(t, err)
		require.Empty(t, next)
		kept, err := s.Release(s.ctx, s.allSlots(), s.epoch)
		require.NoError(t, err)
		require.Empty(t, kept)
	})
}

// Pages by rows and by bytes add up to the whole, whatever the bounds.
func TestTasksInPages(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		const n = 1500 // more than a statement asks for
		var records []any
		for i := range n {
			records = append(records, s.schedule(fmt.Sprint(i), value(strings.Repeat("x", i%100))))
		}
		s.do(records...)
		var seqs []int64
		for _, p := range s.last.Added {
			seqs = append(seqs, p.Seq)
		}
		slices.SortFunc(seqs, func(a, b int64) int { return int(b - a) })
		gone := task.Seq(s.source.ID, s.offset)
		asked := append(slices.Clone(seqs), gone)
		slices.Reverse(seqs)

		for _, maxBytes := range []int{1 << 30, 100_000, 5_000} {
			var got []int64
			for rest, pages := slices.Clone(asked), 0; len(rest) > 0; pages++ {
				require.Less(t, pages, n, "no page is empty")
				var tasks []task.Task
				var err error
				tasks, rest, err = s.Tasks(s.ctx, rest, maxBytes)
				require.NoError(t, err)
				size := 0
				for i, task := range tasks {
					require.Less(t, size, maxBytes, "the page ends with the body that reaches the bound")
					size += len(task.Body)
					got = append(got, task.Seq)
					if i%500 == 0 {
						require.Equal(t, s.row(task.ID), task)
					}
				}
			}
			require.Equal(t, seqs, got, "in the order of seq; what is not there any more is left out")
		}
		require.Equal(t, gone, asked[n], "the caller's list is left as it is")
		tasks, rest, err := s.Tasks(s.ctx, nil, 10)
		require.NoError(t, err)
		require.Empty(t, tasks)
		require.Empty(t, rest)
	})
}

// Ids, keys and values are bytes, and stay what they are in statements of every size.
func TestManyTasksKeepTheirBytes(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		const n = 2*handle.PreparedRows + 3
		random := rand.NewChaCha8([32]byte{})
		want := map[string]*schemas.Request{}
		var records []any
		for i := range n {
			noise := make([]byte, 50)
			_, _ = random.Read(noise)
			r := s.schedule(fmt.Sprintf("%d\x00'\\%s", i, noise), key(string(noise[:20])), value(string(noise[20:])))
			want[r.ID] = r
			records = append(records, r)
		}
		s.do(records...)
		var seqs []int64
		for _, p := range s.last.Added {
			seqs = append(seqs, p.Seq)
		}
		tasks, rest, err := s.Tasks(s.ctx, seqs, 1<<30)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Len(t, tasks, n)
		for _, task := range tasks {
			r := want[task.ID]
			require.NotNil(t, r, "%q", task.ID)
			body, err := schemas.DecodeBody(task.Body)
			require.NoError(t, err)
			require.Equal(t, r.Key, body.Key)
			require.Equal(t, r.Value, body.Value)
			require.Equal(t, r.Due, task.Due)
		}
	})
}
