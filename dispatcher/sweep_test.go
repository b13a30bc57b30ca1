package dispatcher

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
)

// told lets the index know of stored tasks, as a scanner does.
func (r *running) told(places []store.Place) {
	r.f.Helper()
	for _, p := range places {
		require.NoError(r.f, r.index.Add(r.f.Context(), []index.Entry{{Slot: p.Slot, Pos: p.Pos, Seq: uint64(p.Seq)}}))
		require.NoError(r.f, r.index.(*index.Index).Wake(r.f.Context(), []index.SlotPos{{Slot: p.Slot, Pos: p.Due}}))
	}
}

func (r *running) warmed() {
	r.f.Helper()
	r.f.eventually("the index is loaded", func() bool {
		marks, err := r.index.Marks(r.f.Context(), r.f.slots)
		return err == nil && len(marks) == len(r.f.slots)
	})
}

// A task that the index has lost, and that nobody was woken for, is found by the sweep; with both at work it finds nothing.
func TestSweepFindsWhatTheIndexLost(t *testing.T) {
	f := newFixture(t, 2, "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	d.warmed()
	d.told(f.schedule(askMany(10, "orders", "told", time.Now().Add(700*time.Millisecond), schemas.HeaderEvents, "none")...).Added)
	f.eventually("they are delivered", func() bool { return orders.count() == 10 })
	require.Zero(t, counted(d.metrics.swept))

	lost := f.schedule(ask("orders", "lost", time.Now().Add(2*time.Second))).Added[0]
	entry := []index.Entry{{Slot: lost.Slot, Pos: lost.Pos, Seq: uint64(lost.Seq)}}
	require.NoError(t, d.index.Add(t.Context(), entry))
	require.NoError(t, d.index.Remove(t.Context(), entry))
	f.eventually("it is delivered all the same", func() bool { return orders.copies()["lost"] == 1 })
	require.Zero(t, counted(d.metrics.swept), "a sweep found it ahead of its time")

	f.schedule(ask("orders", "overdue", time.Now()))
	f.eventually("it is delivered all the same", func() bool { return orders.copies()["overdue"] == 1 })
	require.Positive(t, counted(d.metrics.swept))
}

// Entries that are missing, that are too many, and as many of both: each is found, at the second look, and mended.
func TestDriftIsFoundAndMended(t *testing.T) {
	f := newFixture(t, 2, "orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	d.warmed()
	places := f.schedule(askMany(40, "orders", "later", time.Now().Add(time.Hour))...).Added
	d.told(places)
	entry := func(p store.Place) index.Entry { return index.Entry{Slot: p.Slot, Pos: p.Pos, Seq: uint64(p.Seq)} }
	phantom := entry(places[0])
	phantom.Seq += 1000
	var twin store.Place // of the same slot as the first
	for _, p := range places[1:] {
		if p.Slot == places[0].Slot {
			twin = p
		}
	}
	same := func() bool {
		var want, have []index.Entry
		for _, p := range places {
			want = append(want, entry(p))
		}
		for _, slot := range f.slots {
			members, err := d.index.(*index.Index).Members(t.Context(), slot)
			require.NoError(t, err)
			have = append(have, members...)
		}
		order := func(a, b index.Entry) int { return cmp.Compare(a.Seq, b.Seq) }
		slices.SortFunc(want, order)
		slices.SortFunc(have, order)
		return slices.Equal(want, have)
	}
	// drift is what the loop does every half minute.
	look := func(suspects map[index.Entry]bool) map[index.Entry]bool {
		suspects, err := d.drift(t.Context(), suspects)
		require.NoError(t, err)
		return suspects
	}
	suspects := look(nil)
	suspects = look(suspects)
	require.Empty(t, look(suspects))
	require.Zero(t, counted(d.metrics.drift), "nothing is wrong")
	require.True(t, same())

	// Updates that are on their way: at each look others.
	for _, p := range places[:4] {
		require.NoError(t, d.index.Remove(t.Context(), []index.Entry{entry(p)}))
		suspects = look(suspects)
		require.Equal(t, map[index.Entry]bool{entry(p): true}, suspects)
		require.NoError(t, d.index.Add(t.Context(), []index.Entry{entry(p)}))
	}
	require.Zero(t, counted(d.metrics.drift))
	require.Empty(t, look(suspects))

	for _, plant := range []struct {
		what   string
		counts bool // an entry too many is no drift
		do     func() error
	}{
		{"missing", true, func() error { return d.index.Remove(t.Context(), []index.Entry{entry(places[0])}) }},
		{"too many", false, func() error { return d.index.Add(t.Context(), []index.Entry{phantom}) }},
		{"one for another", true, func() error {
			if err := d.index.Remove(t.Context(), []index.Entry{entry(twin)}); err != nil {
				return err
			}
			return d.index.Add(t.Context(), []index.Entry{phantom})
		}},
		{"very many", true, func() error {
			many := make([]index.Entry, 2*driftPage)
			for i := range many {
				many[i] = index.Entry{Slot: phantom.Slot, Pos: phantom.Pos + int64(i), Seq: phantom.Seq + uint64(i)}
			}
			return d.index.Add(t.Context(), many)
		}},
	} {
		require.NoError(t, plant.do(), plant.what)
		require.False(t, same(), plant.what)
		before := counted(d.metrics.drift)
		suspects := look(nil)
		require.False(t, same(), "once may be an update on its way: %s", plant.what)
		look(suspects)
		if plant.counts {
			before++
		}
		require.Equal(t, before, counted(d.metrics.drift), plant.what)
		f.eventually("it is loaded anew", same)
		d.warmed()
	}
}
