package scanner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/tracingtest"
)

// A transaction is bounded by what its records weigh too, and loses none of them.
func TestATransactionIsBoundedByBytes(t *testing.T) {
	s, st := inMemory(t, Config{})
	key := partitionKey{schemas.TopicIntake, 0}
	src, err := intake.New(st).Source(t.Context(), key.topic, [16]byte{1}, 0, 0)
	require.NoError(t, err)
	s.parts.sources[key] = &src
	s.parts.begun(key, 0)
	r := s.parts.readings[key]
	stretches := []stretch{asksAt(r, 0, 30), asksAt(r, 30, 1)}
	for _, rec := range stretches[0].records {
		rec.Value = make([]byte, 1<<20)
	}
	batch, covered, rest, err := s.worker.assemble(t.Context(), stretches, 2000, refusedRecords{}, map[partitionKey]bool{})
	require.NoError(t, err)
	require.Less(t, len(batch.Changes), 1+transactionBytes>>20)
	require.NotEmpty(t, batch.Changes)
	require.Len(t, covered, 1)
	require.Len(t, rest, 2)
	require.Equal(t, covered[0].src.Next, rest[0].from, "the rest begins where the batch ends")
	require.EqualValues(t, 30, rest[1].from)

	heavy := asksAt(r, 0, 2)
	heavy.records[0].Value = make([]byte, 2*transactionBytes)
	batch, _, rest, err = s.worker.assemble(t.Context(), []stretch{heavy}, 2000, refusedRecords{}, map[partitionKey]bool{})
	require.NoError(t, err)
	require.Len(t, batch.Changes, 1, "one record is taken however heavy")
	require.Len(t, rest, 1)
}

func TestWhatIsStoredIsTracedForWhoIsTraced(t *testing.T) {
	f := newFixture(t)
	recorder := tracingtest.Record()
	f.tracer = recorder.Tracer
	yes, no := []string{"traceparent", tracingtest.Traceparent(true)}, []string{"traceparent", tracingtest.Traceparent(false)}
	f.publish(
		ask("traced", 1, yes...), ask("unsampled", 1, no...), ask("untraced", 1),
		record(schemas.TopicIntake, 1, append(yes, schemas.HeaderTopic, "orders", schemas.HeaderID, "bad", schemas.HeaderDelay, "soon")...),
		record(schemas.TopicReports, 1, append(yes, schemas.HeaderTopic, "orders", schemas.HeaderID, "reported", schemas.HeaderAttempt, "1", schemas.HeaderStatus, "ok")...),
		record(schemas.TopicReports, 1, append(yes, schemas.HeaderStatus, "what")...),
	)
	s := f.start(f.store, Config{})
	f.eventually("all is stored", func() bool {
		return f.count("SELECT COALESCE(SUM(next_offset), 0) FROM sources") == 6
	})
	s.end()
	spans := map[string]tracingtest.Span{}
	for _, span := range recorder.End() {
		require.Equal(t, tracingtest.Link, span.Trace+"-"+span.Parent, "a child of the caller")
		require.False(t, span.End.Before(span.Start))
		id, _ := span.Attributes["notyet.id"].(string)
		spans[span.Name+" "+id] = span
	}
	require.Len(t, spans, 4)
	good := spans["store notyet.intake traced"]
	require.Equal(t, "schedule", good.Attributes["notyet.op"])
	require.Equal(t, "orders", good.Attributes["notyet.topic"])
	require.Equal(t, int64(0), good.Attributes["messaging.kafka.offset"])
	require.NotZero(t, good.Attributes["notyet.due"])
	require.False(t, good.Failed)
	require.True(t, spans["store notyet.intake bad"].Failed, "a rejection shows in the caller's trace")
	require.Equal(t, "report", spans["store notyet.reports reported"].Attributes["notyet.op"])
	require.True(t, spans["store notyet.reports "].Failed, "an ignored report")
}

func TestTracesAreFreeWhenOff(t *testing.T) {
	w := &worker{}
	records := []*kgo.Record{ask("a", 0, "traceparent", tracingtest.Traceparent(true))}
	stretches := []stretch{{reading: &reading{}, records: records}}
	covered := []coverage{{reading: stretches[0].reading}}
	covered[0].src.Next = 1
	require.Zero(t, testing.AllocsPerRun(100, func() { w.trace(stretches, intake.Batch{}, covered) }))
	recorder := tracingtest.Record()
	defer recorder.End()
	w.tracer = recorder.Tracer
	records[0] = ask("a", 0, "traceparent", tracingtest.Traceparent(false))
	require.Zero(t, testing.AllocsPerRun(100, func() { w.trace(stretches, intake.Batch{}, covered) }), "on, and nobody is traced")
}

// A worker rests behind cancels of many, the longer the quicker these were.
func TestAWorkerRestsBehindCancels(t *testing.T) {
	many := []task.Change{{Cancels: &task.Cancels{Tasks: make([]task.Listed, 1000)}}}
	require.Equal(t, 55*time.Millisecond, restBehind(many, 30*time.Millisecond))
	require.Equal(t, 20*time.Millisecond, restBehind(many, 80*time.Millisecond))
	require.Equal(t, 20*time.Millisecond, restBehind(nil, 80*time.Millisecond))
}
