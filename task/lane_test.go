package task

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

func TestLanes(t *testing.T) {
	for _, p := range []schemas.Priority{schemas.PriorityHigh, schemas.PriorityNormal, schemas.PriorityLow} {
		l := LaneOf("orders", ClassOf(p))
		require.Equal(t, ClassOf(p), l.Class())
		require.Equal(t, LaneOf("orders", ClassRetried).Target(), l.Target())
		require.NotEqual(t, LaneOf("invoices", ClassOf(p)).Target(), l.Target())
		require.LessOrEqual(t, int64(l), int64(1<<31-1), "it fits its column")
	}
	require.True(t, ClassHigh < ClassNormal && ClassNormal < ClassLow && ClassLow < ClassRetried && ClassRetried < Classes)
}
