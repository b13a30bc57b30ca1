package schemas

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// redecoded writes a request and decodes it as if Kafka had put it where the first record was.
func redecoded(t require.TestingT, r Request, from *kgo.Record, l Limits) Request {
	rec, err := r.Record(from.Topic)
	require.NoError(t, err)
	rec.Partition, rec.Offset, rec.Timestamp = from.Partition, from.Offset, from.Timestamp
	again, err := Decode(rec, l)
	require.NoError(t, err)
	return again
}

func TestRequestRecord(t *testing.T) {
	settings := DefaultSettings()
	settings.Ack, settings.Priority, settings.MaxLateness = AckReport, PriorityLow, time.Hour
	for _, change := range []func(*Request){
		func(*Request) {},
		func(r *Request) { r.ID, r.GivenID, r.Settings.Events = "", false, EventsNone },
		func(r *Request) { r.Settings.Events = EventsNone },
		func(r *Request) { r.Due = -1 },
		func(r *Request) { r.Version = 0 },
		func(r *Request) { r.Settings = settings },
		func(r *Request) {
			r.Settings.IfExists, r.Settings.Merge, r.Settings.MaxWait = Merge, MergeSum, 1500*time.Microsecond
		},
		func(r *Request) { r.Settings.Backoff = Backoff{First: time.Second, Max: time.Second} },
		func(r *Request) { r.Key, r.Value = nil, []byte{} },
		func(r *Request) { r.Key, r.Value = []byte{}, nil },
		func(r *Request) { r.Headers = []kgo.RecordHeader{{Key: "a"}, {Key: "a", Value: []byte{}}} },
		func(r *Request) {
			r.Topic, r.Settings = "https://example.com", CallbackSettings("https://Example.com/?a=b", "")
		},
		func(r *Request) {
			r.Topic, r.Settings = "http://example.com:81", CallbackSettings("http://example.com:81", "PUT")
			r.Settings.AckTimeout, r.Settings.Ack = DefaultSettings().AckTimeout, AckReport
		},
		func(r *Request) {
			r.Topic, r.Settings = "https://example.com", CallbackSettings("https://example.com/", "POST")
			r.Op, r.Due, r.Timer = OpTimer, 0, Timer{Cron: "* * * * *", Timezone: "UTC"}
		},
		func(r *Request) { r.Op, r.Due, r.Topic = OpCancel, 0, "https://example.com" },
		func(r *Request) { r.Op, r.Due, r.Topic = OpTimerDelete, 0, "https://example.com" },
		func(r *Request) { r.Op, r.Due = OpCancel, 0 },
		func(r *Request) { r.Op, r.Due, r.Version = OpFire, 0, 3 },
		func(r *Request) { r.Op, r.Due, r.Version = OpStop, 0, 3 },
		func(r *Request) { r.Op, r.Due, r.Timer = OpTimer, 0, Timer{Cron: "* * * * *", Timezone: "UTC"} },
		func(r *Request) {
			r.Op, r.Due, r.Timer, r.Settings = OpTimer, 0, Timer{Cron: "@yearly", Timezone: "Europe/Berlin", Misfire: MisfireSkip}, settings
		},
		func(r *Request) {
			from, until := int64(0), int64(accepted+1)
			r.Op, r.Due, r.Settings.Ack = OpTimer, 0, AckReport
			r.Timer = Timer{Every: time.Second, Timezone: "UTC", From: &from, Until: &until, Jitter: 1500 * time.Millisecond, Overlap: OverlapSkip}
		},
		func(r *Request) { r.Op, r.Due = OpTimerDelete, 0 },
	} {
		want := NewRequest(OpSchedule, "orders", "order-1")
		want.Due, want.Accepted, want.Key, want.Value = accepted+60000, accepted, []byte("k"), []byte("v")
		change(&want)
		got := redecoded(t, want, intake(), Limits{})
		if !want.GivenID {
			want.ID = "notyet.intake/3/42"
		}
		if want.Settings.MaxWait != 0 {
			want.Settings.MaxWait = 2 * time.Millisecond // whole milliseconds, rounded up
		}
		if want.Settings.IfExists == Merge {
			want.MaxValue = DefaultMaxValueBytes
		}
		require.Equal(t, want, got)
	}
}

