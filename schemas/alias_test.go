package schemas

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/test/recordtest"
)

func aliased(key, value []byte, headers ...string) *kgo.Record {
	return &kgo.Record{Topic: "notyet.intake", Partition: 2, Offset: 7, Timestamp: time.Unix(1_700_000_000, 0), Key: key, Value: value, Headers: recordtest.Headers(headers...)}
}

var allAliases = Limits{Aliases: Aliases}

func TestETF1(t *testing.T) {
	r := aliased([]byte("video-1"), []byte("on"), "trace", "a", etf1Epoch, "1700000060", etf1Target, "videos", etf1Key, "v1", "Trace", "\xff")
	req, err := Decode(r, allAliases)
	require.NoError(t, err)
	require.Equal(t, []any{OpSchedule, "videos", "video-1", true, int64(1_700_000_060_000), "v1", "on"},
		[]any{req.Op, req.Topic, req.ID, req.GivenID, req.Due, string(req.Key), string(req.Value)})
	require.Equal(t, []kgo.RecordHeader{{Key: "trace", Value: []byte("a")}, {Key: "Trace", Value: []byte("\xff")}}, req.Headers)
	require.Equal(t, EventsFinal, req.Settings.Events)
	require.Len(t, r.Headers, 5, "the record is as it was")
	require.Equal(t, "video-1", string(r.Key))

	req, err = Decode(aliased([]byte("video-1"), []byte{}, etf1Epoch, "1", etf1Target, "videos"), allAliases)
	require.NoError(t, err)
	require.Nil(t, req.Key)
	require.NotNil(t, req.Value, "an empty value is not null")
	require.Equal(t, int64(1000), req.Due)

	for _, headers := range [][]string{{etf1Target, "videos"}, {etf1Target, "videos", etf1Epoch, "1700000060", etf1Key, "v1"}} {
		req, err = Decode(aliased([]byte("video-1"), nil, headers...), allAliases)
		require.NoError(t, err)
		require.Equal(t, []any{OpCancel, "videos", "video-1"}, []any{req.Op, req.Topic, req.ID})
	}
}

func TestNATS(t *testing.T) {
	req, err := Decode(aliased([]byte("k"), nil, natsAt, "@at 2023-11-14t23:14:20+01:00", natsTarget, "orders", "x", "y"), allAliases)
	require.NoError(t, err)
	require.Equal(t, []any{OpSchedule, "orders", "notyet.intake/2/7", false, int64(1_700_000_060_000), "k"},
		[]any{req.Op, req.Topic, req.ID, req.GivenID, req.Due, string(req.Key)})
	require.Nil(t, req.Value)
	require.Equal(t, []kgo.RecordHeader{{Key: "x", Value: []byte("y")}}, req.Headers)
}

func TestWithoutAliasesTheirHeadersAreTheCallers(t *testing.T) {
	r := aliased([]byte("k"), nil, natsAt, "@at then", etf1Epoch, "soon", "Scheduler-Epoch", "", HeaderTopic, "orders", HeaderDelay, "1s")
	for _, l := range []Limits{{}, {Aliases: []Alias{}}} {
		req, err := Decode(r, l)
		require.NoError(t, err)
		require.Len(t, req.Headers, 3)
	}
	_, err := Decode(aliased([]byte("k"), nil, natsAt, "@at 2023-11-14T23:14:20Z", natsTarget, "orders"), Limits{Aliases: []Alias{AliasETF1}})
	require.ErrorContains(t, err, HeaderTopic+" is missing")
	_, err = Decode(aliased([]byte("k"), nil), allAliases)
	require.ErrorContains(t, err, etf1Target+" is missing", "etf1's own way to cancel")
	require.Equal(t, "k", err.(*Rejection).ID)
	req, err := Decode(aliased([]byte("k"), nil, HeaderTopic, "orders", HeaderDelay, "1s", "scheduler-name", "x", "nats-scheduler", "y"), allAliases)
	require.NoError(t, err, "notyet's own go on")
	require.Len(t, req.Headers, 2)
}

