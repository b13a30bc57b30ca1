package schemas

import (
	"encoding/hex"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func anyBytes(t *rapid.T, name string) []byte {
	if rapid.Bool().Draw(t, name+" null") {
		return nil
	}
	b := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, name)
	return append([]byte{}, b...)
}

func anyHeaders(t *rapid.T) []kgo.RecordHeader {
	var headers []kgo.RecordHeader
	for range rapid.IntRange(0, 70).Draw(t, "headers") {
		key := rapid.SampledFrom([]string{"", "a", "b", "traceparent", "\xff", "notyet"}).Draw(t, "header")
		headers = append(headers, kgo.RecordHeader{Key: key, Value: anyBytes(t, "header value")})
	}
	return headers
}

func anySettings(t *rapid.T) Settings {
	millis := func(name string) time.Duration {
		return time.Duration(rapid.Int64Range(100, 1<<40).Draw(t, name)) * time.Millisecond
	}
	s := DefaultSettings()
	set := func(name string, apply func()) {
		if rapid.Bool().Draw(t, name) {
			apply()
		}
	}
	set("priority", func() { s.Priority = PriorityLow })
	set("ack", func() { s.Ack = AckReport })
	set("timeout", func() { s.AckTimeout = millis("timeout") })
	set("attempts", func() { s.MaxAttempts = rapid.IntRange(1, MaxAttempts).Draw(t, "attempts") })
	set("fixed", func() { d := millis("pause"); s.Backoff = Backoff{First: d, Max: d} })
	set("steps", func() {
		pauses := make([]time.Duration, rapid.IntRange(1, MaxSteps).Draw(t, "pauses"))
		for i := range pauses {
			pauses[i] = millis("step")
		}
		s.Backoff = BackoffSteps(pauses...)
	})
	set("lateness", func() { s.MaxLateness = millis("lateness") })
	set("events", func() { s.Events = EventsAll })
	set("wait", func() { s.MaxWait = millis("wait") })
	set("exists", func() { s.IfExists = Merge })
	set("merge", func() { s.Merge = MergeAppend })
	set("tag", func() {
		s.Tag = rapid.StringMatching(`[A-Za-z0-9_.:-]{1,64}(,[A-Za-z0-9_.:-]{1,64}){0,3}`).Draw(t, "tag")
	})
	return s
}

// TestBodyRoundTrip also lets the Kafka client's own decoder read what stands behind the version
// byte.
func TestBodyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Body{anyBytes(t, "key"), anyBytes(t, "value"), anyHeaders(t), anySettings(t)}
		prefix := []byte("before")
		b := EncodeBody(prefix, want.Key, want.Value, want.Headers, want.Settings)
		require.Equal(t, prefix, b[:len(prefix)])
		require.Equal(t, len(b), cap(b), "the size is computed, not found by growing")
		b = b[len(prefix):]

		got, err := DecodeBody(b)
		require.NoError(t, err)
		require.Equal(t, want, got)

		var record kmsg.Record
		require.NoError(t, record.ReadFrom(b[1:]))
		require.Equal(t, want.Key, record.Key)
		require.Equal(t, want.Value, record.Value)
		settings := len(record.Headers) - len(want.Headers)
		require.GreaterOrEqual(t, settings, 0)
		for i, h := range record.Headers[settings:] {
			require.Equal(t, want.Headers[i], kgo.RecordHeader(h))
		}
		require.Equal(t, b[1:], record.AppendTo(nil))

		for cut := range b {
			_, err := DecodeBody(b[:cut])
			require.Error(t, err)
		}
		_, err = DecodeBody(append(b, 0))
		require.Error(t, err)
	})
}