func TestRequestRecordDelay(t *testing.T) {
	r := NewRequest(OpSchedule, "orders", "")
	r.Delay = 1500 * time.Millisecond
	rec, err := r.Record("other.intake")
	require.NoError(t, err)
	require.Equal(t, "other.intake", rec.Topic)
	require.True(t, rec.Timestamp.IsZero(), "the client or the broker sets it")
	require.Equal(t, []kgo.RecordHeader{{Key: HeaderTopic, Value: []byte("orders")}, {Key: HeaderDelay, Value: []byte("1.5s")}}, rec.Headers)
}

func TestRequestRecordFindsMistakes(t *testing.T) {
	for _, c := range []struct {
		change func(*Request)
		want   string
	}{
		{func(r *Request) { r.Topic = "" }, "notyet-topic is not a topic name"},
		{func(r *Request) { r.Topic = "in" }, "is an internal topic"},
		{func(r *Request) { r.Settings = CallbackSettings("https://example.com/", "") }, "stands beside notyet-topic"},
		{func(r *Request) {
			r.Topic, r.Settings = "https://example.org", CallbackSettings("https://example.com/", "")
		}, "stands beside notyet-topic"},
		{func(r *Request) { r.Topic, r.Settings = "", CallbackSettings("https://u@example.com/", "") }, "notyet-url has user info"},
		{func(r *Request) { r.Topic, r.Settings = "", CallbackSettings("https://example.com/", "HEAD") }, "notyet-method"},
		{func(r *Request) { r.Topic = "https://example.com" }, "is an origin: send the whole URL in notyet-url instead"},
		{func(r *Request) { r.ID = "" }, "notyet-id is empty"},
		{func(r *Request) { r.Op, r.GivenID = OpCancel, false }, "needs the id"},
		{func(r *Request) { r.Op = 77 }, `notyet-op "invalid"`},
		{func(r *Request) { r.Due, r.Delay = 1, 1 }, "stands beside notyet-at"},
		{func(r *Request) { r.Due, r.Delay = 0, -1 }, `notyet-delay "-1ns" is negative`},
		{func(r *Request) { r.Due = maxMillis + 1 }, "notyet-at"},
		{func(r *Request) { r.Version = -2 }, "notyet-version"},
		{func(r *Request) { r.Accepted = -1 }, "record timestamp"},
		{func(r *Request) { r.Settings = Settings{} }, `notyet-ack-timeout "0s" is zero`},
		{func(r *Request) { r.Settings.Merge = MergeSum }, "means nothing without notyet-if-exists merge"},
		{func(r *Request) { r.Headers = []kgo.RecordHeader{{Key: "notyet-ack", Value: []byte("x")}} }, "notyet-ack"},
		{func(r *Request) { r.Headers = []kgo.RecordHeader{{Key: "Notyet-x"}} }, "Notyet-x"},
	} {
		r := NewRequest(OpSchedule, "orders", "order-1")
		c.change(&r)
		rec, err := r.Record("in")
		require.ErrorContains(t, err, c.want)
		require.IsType(t, &Rejection{}, err)
		require.Nil(t, rec)
	}
}

func TestEnumNames(t *testing.T) {
	require.Equal(t, "timer-delete", OpTimerDelete.String())
	require.Equal(t, "invalid", Op(8).String())
	require.EqualValues(t, 2, OpFire, "a request that waits is stored with its number")
	require.Equal(t, "retry", StatusRetry.String())
	require.Equal(t, "invalid", Status(0).String())
}

func TestValidTopic(t *testing.T) {
	for _, name := range []string{"a", "A.b_c-9", "...", "__x"} {
		require.True(t, ValidTopic(name), name)
	}
	for _, name := range []string{"", ".", "..", "a/b", "ä", "a b", "a\x00"} {
		require.False(t, ValidTopic(name), name)
	}
}
