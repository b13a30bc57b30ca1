package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/test/recordtest"
)

// notyet runs a command of the program against the cluster's servers.
func (c *cluster) notyet(args ...string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), c.binary, args...)
	cmd.Env = append(slices.Clone(c.env), "NOTYET_HTTP_ADDR=127.0.0.1:1")
	out, err := cmd.CombinedOutput()
	require.NoError(c.t, err, string(out))
}

// arrivals reads what a topic has, in the order of arrival.
func (c *cluster) arrivals(topic string) (all []*kgo.Record) {
	c.t.Helper()
	reader, left := c.reader([]string{topic}), c.toRead(topic)
	for quiet := 0; quiet < 5 || len(left) > 0; {
		ctx, cancel := context.WithTimeout(c.t.Context(), 300*time.Millisecond)
		records := reader.PollFetches(ctx).Records()
		cancel()
		require.NoError(c.t, c.t.Context().Err())
		left.read(records...)
		if quiet++; len(records) > 0 {
			all, quiet = append(all, records...), 0
		}
	}
	reader.Close()
	slices.SortStableFunc(all, func(a, b *kgo.Record) int { return a.Timestamp.Compare(b.Timestamp) })
	return all
}

// toRead is where a topic's partitions end, of those that were not read so far. A broker or a reader
// may stand still for seconds, so silence alone is no end.
type toRead map[int32]int64

