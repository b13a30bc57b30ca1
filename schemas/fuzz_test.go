package schemas

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A fuzzed record is the bytes of one in Kafka's own encoding, so that the corpus can hold any of
// them.

func fuzzRecord(b []byte, timestamp int64) (*kgo.Record, bool) {
	var m kmsg.Record
	if m.ReadFrom(b) != nil || len(m.Headers) > 100 {
		return nil, false
	}
	r := &kgo.Record{Topic: TopicIntake, Partition: 3, Offset: 42, Timestamp: time.UnixMilli(timestamp), Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader(h))
	}
	return r, true
}

func fuzzSeed(r *kgo.Record) []byte {
	m := kmsg.Record{Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, kmsg.Header(h))
	}
	return m.AppendTo(nil)
}

// FuzzDecode: never panics; what it accepts can be written and is accepted again as the same
// request, body included.
func FuzzDecode(f *testing.F) {
	for _, r := range []*kgo.Record{
		scheduled(), scheduled("a", "1", HeaderVersion, "7", HeaderIfExists, "merge", HeaderMerge, "sum", HeaderMaxWait, "10m"),
		scheduled(HeaderAck, "report", HeaderAckTimeout, "30s", HeaderMaxAttempts, "3", HeaderBackoff, "exponential:1s:2h", HeaderEvents, "none"),
		intake(HeaderTopic, "orders", HeaderDelay, "P1DT2H3M4.5S"), intake(HeaderTopic, "orders", HeaderDelay, "1h0.1ns", HeaderMaxLateness, "1us"),
		intake(HeaderTopic, "orders", HeaderAt, "2026-09-21T14:13:20.0000000001+02:00", HeaderPriority, "low"),
		operation("cancel", HeaderVersion, "1"), operation("fire"), intake(HeaderURL, "https://a/b?c", HeaderAt, "1790000060000"),
		operation("timer", HeaderCron, "*/5 * * * * MON", HeaderTimezone, "Europe/Berlin", HeaderMisfire, "skip"), operation("timer-delete"),
		operation("timer", HeaderEvery, "90s", HeaderFrom, "1970-01-01T00:00:00Z", HeaderUntil, "1800000000000", HeaderJitter, "5s", HeaderAck, "report", HeaderOverlap, "skip"),
		intake(HeaderURL, "HTTP://a:81", HeaderMethod, "PUT", HeaderAckTimeout, "1m", HeaderAt, "1790000060000"), intake(HeaderOp, "cancel", HeaderID, "x", HeaderURL, "https://A/b"),
		intake(HeaderOp, "timer", HeaderID, "x", HeaderCron, "@daily", HeaderURL, "https://a/b"), intake(HeaderOp, "fire", HeaderID, "x", HeaderTopic, "https://a"),
		scheduled("Notyet-Topic", "x"), scheduled(HeaderAttempt, "1"),
		intake(etf1Epoch, "1790000060", etf1Target, "t", etf1Key, "k"), intake(natsAt, "@at 2026-09-21T14:13:20Z", natsTarget, "t", "nats-schedule-ttl", "1s"),
	} {
		f.Add(fuzzSeed(r), int64(accepted))
	}
	f.Fuzz(func(t *testing.T, b []byte, timestamp int64) {
		r, ok := fuzzRecord(b, timestamp)
		if !ok {
			return
		}
		if _, err := Decode(r, allAliases); err != nil {
			rej, ok := err.(*Rejection)
			require.True(t, ok)
			require.NotEmpty(t, rej.Header)
			require.NotEmpty(t, rej.Fix)
			require.NotEmpty(t, rej.ID)
		}
		req, err := Decode(r, Limits{})
		if err != nil {
			rej, ok := err.(*Rejection)
			require.True(t, ok)
			require.NotEmpty(t, rej.ID)
			require.NotContains(t, rej.Error(), "\n")
			require.NotEmpty(t, rej.Fix)
			return
		}
		require.LessOrEqual(t, req.Due-req.Accepted, DefaultMaxDelay.Milliseconds())
		require.Equal(t, req, redecoded(t, req, r, Limits{}))
		body, err := DecodeBody(EncodeBody(nil, req.Key, req.Value, req.Headers, req.Settings))
		require.NoError(t, err)
		require.Equal(t, Body{req.Key, req.Value, req.Headers, req.Settings}, body)
	})
}

// FuzzDecodeBody: never panics; what it accepts encodes to something that decodes equal.
func FuzzDecodeBody(f *testing.F) {
	s := DefaultSettings()
	f.Add(EncodeBody(nil, []byte("k"), nil, nil, s))
	f.Add(EncodeBody(nil, nil, []byte{}, []kgo.RecordHeader{{Key: "a"}, {Key: "", Value: []byte{}}}, s))
	s.Ack, s.MaxAttempts, s.Backoff = AckReport, 3, Backoff{First: time.Second, Max: time.Second}
	f.Add(EncodeBody(nil, []byte("k"), []byte("v"), []kgo.RecordHeader{{Key: "a", Value: []byte("1")}}, s))
	f.Add(EncodeBody(nil, nil, nil, nil, CallbackSettings("https://a/b", "PUT")))
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := DecodeBody(b)
		if err != nil {
			return
		}
		again, err := DecodeBody(EncodeBody(nil, body.Key, body.Value, body.Headers, body.Settings))
		require.NoError(t, err)
		require.Equal(t, body, again)
	})
}

// FuzzDecodeReport: never panics; what it accepts encodes to something that decodes equal.
func FuzzDecodeReport(f *testing.F) {
	for _, r := range []Report{
		{Topic: "orders", ID: "x", Attempt: 1, Status: StatusOK, RetryAfter: NoRetryAfter},
		{Topic: "orders", ID: "x", Attempt: 2, Status: StatusRetry, RetryAfter: time.Minute, Error: "busy"},
		{Topic: "orders", ID: "x", Attempt: 3, Status: StatusFail, RetryAfter: NoRetryAfter, Error: "a\xff"},
	} {
		f.Add(fuzzSeed(EncodeReport(TopicReports, r)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rec, ok := fuzzRecord(b, accepted)
		if !ok {
			return
		}
		r, err := DecodeReport(rec)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(r.Error), MaxReportError)
		again, err := DecodeReport(EncodeReport(TopicReports, r))
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}
