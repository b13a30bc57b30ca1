package schemas

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestRejectedKeepsTheRecordAsItCame(t *testing.T) {
	r := &kgo.Record{Key: nil, Value: []byte{}, Headers: []kgo.RecordHeader{{Key: "notyet-priority", Value: []byte("urgent")}, {Key: "", Value: nil}, {Key: "Notyet-X", Value: []byte{0xff}}, {Key: "a", Value: []byte{}}, {Key: "a"}}}
	kept, size := RejectedPart(r)
	require.Equal(t, size, kept)
	body, err := DecodeRejected(EncodeRejected(r))
	require.NoError(t, err)
	require.Equal(t, r.Key, body.Key)
	require.Equal(t, r.Value, body.Value)
	require.Equal(t, r.Headers, body.Headers)
}

// A dead letter is a small row, no matter what a caller sends.
func TestRejectedKeepsAPartOfALargeRecord(t *testing.T) {
	big, some := make([]byte, 20<<20), bytes.Repeat([]byte("ü"), 10_000)
	text := func(n int) []byte { return bytes.Repeat([]byte("x"), n) }
	for name, c := range map[string]struct {
		key, value []byte
		headers    []kgo.RecordHeader
		whole      bool
	}{
		"at the bound":    {value: text(MaxRejectedBytes - perRecord - perHeader - 1), headers: []kgo.RecordHeader{{Key: "a"}}, whole: true},
		"one beyond":      {value: text(MaxRejectedBytes - perRecord - perHeader), headers: []kgo.RecordHeader{{Key: "a"}}},
		"value":           {key: some, value: big, headers: scheduled().Headers},
		"key":             {key: big, value: some, headers: scheduled().Headers},
		"header":          {key: some, value: some, headers: append(scheduled().Headers, kgo.RecordHeader{Key: "zeros", Value: big})},
		"header's name":   {headers: append(scheduled().Headers, kgo.RecordHeader{Key: strings.Repeat("n", 1<<20)})},
		"many headers":    {value: some, headers: make([]kgo.RecordHeader, 1_000_000)},
		"all of them":     {key: big, value: big, headers: append(scheduled().Headers, kgo.RecordHeader{Key: "zeros", Value: big})},
		"no UTF-8 at all": {key: bytes.Repeat([]byte{0xff}, 1<<20), value: bytes.Repeat([]byte{0x80}, 1<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			r := &kgo.Record{Key: c.key, Value: c.value, Headers: c.headers}
			b := EncodeRejected(r)
			kept, size := RejectedPart(r)
			require.LessOrEqual(t, len(b), MaxRejectedBytes)
			require.Equal(t, c.whole, kept == size)
			require.Equal(t, contentLen(r.Key, r.Value, r.Headers), size)
			body, err := DecodeRejected(b)
			require.NoError(t, err)
			require.Equal(t, kept, contentLen(body.Key, body.Value, body.Headers))
			require.True(t, bytes.HasPrefix(c.key, body.Key))
			require.True(t, bytes.HasPrefix(c.value, body.Value))
			require.Equal(t, len(c.value) > 0, len(body.Value) > 0, "something of everything is kept")
			require.Equal(t, len(c.key) > 0, len(body.Key) > 0)
			if len(c.headers) > 3 && len(c.headers) < 100 {
				require.Equal(t, scheduled().Headers, body.Headers[:3], "what the request was about comes first")
			}
		})
	}
}

func TestRequestEncodesAsItsRecordDoes(t *testing.T) {
	rec := scheduled("a", "1", HeaderPriority, "high", HeaderEvents, "all")
	rec.Key, rec.Value = []byte("k"), []byte("v")
	req, err := Decode(rec, Limits{})
	require.NoError(t, err)
	body, err := DecodeRejected(req.EncodeRejected())
	require.NoError(t, err)
	require.ElementsMatch(t, rec.Headers, body.Headers)
	require.Equal(t, rec.Value, body.Value)
}

// A report that cannot be read still says of which task it is, if its topic and id can be read, and why in one of few words.
func TestWhatABadReportSays(t *testing.T) {
	with := func(pairs ...string) *kgo.Record {
		return intake(append([]string{HeaderTopic, "orders", HeaderID, "a"}, pairs...)...)
	}
	seen := map[string]bool{}
	for _, c := range []struct {
		record *kgo.Record
		id     string
		cause  string
	}{
		{with(HeaderAttempt, "1", HeaderStatus, "OK"), "a", HeaderStatus},
		{with(HeaderAttempt, "0", HeaderStatus, "ok"), "a", HeaderAttempt},
		{with(HeaderAttempt, "1", HeaderStatus, "retry", HeaderRetryAfter, "5"), "a", HeaderRetryAfter},
		{with(HeaderAttempt, "1", HeaderStatus, "ok", HeaderDelivery, ""), "a", HeaderDelivery},
		{with(HeaderAttempt, "1"), "a", "missing header"},
		{with(HeaderAttempt, "1", HeaderStatus, "snooze"), "a", "missing header"},
		{with(HeaderAttempt, "1", HeaderStatus, "ok", HeaderStatus, "ok"), "a", "repeated header"},
		{with(HeaderAttempt, "1", HeaderStatus, "ok", HeaderPriority, "high"), "a", "misplaced header"},
		{with(HeaderAttempt, "1", HeaderStatus, "ok", "notyet-foo", "x"), "a", "unknown header"},
		{with(HeaderID, "b"), "", "repeated header"},
		{intake(HeaderTopic, "orders", HeaderID, ""), "", HeaderID},
		{intake(HeaderTopic, "or ders", HeaderID, "a"), "", HeaderTopic},
		{intake(HeaderID, "a"), "", "missing header"},
	} {
		r, err := DecodeReport(c.record)
		require.Equal(t, c.id, r.ID, c.cause)
		require.Equal(t, c.id != "", r.Topic != "", c.cause)
		var rej *Rejection
		require.ErrorAs(t, err, &rej)
		require.Equal(t, c.cause, rej.ReportCause(), err)
		seen[c.cause] = true
	}
	for _, cause := range ReportCauses() {
		require.True(t, seen[cause], cause)
	}
}
