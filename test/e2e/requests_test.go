package e2e

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/dispatcher"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/shards"
	"github.com/notyet/notyet/test/recordtest"
)

// publish sends requests and waits until Kafka has acknowledged them.
func (s *stack) publish(records ...*kgo.Record) {
	require.NoError(s.t, s.client.ProduceSync(s.t.Context(), records...).FirstErr())
}

func keyed(r *kgo.Record, key, value string) *kgo.Record {
	r.Key, r.Value = []byte(key), []byte(value)
	return r
}

func inMillis(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).UnixMilli(), 10) }

// answers collects events until it has seen every wanted state of an id.
func (s *stack) answers(wants map[string]schemas.State) map[string]schemas.Event {
	got := map[string]schemas.Event{}
	s.read(s.reader([]string{s.results}), 2*time.Minute, func(r *kgo.Record) bool {
		e, err := schemas.DecodeEvent(r)
		require.NoError(s.t, err)
		if wants[e.ID] == e.State {
			got[e.ID] = e
		}
		return len(got) == len(wants)
	})
	return got
}

func TestCancelReplaceFireAndReject(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		target := s.name + ".orders"
		s.topics(1, target)
		s.scanner()
		s.dispatcher("one")
		at, id, op := schemas.HeaderAt, schemas.HeaderID, schemas.HeaderOp
		hour := inMillis(time.Hour)
		internal := keyed(request(s.intake, "__consumer_offsets", id, "internal", at, hour), "f", "bad")
		s.publish(
			keyed(request(s.intake, target, id, "cancelled", at, hour), "a", "never"),
			keyed(request(s.intake, target, id, "replaced", at, hour), "b", "old"),
			keyed(request(s.intake, target, id, "fired", at, hour), "c", "now"),
			keyed(request(s.intake, target, id, "both", at, hour, schemas.HeaderDelay, "1s"), "d", "bad"),
			keyed(request(s.intake, target, id, "unknown-header", at, hour, "notyet-prioritee", "high"), "e", "bad"),
			internal,
			keyed(request(s.intake, target, id, "nobody", op, "cancel"), "g", ""),
		)
		s.publish(
			keyed(request(s.intake, target, id, "cancelled", op, "cancel"), "a", ""),
			keyed(request(s.intake, target, id, "replaced", schemas.HeaderDelay, "300ms"), "b", "new"),
			keyed(request(s.intake, target, id, "fired", op, "fire"), "c", ""),
		)
		var values []string
		s.read(s.reader([]string{target}), 2*time.Minute, func(r *kgo.Record) bool {
			values = append(values, string(r.Value))
			return len(values) == 2
		})
		require.ElementsMatch(t, []string{"now", "new"}, values)
		got := s.answers(map[string]schemas.State{
			"cancelled": schemas.StateCancelled, "replaced": schemas.StateSucceeded, "fired": schemas.StateSucceeded, "both": schemas.StateRejected,
			"unknown-header": schemas.StateRejected, "nobody": schemas.StateNotFound,
			// The intake may not speak for that topic, so the answer is not under the id that the request names.
			fmt.Sprintf("%s/%d/%d", s.intake, internal.Partition, internal.Offset): schemas.StateRejected,
		})
		require.Contains(t, got["unknown-header"].Reason, "notyet-prioritee")
		require.Len(t, s.lettersOf(letters.Filter{Kind: schemas.KindRejected}), 3)
		require.Equal(t, "cancelled", s.state(target, "cancelled"))
	})
}

// TestReportsAndRetries follows a task through a missing report, a retry and an ok.
func TestReportsAndRetries(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		target := s.name + ".jobs"
		s.topics(1, target)
		s.scanner()
		s.dispatcher("one")
		s.publish(keyed(request(s.intake, target, schemas.HeaderID, "job", schemas.HeaderDelay, "50ms", schemas.HeaderAck, "report", schemas.HeaderAckTimeout, "500ms",
			schemas.HeaderBackoff, "fixed:100ms", schemas.HeaderEvents, "all"), "k", "work"))
		report := func(attempt int, status schemas.Status) {
			s.publish(schemas.EncodeReport(s.reports, schemas.Report{Topic: target, ID: "job", Attempt: attempt, Status: status, RetryAfter: -1}))
		}
		n := 0
		s.read(s.reader([]string{target, s.results}), 2*time.Minute, func(r *kgo.Record) bool {
			if r.Topic == s.results {
				e, err := schemas.DecodeEvent(r)
				require.NoError(t, err)
				return n > 2 && e.State == schemas.StateSucceeded
			}
			n++
			require.Equal(t, strconv.Itoa(n), recordtest.Header(r, schemas.HeaderAttempt))
			switch n {
			case 1: // no report
			case 2:
				report(2, schemas.StatusRetry)
			default: // a machine that stands still may report too late, and have one more attempt
				report(n, schemas.StatusOK)
			}
			return false
		})
		require.Equal(t, "succeeded", s.state(target, "job"))
	})
}

