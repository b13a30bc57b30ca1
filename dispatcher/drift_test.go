package dispatcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/index"
)

// TestDriftOfContent: an index slot that holds as many entries as it should, but others, is loaded anew; what is off only
// once is on its way.
func TestDriftOfContent(t *testing.T) {
	f := newFixture(t, 1, "orders")
	d := f.start(f.elect(1), t.TempDir(), Config{})
	placed := f.schedule(askMany(3, "orders", "t", time.Now().Add(time.Hour))...).Added
	loaded := func() bool {
		members, err := d.index.(*index.Index).Members(t.Context(), 0)
		require.NoError(t, err)
		marks, err := d.index.Marks(t.Context(), f.slots)
		require.NoError(t, err)
		return len(members) == 3 && len(marks) == 1
	}
	f.eventually("the slot is loaded", func() bool { return d.owned() == 1 })
	require.NoError(t, d.warm(t.Context()))
	if !loaded() { // the slot was loaded before its tasks were stored
		require.NoError(t, d.index.Clear(t.Context(), 0))
		require.NoError(t, d.warm(t.Context()))
	}
	require.True(t, loaded())
	suspects, err := d.drift(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, suspects)

	right := index.Entry{Pos: placed[0].Pos, Seq: uint64(placed[0].Seq)}
	other := index.Entry{Pos: right.Pos, Seq: right.Seq + 1000}
	require.NoError(t, d.index.Remove(t.Context(), []index.Entry{right}))
	require.NoError(t, d.index.Add(t.Context(), []index.Entry{other}))
	suspects, err = d.drift(t.Context(), suspects)
	require.NoError(t, err)
	require.Equal(t, map[index.Entry]bool{right: true, other: true}, suspects)
	_, err = d.drift(t.Context(), suspects)
	require.NoError(t, err)
	require.NoError(t, d.warm(t.Context()))
	require.True(t, loaded())
	suspects, err = d.drift(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, suspects)
}