func TestBadAliases(t *testing.T) {
	k := []byte("k")
	for want, r := range map[string]*kgo.Record{
		`notyet-priority stands beside a header of etf1`:                                 aliased(k, k, etf1Epoch, "1700000060", etf1Target, "t", HeaderPriority, "low"),
		`Notyet-Foo stands beside a header of nats`:                                      aliased(k, k, "Notyet-Foo", "x", natsAt, "@at 2023-11-14T23:14:20Z", natsTarget, "t"),
		`Nats-Schedule "@at x" stands beside a header of etf1`:                           aliased(k, k, etf1Epoch, "1700000060", natsAt, "@at x"),
		`scheduler-epoch "2" is repeated`:                                                aliased(k, k, etf1Epoch, "1", etf1Epoch, "2"),
		`Scheduler-Epoch "1" is in another case than etf1's: write scheduler-epoch`:      aliased(k, k, "Scheduler-Epoch", "1"),
		`scheduler-epoch "1.5" is not a time in Unix seconds`:                            aliased(k, k, etf1Epoch, "1.5", etf1Target, "t"),
		`scheduler-epoch "-1" is not a time in Unix seconds`:                             aliased(k, k, etf1Epoch, "-1", etf1Target, "t"),
		`scheduler-epoch "1700000060000" is not a time in Unix seconds`:                  aliased(k, k, etf1Epoch, "1700000060000", etf1Target, "t"),
		`scheduler-epoch is missing`:                                                     aliased(k, k, etf1Target, "t"),
		`scheduler-target-topic is missing: name the target topic`:                       aliased(k, k, etf1Epoch, "1700000060"),
		`scheduler-target-topic "notyet.intake" is an internal topic`:                    aliased(k, k, etf1Epoch, "1700000060", etf1Target, "notyet.intake"),
		`scheduler-target-topic "a…"`:                                                    aliased(k, nil, etf1Target, "a/b"),
		`record key is missing`:                                                          aliased(nil, k, etf1Epoch, "1700000060", etf1Target, "t"),
		`record key is empty`:                                                            aliased([]byte{}, k, etf1Epoch, "1700000060", etf1Target, "t"),
		`Nats-Schedule "@every 1h" is not an instant`:                                    aliased(k, k, natsAt, "@every 1h", natsTarget, "t"),
		`Nats-Schedule "2023-11-14T23:14:20Z" is not an instant`:                         aliased(k, k, natsAt, "2023-11-14T23:14:20Z", natsTarget, "t"),
		`Nats-Schedule "@at 1700000060000" is not an instant`:                            aliased(k, k, natsAt, "@at 1700000060000", natsTarget, "t"),
		`Nats-Schedule "2027-02-29T00:00:00Z" has the day 29`:                            aliased(k, k, natsAt, "@at 2027-02-29T00:00:00Z", natsTarget, "t"),
		`Nats-Schedule "2026-12-31T24:00:00Z" has the hour 24`:                           aliased(k, k, natsAt, "@at 2026-12-31T24:00:00Z", natsTarget, "t"),
		`Nats-Schedule "2026-12-31T23:59:60Z" has a leap second`:                         aliased(k, k, natsAt, "@at 2026-12-31T23:59:60Z", natsTarget, "t"),
		`Nats-Schedule "@at 2027-01-31T08:00" is not an instant`:                         aliased(k, k, natsAt, "@at 2027-01-31T08:00", natsTarget, "t"),
		`Nats-Schedule "2999-11-14T23:14:20Z" is beyond the horizon`:                     aliased(k, k, natsAt, "@at 2999-11-14T23:14:20Z", natsTarget, "t"),
		`Nats-Schedule-TTL "5m" is not supported`:                                        aliased(k, k, natsAt, "@at 2023-11-14T23:14:20Z", natsTarget, "t", "Nats-Schedule-TTL", "5m"),
		`nats-schedule-target "t" is in another case than nats's: write Nats-Schedule-T`: aliased(k, k, natsAt, "@at 2023-11-14T23:14:20Z", "nats-schedule-target", "t"),
		`Nats-Schedule is missing`:                                                       aliased(k, k, natsTarget, "t"),
	} {
		_, err := Decode(r, allAliases)
		require.ErrorContains(t, err, want)
		var rej *Rejection
		require.ErrorAs(t, err, &rej)
		require.NotEmpty(t, rej.ID)
	}
	_, err := Decode(aliased(k, k, etf1Epoch, "1.5", etf1Target, "t"), allAliases)
	var rej *Rejection
	require.ErrorAs(t, err, &rej)
	require.Equal(t, []string{"t", "k"}, []string{rej.Topic, rej.ID}, "the answer finds its sender")
	_, err = Decode(aliased(k, k, etf1Epoch, "1700000060"), allAliases)
	require.ErrorAs(t, err, &rej)
	require.Equal(t, "k", rej.ID, "a target is missing")
	require.ErrorContains(t, Limits{Aliases: []Alias{"x"}}.Validate(), `alias "x": there are etf1 and nats`)
}

func TestMayEnd(t *testing.T) {
	for want, records := range map[bool][][]string{
		true:  {{HeaderOp, "cancel"}, {HeaderTopic, "a", HeaderOp, "stop"}, {HeaderOp, "timer-delete"}, {HeaderOp, "timer-disable"}, {"Scheduler-Target-Topic", "a"}},
		false: {{}, {HeaderOp, "schedule"}, {HeaderOp, "fire"}, {HeaderOp, "timer"}, {HeaderOp, "timer-enable"}, {HeaderOp, "Cancel"}, {HeaderOp, "x"}, {"op", "cancel"}},
	} {
		for _, headers := range records {
			r := &kgo.Record{}
			for i := 0; i < len(headers); i += 2 {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
			}
			require.Equal(t, want, MayEnd(r), headers)
			if r.Value = []byte("v"); len(headers) > 0 && headers[0] == "Scheduler-Target-Topic" {
				require.False(t, MayEnd(r), "a value schedules")
			}
		}
	}
}