func (s *stack) toRead(topic string) toRead {
	s.t.Helper()
	ends, err := kadm.NewClient(s.client).ListEndOffsets(s.t.Context(), topic)
	require.NoError(s.t, err)
	require.NoError(s.t, ends.Error())
	left := toRead{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	return left
}

func (left toRead) read(records ...*kgo.Record) {
	for _, r := range records {
		if r.Offset+1 >= left[r.Partition] {
			delete(left, r.Partition)
		}
	}
}

func (c *cluster) eventually(what string, bound time.Duration, condition func() bool) {
	c.t.Helper()
	require.Eventually(c.t, condition, bound, 100*time.Millisecond, what)
}

// A dispatcher hears of a pause within pauseGoal. On a machine that stands still it may take
// longer; the load goes on for longer than pauseBound.
const (
	pauseGoal  = time.Second
	pauseBound = 6 * time.Second
)

// TestPauseAndLimitOnTwoDispatchers pauses a target in the middle of its load, kills a dispatcher
// meanwhile, cancels what is held, and lets the rest go at a limit.
func TestPauseAndLimitOnTwoDispatchers(t *testing.T) {
	c := newCluster(t)
	const n, perSecond = 600, 100
	paused, other := c.name+".paused", c.name+".other"
	c.topics(4, paused) // its records say when they were sent, however long the broker stood still
	c.judging(4, other)
	c.spawn("scanner", "scanner")
	c.spawn("one", "dispatcher")
	victim := c.spawn("two", "dispatcher")
	c.eventually("both own slots", 2*time.Minute, func() bool {
		all, err := c.store.Slots(t.Context())
		require.NoError(t, err)
		owners := map[string]int{}
		for _, slot := range all {
			owners[slot.Owner]++
		}
		return len(owners) == 2 && owners[""] == 0
	})
	begin := time.Now().Add(6 * time.Second)
	due := func(i int) time.Time { return begin.Add(time.Duration(i) * 20 * time.Millisecond) } // over 12 s
	for i := range n {
		for topic, every := range map[string]int{paused: 1, other: 3} {
			if i%every == 0 {
				id := strconv.Itoa(i)
				r := request(c.intake, topic, schemas.HeaderAt, strconv.FormatInt(due(i).UnixMilli(), 10), schemas.HeaderID, id, schemas.HeaderEvents, "none")
				c.client.Produce(context.Background(), keyed(r, fmt.Sprint("k", i%50), "v"), nil)
			}
		}
	}
	require.NoError(t, c.client.Flush(t.Context()))
	c.read(c.reader([]string{paused}), time.Minute, func(*kgo.Record) bool { return true })

	c.notyet("target", "pause", paused)
	pausedAt := time.Now()
	c.eventually("tasks are held", time.Minute, func() bool {
		held, err := admin.New(c.store).CountHeld(t.Context(), paused, n)
		require.NoError(t, err)
		return held > 0
	})
	victim.kill()
	killedAt := time.Now()
	var others []*kgo.Record
	c.eventually("the other target gets all of its own", 2*time.Minute, func() bool {
		others = c.arrivals(other)
		return len(copiesOf(others)) == n/3
	})
	c.eventually("nothing is claimed or overdue in any line", time.Minute, func() bool {
		behind, err := look.New(c.store).Overdue(t.Context(), time.Now().Add(-time.Second).UnixMilli())
		require.NoError(t, err)
		return time.Now().After(due(n)) && len(behind.Unclaimed)+len(behind.Unsettled) == 0
	})
	before := copiesOf(c.arrivals(paused))
	require.Less(t, len(before), n, "it was paused in the middle")
	held, err := admin.New(c.store).CountHeld(t.Context(), paused, n)
	require.NoError(t, err)
	require.GreaterOrEqual(t, held, n-len(before))

	// What fell due after the kill is held, and can be cancelled.
	cancelled := map[string]bool{}
	for i := n - 1; len(cancelled) < 30 && due(i).After(killedAt.Add(2*time.Second)); i-- {
		id := strconv.Itoa(i)
		cancelled[id] = true
		c.client.Produce(context.Background(), keyed(request(c.intake, paused, schemas.HeaderOp, "cancel", schemas.HeaderID, id), fmt.Sprint("k", i%50), ""), nil)
	}
	require.NotEmpty(t, cancelled, "the load is long enough")
	answers := map[string]string{}
	c.read(c.reader([]string{c.results}), time.Minute, func(r *kgo.Record) bool {
		if e, err := schemas.DecodeEvent(r); err == nil && e.Topic == paused {
			answers[e.ID] = string(e.State)
		}
		return len(answers) == len(cancelled)
	})
	for id := range cancelled {
		require.Equal(t, "cancelled", answers[id], id)
	}

	c.notyet("target", "limit", paused, "--rate", fmt.Sprint(perSecond, "/s"))
	resumedAt := time.Now()
	c.notyet("target", "resume", paused)
	var all []*kgo.Record
	c.eventually("the rest arrives", 2*time.Minute, func() bool {
		all = c.arrivals(paused)
		return len(copiesOf(all)) == n-len(cancelled)
	})
	var after []*kgo.Record
	var latest time.Duration // behind the answer to the pause
	for _, r := range all {
		require.False(t, cancelled[recordtest.Header(r, schemas.HeaderID)], "it was cancelled")
		if r.Timestamp.Before(resumedAt) {
			latest = max(latest, r.Timestamp.Sub(pausedAt))
		} else {
			after = append(after, r)
		}
	}
	require.Less(t, latest, pauseBound, "sent after the pause was answered")
	if latest > pauseGoal {
		t.Logf("sent %v after the pause was answered, beyond the goal of %v", latest, pauseGoal)
	}
	require.GreaterOrEqual(t, len(after), n-len(before)-len(cancelled))
	const burst, slack = 5 + 1, 1000 // of 50 ms, and what a busy machine gathers in ms
	for i := range after {
		for j := i + 1; j < len(after); j++ {
			span := after[j].Timestamp.Sub(after[i].Timestamp)
			require.LessOrEqual(t, float64(j-i), burst+perSecond*float64(span.Milliseconds()+slack)/1000, "records %d to %d within %v", i, j, span)
			if span > time.Second {
				require.LessOrEqual(t, recordtest.Header(after[i], schemas.HeaderDue), recordtest.Header(after[j], schemas.HeaderDue), "in order of due time")
			}
		}
	}
	last := map[string]string{}
	for _, r := range after { // of one key to the millisecond
		require.LessOrEqual(t, last[string(r.Key)], recordtest.Header(r, schemas.HeaderDue))
		last[string(r.Key)] = recordtest.Header(r, schemas.HeaderDue)
	}
}

// copiesOf counts deliveries by task id.
func copiesOf(records []*kgo.Record) map[string]int {
	out := map[string]int{}
	for _, r := range records {
		out[recordtest.Header(r, schemas.HeaderID)]++
	}
	return out
}
