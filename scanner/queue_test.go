package scanner

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// stretchOf is a stretch of n records of one partition, the first of them at offset first.
func stretchOf(partition int32, first int64, n int) stretch {
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Topic: "t", Partition: partition, Offset: first + int64(i)}
	}
	return stretch{reading: &reading{key: partitionKey{"t", partition}}, from: first, to: first + int64(n), records: records}
}

func TestOneTakesAllThatWaits(t *testing.T) {
	q := newQueue(10, "")
	q.put(t.Context(), []stretch{stretchOf(0, 0, 3), stretchOf(1, 0, 3), stretchOf(0, 3, 1)})
	require.Equal(t, []stretch{stretchOf(0, 0, 3), stretchOf(1, 0, 3), stretchOf(0, 3, 1)}, q.take(100))
}

func TestAPartitionIsInOnePairOfHands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10, "")
		q.put(t.Context(), []stretch{stretchOf(0, 0, 3), stretchOf(1, 0, 3), stretchOf(0, 3, 1)})
		first := q.take(3)
		require.Equal(t, []stretch{stretchOf(0, 0, 3)}, first, "no more than asked for")
		require.Equal(t, []stretch{stretchOf(1, 0, 3)}, q.take(100))
		taken := make(chan []stretch, 1)
		go func() { taken <- q.take(100) }()
		synctest.Wait()
		require.Empty(t, taken, "what goes on with partition 0 waits")
		q.done(first)
		require.Equal(t, []stretch{stretchOf(0, 3, 1)}, <-taken)
	})
}

// A partition with a backlog, perhaps another tenant's, takes turns with the others, and its records stay in order.
func TestABacklogTakesTurns(t *testing.T) {
	q := newQueue(10, "")
	backlog := stretchOf(0, 0, 100)
	backlog.reading.queued.Store(2)
	more := stretchOf(0, 100, 5)
	more.reading = backlog.reading
	q.put(t.Context(), []stretch{backlog, more, stretchOf(1, 0, 1)})
	span := func(s []stretch) (out []int64) {
		for _, r := range s {
			out = append(out, int64(r.reading.key.partition), r.from, r.to)
		}
		q.done(s)
		return out
	}
	require.Equal(t, []int64{0, 0, 10}, span(q.take(10)))
	require.EqualValues(t, 3, backlog.reading.queued.Load(), "each stretch is counted")
	q.put(t.Context(), []stretch{stretchOf(2, 0, 30)})
	require.Equal(t, []int64{1, 0, 1, 0, 10, 19}, span(q.take(10)))
	for i := range int64(3) {
		require.Equal(t, []int64{2, 10 * i, 10*i + 10}, span(q.take(10)), "and the other one's")
		require.Equal(t, []int64{0, 19 + 10*i, 29 + 10*i}, span(q.take(10)))
	}
	require.Equal(t, []int64{0, 49, 100, 0, 100, 105}, span(q.take(1000)))
	require.Zero(t, q.held())
}

func TestAFullQueueHoldsUpItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1, "")
		q.put(t.Context(), []stretch{stretchOf(0, 0, 1), stretchOf(1, 0, 1)})
		ctx, cancel := context.WithCancel(t.Context())
		put := make(chan bool)
		go func() { q.put(ctx, []stretch{stretchOf(2, 0, 1)}); close(put) }()
		synctest.Wait()
		select {
		case <-put:
			require.Fail(t, "it had no room")
		default:
		}
		require.Len(t, q.take(100), 2)
		<-put
		go func() {
			q.put(ctx, []stretch{stretchOf(3, 0, 1), stretchOf(4, 0, 1)})
			q.put(ctx, []stretch{stretchOf(5, 0, 1)})
		}()
		synctest.Wait()
		cancel() // what is at hand is put all the same
		synctest.Wait()
		q.close()
		require.Len(t, q.take(100), 4)
		require.Empty(t, q.take(100), "closed and empty")
	})
}

func TestAClosedQueueWaitsForItsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1, "")
		q.put(t.Context(), []stretch{stretchOf(0, 0, 1), stretchOf(0, 1, 1)})
		first := q.take(1)
		q.close()
		last := make(chan []stretch)
		go func() { last <- q.take(1) }()
		synctest.Wait()
		q.done(first)
		require.Equal(t, []stretch{stretchOf(0, 1, 1)}, <-last)
		require.Empty(t, q.take(1))
	})
}

// Few large records are held up like many small ones.
func TestQueueBoundsTheMemoryOfWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(100, "")
		large := asksAt(&reading{key: partitionKey{"in", 0}}, 0, 1)
		large.records[0].Value = make([]byte, queueBytes+1)
		q.put(t.Context(), []stretch{large})
		put := false
		go func() {
			q.put(t.Context(), []stretch{asksAt(&reading{key: partitionKey{"in", 1}}, 0, 1)})
			put = true
		}()
		synctest.Wait()
		require.False(t, put)
		require.Len(t, q.take(1), 1)
		synctest.Wait()
		require.True(t, put)
		require.Len(t, q.take(1), 1)
		require.Zero(t, q.weight)
	})
}
