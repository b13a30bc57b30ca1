package e2e

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/test/recordtest"
)

// One tenant floods its intake, whose quota is far below that. Another tenant's tasks come in time all the same. A second scanner joins
// in the middle, and the first one leaves. Each task of the flood is delivered once, and the cancel behind it still finds its task.
func TestTheQuotaOfAnIntakeDelaysThatIntakeOnly(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		const flood, perSecond, calm = 3000, 250, 40
		noisy, loud, quiet := s.name+".noisy", s.name+".loud", s.name+".quiet"
		s.judging(8, noisy)
		s.judging(4, loud, quiet)
		limited := func() *process {
			return s.scannerWith(scanner.Config{Intake: []string{s.intake, noisy}, Quotas: map[string]scanner.Quota{noisy: {RequestsPerSecond: perSecond}}})
		}
		first := limited()
		s.dispatcher("one")
		send := func(r *kgo.Record, key string) { s.client.Produce(context.Background(), keyed(r, key, key), nil) }
		began := time.Now()
		send(request(noisy, loud, schemas.HeaderID, "doomed", schemas.HeaderDelay, "1h"), "0")
		for i := range flood {
			send(request(noisy, loud, schemas.HeaderID, strconv.Itoa(i), schemas.HeaderDelay, "0s"), strconv.Itoa(i%16))
		}
		send(request(noisy, loud, schemas.HeaderOp, "cancel", schemas.HeaderID, "doomed"), "0")
		require.NoError(t, s.client.Flush(t.Context()))

		seen := map[string]int{}
		var lastLoud, lastQuiet time.Time
		count := func(r *kgo.Record) {
			seen[recordtest.Header(r, schemas.HeaderID)]++
			lastLoud = later(lastLoud, r.Timestamp)
		}
		reader := s.reader([]string{loud})
		s.read(reader, 2*time.Minute, func(r *kgo.Record) bool { count(r); return len(seen) > 20 })
		limited()
		for i := range calm {
			send(request(s.intake, quiet, schemas.HeaderID, strconv.Itoa(i), schemas.HeaderDelay, "1s"), strconv.Itoa(i))
		}
		got := 0
		s.read(s.reader([]string{quiet}), 2*time.Minute, func(r *kgo.Record) bool {
			lastQuiet = later(lastQuiet, r.Timestamp)
			got++
			return got == calm
		})
		first.shutdown(t)
		s.read(reader, 2*time.Minute, func(r *kgo.Record) bool { count(r); return len(seen) == flood })
		require.True(t, lastQuiet.Before(lastLoud), "they come while the other intake waits: %v and %v", lastQuiet, lastLoud)
		require.Greater(t, time.Since(began), (flood/perSecond-3)*time.Second, "each of two scanners may begin with a second's, and ends with one")
		for id, n := range seen {
			require.Equal(t, 1, n, id)
		}
		require.Contains(t, s.answers(map[string]schemas.State{"doomed": schemas.StateCancelled}), "doomed")
	})
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// One tenant floods its intake, of which few tasks may be pending. Never more of them are, and another tenant's tasks come in time. Each task
// of the flood is delivered once, in the end.
func TestTheQuotaOfPendingTasksDelaysThatIntakeOnly(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		const flood, quota, calm = 100, 40, 20
		noisy, loud, quiet := s.name+".noisy", s.name+".loud", s.name+".quiet"
		s.judging(4, noisy, loud, quiet)
		s.scannerWith(scanner.Config{Intake: []string{s.intake, noisy}, Quotas: map[string]scanner.Quota{noisy: {PendingTasks: quota}}})
		s.dispatcher("one")
		send := func(r *kgo.Record, key string) { s.client.Produce(context.Background(), keyed(r, key, key), nil) }
		began := time.Now()
		for i := range flood {
			send(request(noisy, loud, schemas.HeaderID, strconv.Itoa(i), schemas.HeaderDelay, "3s"), strconv.Itoa(i))
		}
		require.NoError(t, s.client.Flush(t.Context()))
		for i := range calm {
			send(request(s.intake, quiet, schemas.HeaderID, strconv.Itoa(i), schemas.HeaderDelay, "0s"), strconv.Itoa(i))
		}
		got := 0
		s.read(s.reader([]string{quiet}), 2*time.Minute, func(*kgo.Record) bool { got++; return got == calm })
		seen := map[string]int{}
		reader := s.reader([]string{loud})
		s.read(reader, 2*time.Minute, func(r *kgo.Record) bool { seen[recordtest.Header(r, schemas.HeaderID)]++; return len(seen) == quota })
		s.read(reader, 2*time.Minute, func(r *kgo.Record) bool { seen[recordtest.Header(r, schemas.HeaderID)]++; return len(seen) == flood })
		require.Greater(t, time.Since(began), 4*time.Second, "the second forty wait for a count that finds the first ones delivered, and the rest for the next count, a second later")
		for id, n := range seen {
			require.Equal(t, 1, n, id)
		}
	})
}

