package scanner

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/test/lettertest"
)

// A results topic that does not answer holds up neither the intake nor a stop, and nothing is lost of what it was to be told.
func TestSilentResultsDoNotStopTheIntake(t *testing.T) {
	f := newFixture(t)
	answer := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: schemas.TopicResults, Err: kerr.NotEnoughReplicas, Count: -1}).Remove
	const n = 4000
	f.kafka.MaxBufferedRecords = 1000 // what a producer holds, and then blocks
	s := f.start(f.store, Config{})
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = ask(fmt.Sprint("t", i), 0, schemas.HeaderEvents, "all")
	}
	f.publish(records...)
	f.eventually("all are stored", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == n })
	require.NotZero(t, f.count("SELECT COUNT(*) FROM outbox"))
	s.end()
	answer()
	f.start(f.store, Config{})
	f.eventually("all is told", func() bool { return f.count("SELECT COUNT(*) FROM outbox") == 0 })
}

func TestBadRequestsAreRejectedWhole(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	odd := []byte{0, 0xff, '\'', '"', 0x80, '\n', 0xc3}
	bad := &kgo.Record{Topic: schemas.TopicIntake, Key: odd, Value: odd, Headers: []kgo.RecordHeader{
		{Key: schemas.HeaderID, Value: odd}, {Key: schemas.HeaderTopic, Value: odd}, {Key: string(odd), Value: odd}, {Key: schemas.HeaderAt, Value: odd}}}
	callback := record(schemas.TopicIntake, 0, schemas.HeaderURL, "https://example.com/", schemas.HeaderDelay, "1h", schemas.HeaderID, "callback")
	f.publish(bad, callback, &kgo.Record{Topic: schemas.TopicIntake}, ask("good", 0, schemas.HeaderEvents, "all"))
	events := f.events(atLeast(4))
	require.Equal(t, map[string]int{"good": 1}, byID(events, schemas.StateScheduled))
	rejected := byID(events, schemas.StateRejected)
	require.Len(t, rejected, 3)
	require.Contains(t, rejected, "callback", "as long as nobody has enabled them")
	require.Equal(t, 1, f.count("SELECT COUNT(*) FROM tasks"))
	require.Equal(t, int64(4), s.at())
	require.Equal(t, 3, counted(s.worker.metrics.dead.WithLabelValues(schemas.KindRejected)))
	require.Zero(t, counted(s.worker.metrics.dead.WithLabelValues(schemas.KindDead)))

	dead, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{Kind: schemas.KindRejected})
	require.NoError(t, err)
	require.Len(t, dead, 3)
	body, err := schemas.DecodeRejected(dead[0].Body)
	require.NoError(t, err)
	require.Equal(t, odd, body.Key)
	require.Equal(t, odd, body.Value)
	require.Equal(t, bad.Headers, body.Headers, "all of it, just as it came")
	require.NotEmpty(t, dead[0].Reason)
}

func TestBadReportsChangeNothing(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(ask("told", 0, schemas.HeaderEvents, "all"))
	f.events(atLeast(1))
	f.publish(record(schemas.TopicReports, 0, schemas.HeaderTopic, "orders", schemas.HeaderID, "told", schemas.HeaderAttempt, "1", schemas.HeaderStatus, "OK"))
	told := f.events(atLeast(2))[1]
	require.Equal(t, schemas.Event{Topic: "orders", ID: "told", State: schemas.StateRejected, Due: told.Due, At: told.At, Kind: schemas.KindReport,
		Reason: `notyet-status "OK" is none of its values: write one of ok, retry, fail, snooze`, Request: schemas.TopicReports + "/0/0"}, told)
	report := schemas.Report{Topic: "orders", ID: "none", Attempt: 1, Status: schemas.StatusOK}
	foreign := schemas.EncodeReport(schemas.TopicReports, report)
	f.publish(&kgo.Record{Topic: schemas.TopicReports, Value: []byte{0xff}}, record(schemas.TopicReports, 0, schemas.HeaderStatus, "\xff"), foreign)
	f.publish(ask("good", 0, schemas.HeaderEvents, "all"))
	f.eventually("they are passed over", func() bool {
		return f.count("SELECT COALESCE(SUM(next_offset), 0) FROM sources WHERE topic = ?", []byte(schemas.TopicReports)) == 4
	})
	for cause, n := range map[string]int{"missing header": 1, schemas.HeaderStatus: 2, "unknown header": 0} {
		require.Equal(t, n, counted(s.worker.metrics.badReports.WithLabelValues(cause)), cause)
	}
	require.Len(t, f.events(atLeast(3)), 3)
	require.Zero(t, f.count("SELECT COUNT(*) FROM dead_letters"))
}

// The index is a hint: while it is away its updates are dropped, and nobody waits for it.
func TestRequestsAreTakenWithoutTheIndex(t *testing.T) {
	f := newFixture(t)
	f.redis.Close()
	s := f.start(f.store, Config{BatchRecords: 1})
	const n = 400 // more batches than wait for the index
	f.publish(asks("a", n)...)
	require.Len(t, byID(f.events(atLeast(n)), schemas.StateScheduled), n)
	f.eventually("their updates are dropped", func() bool { return counted(s.worker.metrics.indexDropped) == n })
	for i := range n {
		_, err := look.New(f.store).Get(t.Context(), "orders", fmt.Sprint("a", i))
		require.NoError(t, err)
	}
}