// A duration that is rounded up when a request is decoded can be read again from the body.
func TestLongestDurationsCanBeReadAgain(t *testing.T) {
	durations := []string{"9223372036853.000001ms", "9223372036853.5ms", "9223372036853775807ns", "9223372036853775808ns", "9223372036853999999ns", "9223372036854ms"}
	for _, d := range durations {
		r := intake(HeaderTopic, "orders", HeaderDelay, "1s", HeaderAckTimeout, d, HeaderMaxLateness, d, HeaderBackoff, "exponential:1s:"+d)
		req, err := Decode(r, Limits{})
		require.NoError(t, err, d)
		body, err := DecodeBody(EncodeBody(nil, nil, nil, nil, req.Settings))
		require.NoError(t, err, d)
		require.Equal(t, req.Settings, body.Settings)
		require.Equal(t, 9223372036854*time.Millisecond, body.Settings.AckTimeout)
	}
	_, err := Decode(intake(HeaderTopic, "orders", HeaderDelay, "1s", HeaderAckTimeout, "9223372036854000001ns"), Limits{})
	require.ErrorContains(t, err, tooLong)
}

// A program of the version before reads of a body with steps a backoff that it knows, and no more than that.
func TestStepsCanBeReadByTheVersionBefore(t *testing.T) {
	s := DefaultSettings()
	s.Backoff = BackoffSteps(time.Minute, 5*time.Second, 2*time.Hour)
	var record kmsg.Record
	require.NoError(t, record.ReadFrom(EncodeBody(nil, nil, nil, nil, s)[1:]))
	require.Equal(t, []kmsg.Header{{Key: HeaderBackoff, Value: []byte("exponential:5s:2h0m0s")}, {Key: HeaderRetryAfter, Value: []byte("1m0s,5s,2h0m0s")}}, record.Headers)
}

// What a version before has stored beyond the bounds goes on within them.
func TestStoredSettingsAreBroughtWithinTheBounds(t *testing.T) {
	s := DefaultSettings()
	s.Ack, s.AckTimeout, s.MaxAttempts = AckReport, time.Millisecond, math.MaxInt32
	body, err := DecodeBody(EncodeBody(nil, nil, nil, nil, s))
	require.NoError(t, err)
	require.Equal(t, MinAckTimeout, body.Settings.AckTimeout)
	require.Equal(t, MaxAttempts, body.Settings.MaxAttempts)
}

func TestBodyDefaultsCostNothing(t *testing.T) {
	b := EncodeBody(nil, []byte("k"), []byte("v"), nil, DefaultSettings())
	require.Equal(t, "01"+"10"+"000000"+"026b"+"0276"+"00", hex.EncodeToString(b))
}

// TestBodyUsesSpace: an encoder that writes many bodies into one buffer does not allocate.
func TestBodyUsesSpace(t *testing.T) {
	buf := make([]byte, 0, 1<<10)
	headers := []kgo.RecordHeader{{Key: "a", Value: []byte("1")}}
	allocs := testing.AllocsPerRun(100, func() { EncodeBody(buf, nil, []byte("v"), headers, DefaultSettings()) })
	require.Zero(t, allocs)
}

func TestDecodeBodyOfAnotherVersion(t *testing.T) {
	_, err := DecodeBody([]byte{2, 0})
	require.EqualError(t, err, "decoding body: unknown version 2")
	_, err = DecodeBody(nil)
	require.EqualError(t, err, "decoding body: malformed body: no bytes")

	newer := EncodeBody(nil, nil, nil, []kgo.RecordHeader{
		{Key: "notyet-colour", Value: []byte("red")}, {Key: "notyet-ack", Value: []byte("report")}, {Key: "a"}, {Key: "notyet-ack"},
	}, DefaultSettings())
	body, err := DecodeBody(newer)
	require.NoError(t, err)
	require.Equal(t, AckReport, body.Settings.Ack)
	require.Equal(t, []kgo.RecordHeader{{Key: "a"}, {Key: "notyet-ack"}}, body.Headers, "settings stand in front only")

	broken := EncodeBody(nil, nil, nil, []kgo.RecordHeader{{Key: "notyet-ack", Value: []byte("x")}}, DefaultSettings())
	_, err = DecodeBody(broken)
	require.ErrorContains(t, err, `notyet-ack "x"`)
}

func BenchmarkBody(b *testing.B) {
	value, headers := make([]byte, 200), []kgo.RecordHeader{{Key: "traceparent", Value: make([]byte, 55)}}
	var buf []byte
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = EncodeBody(buf[:0], []byte("order-1"), value, headers, DefaultSettings())
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeBody(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}
