package dispatcher

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/store"
)

// TestDriftOfContent: an index slot that holds as many entries as it should, but others, is loaded anew; what is off only
// once is on its way.
func TestDriftOfContent(t *testing.T) {
	f := newFixture(t, 1, "orders")
	d := f.start(f.elect(1), t.TempDir(), Config{})
	placed := f.schedule(askMany(3, "orders", "t", time.Now().Add(time.Hour))...).Added
	loaded := func() bool {
		members, err := d.indexer.index.(*index.Index).Members(t.Context(), 0)
		require.NoError(t, err)
		marks, err := d.indexer.index.Marks(t.Context(), f.slots)
		require.NoError(t, err)
		return len(members) == 3 && len(marks) == 1
	}
	f.eventually("the slot is loaded", func() bool { return d.owned() == 1 })
	require.NoError(t, d.indexer.warm(t.Context()))
	if !loaded() { // the slot was loaded before its tasks were stored
		require.NoError(t, d.indexer.index.Clear(t.Context(), 0))
		require.NoError(t, d.indexer.warm(t.Context()))
	}
	require.True(t, loaded())
	suspects, err := d.indexer.drift(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, suspects)

	right := index.Entry{Pos: placed[0].Pos, Seq: placed[0].Seq}
	other := index.Entry{Pos: right.Pos, Seq: right.Seq + 1000}
	require.NoError(t, d.indexer.index.Remove(t.Context(), []index.Entry{right}))
	require.NoError(t, d.indexer.index.Add(t.Context(), []index.Entry{other}))
	suspects, err = d.indexer.drift(t.Context(), suspects)
	require.NoError(t, err)
	require.Equal(t, map[index.Entry]bool{right: true, other: true}, suspects)
	_, err = d.indexer.drift(t.Context(), suspects)
	require.NoError(t, err)
	require.NoError(t, d.indexer.warm(t.Context()))
	require.True(t, loaded())
	suspects, err = d.indexer.drift(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, suspects)
}

// Entries that are missing, that are too many, and as many of both: each is found, at the second look, and mended.
func TestDriftIsFoundAndMended(t *testing.T) {
	f := newFixture(t, 2, "orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	d.warmed()
	places := f.schedule(askMany(40, "orders", "later", time.Now().Add(time.Hour))...).Added
	d.told(places)
	entry := func(p store.Place) index.Entry { return p.Place }
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
			members, err := d.indexer.index.(*index.Index).Members(t.Context(), slot)
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
		suspects, err := d.indexer.drift(t.Context(), suspects)
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
		require.NoError(t, d.indexer.index.Remove(t.Context(), []index.Entry{entry(p)}))
		suspects = look(suspects)
		require.Equal(t, map[index.Entry]bool{entry(p): true}, suspects)
		require.NoError(t, d.indexer.index.Add(t.Context(), []index.Entry{entry(p)}))
	}
	require.Zero(t, counted(d.metrics.drift))
	require.Empty(t, look(suspects))

	for _, plant := range []struct {
		what   string
		counts bool // an entry too many is no drift
		do     func() error
	}{
		{"missing", true, func() error { return d.indexer.index.Remove(t.Context(), []index.Entry{entry(places[0])}) }},
		{"too many", false, func() error { return d.indexer.index.Add(t.Context(), []index.Entry{phantom}) }},
		{"one for another", true, func() error {
			if err := d.indexer.index.Remove(t.Context(), []index.Entry{entry(twin)}); err != nil {
				return err
			}
			return d.indexer.index.Add(t.Context(), []index.Entry{phantom})
		}},
		{"very many", true, func() error {
			many := make([]index.Entry, 2*driftPage)
			for i := range many {
				many[i] = index.Entry{Slot: phantom.Slot, Pos: phantom.Pos + int64(i), Seq: phantom.Seq + int64(i)}
			}
			return d.indexer.index.Add(t.Context(), many)
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
