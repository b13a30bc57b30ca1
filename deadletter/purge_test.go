package deadletter

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
)

func TestPurge(t *testing.T) {
	g := newFixture(t)
	for i := range 5 {
		g.kill("orders", fmt.Sprint(i), "boom 100%", nil)
	}
	g.kill("bills", "x", "boom 100 times", nil)
	_, err := Replay(t.Context(), g.local(nil), letters.Filter{TaskID: "0"}, Options{})
	require.NoError(t, err)

	n, _, err := letters.New(g).Count(t.Context(), letters.Filter{Reason: "0%"}, 0)
	require.NoError(t, err)
	require.Equal(t, int64(4), n, "a % in a reason is a %, and what was replayed is left out")

	n, err = Purge(t.Context(), g.local(nil), letters.Filter{Topic: "orders", Limit: 2}, nil)
	require.NoError(t, err)
	require.Equal(t, int64(2), n)
	n, err = Purge(t.Context(), g.local(nil), letters.Filter{Topic: "orders"}, nil)
	require.NoError(t, err)
	require.Equal(t, int64(2), n)

	left, err := Collect(t.Context(), g.local(nil), letters.Filter{Replayed: true}, 10)
	require.NoError(t, err)
	require.Len(t, left, 2, "the replayed one and that of the other topic")
	v, err := look.New(g.Store).Get(t.Context(), "orders", "4")
	require.NoError(t, err)
	require.Equal(t, "dead", v.State, "the task is still remembered")

	p := &pages{all: 2500}
	n, err = Purge(t.Context(), p, letters.Filter{}, nil)
	require.NoError(t, err)
	require.Equal(t, int64(2500), n)
	require.Equal(t, []int{1000, 1000, 1000}, p.sizes)
}
