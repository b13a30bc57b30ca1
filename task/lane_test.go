package task

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

func TestLanes(t *testing.T) {
	key := LaneKey{1}
	for _, p := range []schemas.Priority{schemas.PriorityHigh, schemas.PriorityNormal, schemas.PriorityLow} {
		for _, lane := range []func(string, Class) Lane{key.Lane, Unkeyed} {
			l := lane("orders", ClassOf(p))
			require.Equal(t, ClassOf(p), l.Class())
			require.Equal(t, lane("orders", ClassRetried).Target(), l.Target())
			require.Equal(t, lane("orders", ClassRetried), l.In(ClassRetried))
			require.NotEqual(t, lane("invoices", ClassOf(p)).Target(), l.Target())
			require.LessOrEqual(t, int64(l), int64(1<<31-1), "it fits its column")
		}
	}
	require.True(t, ClassHigh < ClassNormal && ClassNormal < ClassLow && ClassLow < ClassRetried && ClassRetried < Classes)
	require.NotEqual(t, key.Lane("orders", 0), LaneKey{2}.Lane("orders", 0), "each installation has its own")
	long := strings.Repeat("o", 2*schemas.MaxTopicLen)
	require.NotEqual(t, key.Lane(long, 0), key.Lane(long[1:], 0), "all of a name counts")
}

// All processes of an installation find the rows that the others have written, those of older versions too.
func TestLanesStayAsTheyAre(t *testing.T) {
	key := LaneKey([]byte("0123456789abcdef"))
	require.Equal(t, Lane(0x48450201), key.Lane("orders", ClassNormal))
	require.Equal(t, Lane(0x4ca77501), Unkeyed("orders", ClassNormal))
	lanes := key.Lanes("orders")
	require.Len(t, lanes, 2*Classes)
	for c := range Class(Classes) {
		require.Contains(t, lanes, key.Lane("orders", c))
		require.Contains(t, lanes, Unkeyed("orders", c))
	}
	require.Equal(t, key.Lane("t6145043", 0), Unkeyed("t6145043", 0), "by chance")
	require.Len(t, key.Lanes("t6145043"), Classes, "each row is found once")
}

func BenchmarkLane(b *testing.B) {
	for _, topic := range []string{"orders", "production.payments.invoices-to-remind.v2", strings.Repeat("o", schemas.MaxTopicLen)} {
		b.Run(fmt.Sprint("keyed/", len(topic)), func(b *testing.B) {
			b.ReportAllocs()
			key := LaneKey{1}
			for b.Loop() {
				_ = key.Lane(topic, ClassNormal)
			}
		})
		b.Run(fmt.Sprint("unkeyed/", len(topic)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = Unkeyed(topic, ClassNormal)
			}
		})
	}
}