// One tenant floods its intake, of which few tasks may be pending, and what is beyond is rejected. Each request is either rejected, by the
// quota's name, or delivered, once. What is pending can still be moved and cancelled.
func TestBeyondTheQuotaOfPendingTasksRequestsAreRejected(t *testing.T) {
	onOneDatabase(t, func(t *testing.T, s *stack) {
		const flood, quota = 100, 40
		noisy, loud := s.name+".noisy", s.name+".loud"
		s.judging(1, noisy, loud)
		s.scannerWith(scanner.Config{Intake: []string{s.intake, noisy}, Quotas: map[string]scanner.Quota{noisy: {PendingTasks: quota, Reject: true}}})
		s.dispatcher("one")
		send := func(r *kgo.Record) { s.client.Produce(context.Background(), keyed(r, "key", "value"), nil) }
		later := inMillis(time.Hour)
		for i := range flood {
			send(request(noisy, loud, schemas.HeaderID, strconv.Itoa(i), schemas.HeaderAt, later))
		}
		rejected := map[string]schemas.State{}
		for i := quota; i < flood; i++ {
			rejected[strconv.Itoa(i)] = schemas.StateRejected
		}
		for _, e := range s.answers(rejected) {
			require.Contains(t, e.Reason, "pending-tasks")
			require.Equal(t, schemas.KindRejected, e.Kind)
		}
		send(request(noisy, loud, schemas.HeaderOp, "cancel", schemas.HeaderID, "0"))
		for i := 1; i < quota; i++ {
			send(request(noisy, loud, schemas.HeaderID, strconv.Itoa(i), schemas.HeaderDelay, "1s"))
		}
		require.Contains(t, s.answers(map[string]schemas.State{"0": schemas.StateCancelled}), "0")
		seen := map[string]int{}
		s.read(s.reader([]string{loud}), 2*time.Minute, func(r *kgo.Record) bool { seen[recordtest.Header(r, schemas.HeaderID)]++; return len(seen) == quota-1 })
		for id, n := range seen {
			require.Equal(t, 1, n, id)
			require.NotContains(t, rejected, id)
		}
		require.NotContains(t, seen, "0")
		letters, err := look.New(s.store).CountKinds(t.Context(), []string{schemas.KindRejected}, 1000)
		require.NoError(t, err)
		require.EqualValues(t, flood-quota, letters[schemas.KindRejected].N)
	})
}

// One tenant names topics that do not exist, each in a request of its own. As many names as the quota says are taken, and their tasks tried;
// the others are rejected, by the quota's name. Once the tasks are dead letters, or the topic is there, other names have room.
func TestBeyondTheQuotaOfUnknownTargetsRequestsAreRejected(t *testing.T) {
	onOneDatabase(t, func(t *testing.T, s *stack) {
		const names, quota = 30, 3
		noisy, there := s.name+".noisy", s.name+".there"
		s.judging(1, noisy, there)
		s.scannerWith(scanner.Config{Intake: []string{s.intake, noisy}, Quotas: map[string]scanner.Quota{noisy: {UnknownTargets: quota}}})
		s.dispatcher("one")
		send := func(target, id, delay string) {
			s.client.Produce(context.Background(), keyed(request(noisy, target, schemas.HeaderID, id, schemas.HeaderDelay, delay, schemas.HeaderEvents, "all"), "key", "value"), nil)
		}
		missing := func(i int) string { return s.name + ".missing-" + strconv.Itoa(i) }
		rejected := map[string]schemas.State{}
		for i := range names {
			send(missing(i), strconv.Itoa(i), "1h")
			if i >= quota {
				rejected[strconv.Itoa(i)] = schemas.StateRejected
			}
		}
		send(there, "there", "0s")
		for id, e := range s.answers(rejected) {
			require.Contains(t, e.Reason, `quota "unknown-targets"`, id)
		}
		s.read(s.reader([]string{there}), 2*time.Minute, func(r *kgo.Record) bool { return recordtest.Header(r, schemas.HeaderID) == "there" })
		for i := range quota {
			send(missing(i), "again-"+strconv.Itoa(i), "1h")
		}
		require.Len(t, s.answers(map[string]schemas.State{"again-0": schemas.StateScheduled, "again-1": schemas.StateScheduled, "again-2": schemas.StateScheduled}), quota)

		s.judging(1, missing(0))
		require.Eventually(t, func() bool { // the scanner sweeps twice a minute
			names, err := intake.New(s.store).UnknownTargets(t.Context(), noisy)
			return err == nil && len(names) == quota-1
		}, 2*time.Minute, 100*time.Millisecond)
		send(missing(names), "late", "0s")
		require.Equal(t, schemas.KindUndeliverable, s.answers(map[string]schemas.State{"late": schemas.StateDead})["late"].Kind)
	})
}
