package bench

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

func TestRequestsAreWhatTheContractSays(t *testing.T) {
	now := time.Now()
	limits := schemas.Limits{MaxDelay: schemas.DefaultMaxDelay, MaxValueBytes: 1 << 20}
	for name, v := range map[string]Variant{"plain": {}, "report": {Report: true}, "ids": {IDs: true}, "priorities": {Priorities: true}} {
		require.Equal(t, name, v.Name())
		q := newRequests("target", 200, v)
		keys := map[string]bool{}
		for i := range 3 {
			rec := q.record("intake", uint64(i), now.UnixMilli()+1000)
			rec.Timestamp = now
			got, err := schemas.Decode(rec, limits)
			require.NoError(t, err, name)
			require.Equal(t, "target", got.Topic)
			require.Equal(t, now.UnixMilli()+1000, got.Due)
			require.Len(t, got.Value, 200)
			require.Equal(t, v.IDs, got.GivenID)
			require.Equal(t, v.IDs, got.Settings.Events == schemas.EventsFinal)
			require.Equal(t, v.Report, got.Settings.Ack == schemas.AckReport)
			if v.Priorities {
				require.Equal(t, []schemas.Priority{schemas.PriorityHigh, schemas.PriorityNormal, schemas.PriorityLow}[i], got.Settings.Priority)
			}
			keys[string(rec.Key)] = true
		}
		require.Len(t, keys, 3, "each task has a key of its own")
	}
}

func TestCancelIsAboutItsRequest(t *testing.T) {
	rec := newRequests("target", 20, Variant{IDs: true}).record("intake", 7, time.Now().Add(time.Second).UnixMilli())
	cancel := cancelOf(rec)
	rec.Timestamp, cancel.Timestamp = time.Now(), time.Now()
	limits := schemas.Limits{MaxDelay: schemas.DefaultMaxDelay, MaxValueBytes: 1 << 20}
	want, err := schemas.Decode(rec, limits)
	require.NoError(t, err)
	got, err := schemas.Decode(cancel, limits)
	require.NoError(t, err)
	require.Equal(t, schemas.OpCancel, got.Op)
	require.Equal(t, []string{want.Topic, want.ID}, []string{got.Topic, got.ID})
	require.Equal(t, rec.Key, cancel.Key, "so that it follows the request")
}

func TestReportIsAboutTheDelivery(t *testing.T) {
	q := newRequests("target", 20, Variant{})
	rec := q.record("target", 0, 1000)
	rec.Headers = schemas.AppendDelivery(nil, schemas.Delivery{ID: "a", Due: 1000, Attempt: 3, Key: "k"})
	got, err := schemas.DecodeReport(okReport("reports", rec))
	require.NoError(t, err)
	require.Equal(t, schemas.Report{Topic: "target", ID: "a", Attempt: 3, Status: schemas.StatusOK, RetryAfter: schemas.NoRetryAfter, Delivery: "k"}, got)
}

func TestPaceSendsWhatWasAskedForInTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, sent := time.Now(), 0
		require.NoError(t, pace(t.Context(), 1234, 10*time.Second, func() {
			sent++
			if sent == 100 {
				time.Sleep(3 * time.Second) // virtual: the machine stalls, and what is missed is made up for
			}
		}))
		require.Equal(t, 12_340, sent)
		require.Equal(t, 10*time.Second, time.Since(began).Truncate(10*paceTick))
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, pace(ended, 1, time.Hour, func() {}), context.Canceled)
}

func TestOffsetsSince(t *testing.T) {
	require.Equal(t, 9, offsets{0: 10, 1: 4, 2: 3}.since(offsets{0: 5, 1: 3}))
}

func TestUsageReadsProc(t *testing.T) {
	b := &Bench{cfg: Config{Processes: []Process{{"self", os.Getpid()}}}}
	before, err := b.usage()
	require.NoError(t, err)
	r := newResult("steady", 10)
	r.used(b, before, before, 10, 1)
	memory, ok := r.Figures.Get("memory_self_mb")
	require.True(t, ok)
	require.Positive(t, memory)
	cpu, ok := r.Figures.Get("cpu_us_per_task")
	require.True(t, ok)
	require.Zero(t, cpu, "no time has passed")
	b.cfg.Processes[0].PID = 1 << 30
	_, err = b.usage()
	require.ErrorContains(t, err, "process self=1073741824")
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []Config{{ValueBytes: 3}, {Partitions: -1}, {Partitions: 5000}, {IdleTimeout: -1}} {
		require.Error(t, c.withDefaults().check())
	}
	require.NoError(t, Config{}.withDefaults().check())
}
