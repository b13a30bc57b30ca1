package schemas

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestDeliveryKey(t *testing.T) {
	topic := [16]byte{1, 2, 15: 3}
	require.Equal(t, "AQIAAAAAAAAAAAAAAAAAAwAAAAMAAAAAAAAAKgAAAAE", DeliveryKey(topic, 3, 42, 1))
	seen := map[string]bool{}
	for _, top := range [][16]byte{{}, topic, {15: 1}} {
		for _, partition := range []int32{0, 1, 256, math.MaxInt32} {
			for _, offset := range []int64{0, 1, 1 << 32, math.MaxInt64} {
				for _, attempt := range []int{1, 2, 256, math.MaxInt32} {
					key := DeliveryKey(top, partition, offset, attempt)
					require.False(t, seen[key])
					seen[key] = true
				}
			}
		}
	}
}

func TestAppendDeliveryLeavesTheCallersHeaders(t *testing.T) {
	shared := make([]kgo.RecordHeader, 1, 9)
	shared[0] = kgo.RecordHeader{Key: "a"}
	one := AppendDelivery(shared[:1:1], Delivery{ID: "x", Attempt: 1, Key: "k"})
	two := AppendDelivery(shared[:1:1], Delivery{ID: "y", Attempt: 2, Key: "k"})
	require.Equal(t, "x", string(one[1].Value))
	require.Equal(t, "y", string(two[1].Value))
	require.Len(t, one, 5)
	_ = append(one[1].Value, "overwritten"...)
	require.Equal(t, "0", string(one[2].Value), "values in one allocation do not reach into each other")
}

func TestParseDeliveryProblems(t *testing.T) {
	parse := func(headers ...string) error {
		_, _, err := ParseDelivery(intake(headers...))
		return err
	}
	require.ErrorIs(t, parse(), ErrNotDelivery)
	require.ErrorIs(t, parse("a", "1"), ErrNotDelivery)
	require.ErrorIs(t, parse(HeaderID, "x"), ErrNotDelivery)
	require.ErrorIs(t, parse(HeaderAttempt, "1"), ErrNotDelivery)
	require.EqualError(t, parse(HeaderID, "x", HeaderAttempt, "0"),
		`parsing delivery: notyet-attempt "0" is not a count: expected an integer from 1 to 2147483647`)
	require.EqualError(t, parse(HeaderID, "x", HeaderAttempt, "1", HeaderDue, "soon"),
		`parsing delivery: notyet-due "soon" is not a time: expected Unix milliseconds`)
	require.EqualError(t, parse(HeaderID, ""), `parsing delivery: notyet-id is empty: expected 1 to 255 bytes of UTF-8`)
	require.EqualError(t, parse(HeaderID, "x", HeaderID, "x"), "parsing delivery: notyet-id is repeated")

	d, rest, err := ParseDelivery(intake("a", "1", HeaderID, "x", "notyet-colour", "red", HeaderAttempt, "2", "b", "2"))
	require.NoError(t, err, "a newer version may add headers")
	require.Equal(t, Delivery{ID: "x", Attempt: 2}, d)
	require.Equal(t, intake("a", "1", "b", "2").Headers, rest)
}

func TestReportErrorText(t *testing.T) {
	for in, want := range map[string]string{
		"":                                 "",
		strings.Repeat("x", 4096):          strings.Repeat("x", 4096),
		strings.Repeat("x", 4097):          strings.Repeat("x", 4096),
		strings.Repeat("x", 4095) + "ü":    strings.Repeat("x", 4095),
		strings.Repeat("x", 4094) + "ü":    strings.Repeat("x", 4094) + "ü",
		strings.Repeat("x", 4093) + "😀y":   strings.Repeat("x", 4093),
		"a\xffb":                           "a\uFFFDb",
		"\xff" + strings.Repeat("x", 4095): "\uFFFD" + strings.Repeat("x", 4093),
	} {
		r, err := DecodeReport(&kgo.Record{
			Value:   []byte(in),
			Headers: EncodeReport("", Report{Topic: "orders", ID: "x", Attempt: 1, Status: StatusFail}).Headers,
		})
		require.NoError(t, err)
		require.Equal(t, want, r.Error)
		require.Equal(t, want, string(EncodeReport("", Report{Error: in}).Value))
		require.True(t, utf8.ValidString(r.Error))
	}
	require.Nil(t, EncodeReport("", Report{}).Value)
}

func TestReportRetryAfter(t *testing.T) {
	report := func(after string) *kgo.Record {
		return intake(HeaderTopic, "orders", HeaderID, "x", HeaderAttempt, "1", HeaderStatus, "retry", HeaderRetryAfter, after)
	}
	r, err := DecodeReport(report("1500us"))
	require.NoError(t, err)
	require.Equal(t, 2*time.Millisecond, r.RetryAfter)
	_, err = DecodeReport(report("-1s"))
	require.ErrorContains(t, err, `notyet-retry-after "-1s" is negative`)
	_, err = DecodeReport(report("9223372036854775807ns"))
	require.ErrorContains(t, err, tooLong, "rounding up must not wrap")
	_, err = DecodeReport(intake(HeaderTopic, "a b"))
	require.ErrorContains(t, err, "is not a topic name")
	_, err = DecodeReport(intake(HeaderID, ""))
	require.ErrorContains(t, err, "notyet-id is empty")
	_, err = DecodeReport(intake(HeaderOp, "cancel"))
	require.ErrorContains(t, err, "is not part of a report")
}

func TestStatesFinal(t *testing.T) {
	var final []State
	for _, s := range States() {
		if s.Final() {
			final = append(final, s)
		}
	}
	require.ElementsMatch(t, []State{StateSucceeded, StateCancelled, StateStopped, StateStale, StateDead}, final)
}

func TestDecodeEventProblems(t *testing.T) {
	for in, want := range map[string]string{
		``:                                   "decoding event: unexpected end of JSON input",
		`{}`:                                 "decoding event: unknown schema 0",
		`{"schema":2,"id":"a","state":"x"}`:  "decoding event: unknown schema 2",
		`{"schema":1,"state":"dead"}`:        "decoding event: without id or state",
		`{"schema":1,"id":"a"}`:              "decoding event: without id or state",
		`{"schema":1,"id":1,"state":"dead"}`: "decoding event: json: cannot unmarshal number into Go struct field .id of type string",
	} {
		_, err := DecodeEvent(&kgo.Record{Value: []byte(in)})
		require.EqualError(t, err, want)
	}
	e, err := DecodeEvent(&kgo.Record{Value: []byte(`{"schema":1,"id":"a","state":"paused","colour":"red"}`)})
	require.NoError(t, err, "a newer version may add states and fields")
	require.Equal(t, Event{ID: "a", State: "paused"}, e)
	require.False(t, e.State.Final())
}

func TestEventEscapes(t *testing.T) {
	e := Event{ID: "a\"\\\n\x00", State: StateDead, At: 1, Reason: "bad \xff"}
	got, err := DecodeEvent(EncodeEvent(TopicResults, e))
	require.NoError(t, err)
	e.Reason = "bad \uFFFD"
	require.Equal(t, e, got)
}

// A consumer may send back every header that it got.
func TestReportWithTheHeadersOfTheDelivery(t *testing.T) {
	for _, name := range []string{HeaderDue, HeaderDelivery, HeaderReplay, HeaderTimer, HeaderTag} {
		_, err := DecodeReport(intake(HeaderTopic, "orders", HeaderID, "x", HeaderAttempt, "1", HeaderStatus, "ok", name, "1"))
		require.NoError(t, err, name)
	}
}