// TestMissingTargetDelaysOnlyItself: there are 50 existing topics and a missing one. The tasks of
// the missing one become dead letters with the cause, the others arrive in time, and a replay
// delivers once the topic exists.
func TestMissingTargetDelaysOnlyItself(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		const topics, each = 50, 10
		const missingFor = 12 * time.Second // longer than a machine stands still
		missing := s.name + ".missing"
		var fine []string
		for i := range topics {
			fine = append(fine, fmt.Sprintf("%s.fine-%d", s.name, i))
		}
		s.judging(1, fine...)
		s.scanner()
		s.dispatcherWith(dispatcher.Config{MemberID: "one", UndeliverableAfter: missingFor})
		// The first record for a topic waits for its metadata (up to 0.4 s on a real broker),
		// whether the topic exists or not. That is not measured here.
		var first []*kgo.Record
		for _, topic := range fine {
			first = append(first, keyed(request(s.intake, topic, schemas.HeaderDelay, "1ms"), "first", "first"))
		}
		s.publish(first...)
		reader, known := s.reader(fine), 0
		s.read(reader, 2*time.Minute, func(*kgo.Record) bool { known++; return known == topics })

		begin := time.Now().Add(time.Second)
		var requests []*kgo.Record
		for i := range each {
			at := strconv.FormatInt(begin.Add(time.Duration(i)*50*time.Millisecond).UnixMilli(), 10)
			requests = append(requests, keyed(request(s.intake, missing, schemas.HeaderID, fmt.Sprint(i), schemas.HeaderAt, at), fmt.Sprint(i), "v"))
			for _, topic := range fine {
				requests = append(requests, keyed(request(s.intake, topic, schemas.HeaderAt, at), fmt.Sprint(i), "v"))
			}
		}
		s.publish(requests...)
		late, last := hdrhistogram.New(1, 60_000, 3), int64(0)
		n := 0
		s.read(reader, 2*time.Minute, func(r *kgo.Record) bool {
			due, err := strconv.ParseInt(recordtest.Header(r, schemas.HeaderDue), 10, 64)
			require.NoError(t, err)
			require.NoError(t, late.RecordValue(r.Timestamp.UnixMilli()-due))
			last = max(last, r.Timestamp.UnixMilli())
			n++
			return n == topics*each
		})
		t.Logf("lateness ms beside a missing topic: p50 %d p99 %d max %d", late.ValueAtQuantile(50), late.ValueAtQuantile(99), late.Max())
		wants := map[string]schemas.State{}
		for i := range each {
			wants[fmt.Sprint(i)] = schemas.StateDead
		}
		for _, dead := range s.answers(wants) {
			require.Less(t, last, dead.At, "a missing topic takes %v to be given up, and nobody else may wait for that", missingFor)
		}
		letters := s.lettersOf(letters.Filter{Topic: missing})
		require.Len(t, letters, 10)
		require.Contains(t, letters[0].Reason, "UNKNOWN_TOPIC")
		require.Equal(t, schemas.KindUndeliverable, letters[0].Kind)

		s.topics(1, missing)
		ids := make([]int64, len(letters))
		for i, l := range letters {
			ids[i] = l.ID
		}
		rules, err := shards.New(s.store).Map(t.Context())
		require.NoError(t, err)
		report, _, err := intake.New(s.databases()[rules.Home(missing)].store).Replay(t.Context(), ids, "test", time.Now().UnixMilli(), false)
		require.NoError(t, err)
		require.Len(t, report, 10)
		n = 0
		s.read(s.reader([]string{missing}), 2*time.Minute, func(r *kgo.Record) bool {
			require.Equal(t, "1", recordtest.Header(r, schemas.HeaderReplay))
			n++
			return n == 10
		})
	})
}

// TestNothingIsLostAcrossAStop: tasks that are pending when every process stops still exist
// afterwards, and due ones are delivered.
func TestNothingIsLostAcrossAStop(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		target := s.name + ".later"
		s.topics(1, target)
		scanner, dispatcher := s.scanner(), s.dispatcher("one")
		for i, delay := range []string{"2s", "30m", "36h", "P400D"} {
			s.publish(keyed(request(s.intake, target, schemas.HeaderID, fmt.Sprint(i), schemas.HeaderDelay, delay, schemas.HeaderEvents, "all"), "k", delay))
		}
		s.answers(map[string]schemas.State{"0": schemas.StateScheduled, "1": schemas.StateScheduled, "2": schemas.StateScheduled, "3": schemas.StateScheduled})
		scanner.shutdown(t)
		dispatcher.shutdown(t)
		// Published while nothing runs: it waits in Kafka.
		s.publish(keyed(request(s.intake, target, schemas.HeaderID, "4", schemas.HeaderDelay, "1ms"), "k", "1ms"))
		s.scanner()
		s.dispatcher("two")
		values := map[string]int{}
		s.read(s.reader([]string{target}), 2*time.Minute, func(r *kgo.Record) bool {
			values[string(r.Value)]++
			return len(values) == 2
		})
		require.Equal(t, map[string]int{"2s": 1, "1ms": 1}, values)
		for _, id := range []string{"1", "2", "3"} {
			require.Equal(t, "pending", s.state(target, id))
		}
	})
}
