package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/recordtest"
)

// deadLetters puts n dead letters into the database like a dispatcher: claimed, then refused.
func (s *stack) deadLetters(target string, n int) {
	ctx := s.t.Context()
	src, err := intake.New(s.store).Source(ctx, "made-up", [16]byte{9}, 0, 0)
	require.NoError(s.t, err)
	now := time.Now().UnixMilli()
	slots, err := s.store.SlotCount(ctx)
	require.NoError(s.t, err)
	all := make([]int, slots)
	for i := range all {
		all[i] = i
	}
	for from := 0; from < n; from += 1000 {
		to := min(from+1000, n)
		b := intake.Batch{Advance: []intake.Advance{{Source: src.ID, From: int64(from), To: int64(to)}}}
		for i := from; i < to; i++ {
			r := schemas.NewRequest(schemas.OpSchedule, target, fmt.Sprintf("dead-%d", i))
			r.Due, r.Accepted, r.Key, r.Value, r.Settings.Events = now, now, []byte(strconv.Itoa(i)), []byte("v"), schemas.EventsNone
			b.Changes = append(b.Changes, task.Change{Seq: task.Seq(src.ID, int64(i)), Request: &r})
		}
		_, err := intake.New(s.store).Apply(ctx, b, store.At(now))
		require.NoError(s.t, err)
	}
	epoch, err := intake.New(s.store).Line().NextEpoch(ctx)
	require.NoError(s.t, err)
	_, err = intake.New(s.store).Line().Acquire(ctx, all, epoch, "me")
	require.NoError(s.t, err)
	require.NoError(s.t, intake.New(s.store).Line().Claim(ctx, 0, all, make([]int64, len(all)), epoch, now))
	for slot := range slots {
		entries, err := intake.New(s.store).Line().Entries(ctx, []line.Range{{Slot: slot, From: 0, To: now}})
		require.NoError(s.t, err)
		for part := range slices.Chunk(entries, 500) {
			seqs := make([]int64, len(part))
			for i, e := range part {
				seqs[i] = e.Seq
			}
			tasks, _, err := intake.New(s.store).Line().Tasks(ctx, seqs, 1<<30)
			require.NoError(s.t, err)
			exits := make([]line.Transition, len(tasks))
			for i, t := range tasks {
				exits[i] = line.Transition{Seq: t.Seq, Slot: slot, Epoch: epoch, State: task.StateDead, Dead: &task.DeadLetter{Seq: t.Seq, Kind: schemas.KindDead, Topic: t.Topic,
					TaskID: t.ID, Due: t.Due, Reason: "planted", DiedAt: now, Body: t.Body}}
			}
			_, err = intake.New(s.store).Line().Settle(ctx, nil, exits, store.At(now))
			require.NoError(s.t, err)
		}
		_, err = intake.New(s.store).Line().Settle(ctx, []line.Done{{Slot: slot, Epoch: epoch, From: 0, To: now}}, nil, store.At(now))
		require.NoError(s.t, err)
	}
}

// TestReplayIsResumedAfterAKill: a replay killed on its way and started again replays each letter
// once, and keeps its rate. NOTYET_CLUSTER_TASKS sets the number of letters.
func TestReplayIsResumedAfterAKill(t *testing.T) {
	c := oneDatabase(t, usualSlots)
	n := clusterTasks(t, 4000)
	rate := n / 4
	target := c.name + ".again"
	c.topics(4, target)
	c.deadLetters(target, n)
	c.spawn("dispatcher1", "dispatcher")
	args := []string{"deadletter", "replay", "--topic", target, "--rate"}
	first := exec.Command(c.binary, append(args, strconv.Itoa(rate/10))...) // slow enough for a kill that comes late
	first.Env = c.env
	require.NoError(t, first.Start())
	left := func() int {
		letters, _, err := letters.New(c.store).Count(context.Background(), letters.Filter{Topic: target}, 0)
		require.NoError(t, err)
		return int(letters)
	}
	require.Eventually(t, func() bool { return left() < n*9/10 }, 2*time.Minute, 20*time.Millisecond)
	require.NoError(t, first.Process.Kill())
	_ = first.Wait()
	remaining := left()
	require.Positive(t, remaining, "it was killed too late to mean anything")
	began := time.Now()
	again := exec.Command(c.binary, append(args, strconv.Itoa(rate))...)
	again.Env = c.env
	out, err := again.CombinedOutput()
	require.NoError(t, err, string(out))
	took := time.Since(began)
	require.Zero(t, left())
	copies := map[string]int{}
	c.read(c.reader([]string{target}), 2*time.Minute, func(r *kgo.Record) bool {
		require.Equal(t, "1", recordtest.Header(r, schemas.HeaderReplay))
		copies[recordtest.Header(r, schemas.HeaderID)]++
		return len(copies) == n
	})
	for id, k := range copies {
		require.Equal(t, 1, k, id)
	}
	perSecond := float64(remaining) / took.Seconds()
	t.Logf("%d letters, killed with %d left, each replayed once; second run %.0f/s at --rate %d: %s", n, remaining, perSecond, rate, strings.TrimSpace(string(out)))
	require.Less(t, perSecond, 1.5*float64(rate), "the rate limit")
}
