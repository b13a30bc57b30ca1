package scanner

import (
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
)

// gauged is the value of a gauge.
func gauged(g prometheus.Gauge) int {
	reg := prometheus.NewRegistry()
	reg.MustRegister(g)
	families, err := reg.Gather()
	if err != nil {
		panic(err)
	}
	return int(families[0].GetMetric()[0].GetGauge().GetValue())
}

// Slots that nobody owns, and a line that hangs, show from outside; in normal running nothing does.
func TestSeesWhenDispatchersDoNotKeepUp(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	look := func() (unclaimed, unsettled int) {
		s.watcher.look(t.Context())
		return gauged(s.worker.metrics.unclaimed), gauged(s.worker.metrics.unsettled)
	}
	due := time.Now().Add(-2 * behindAfter).UnixMilli()
	f.publish(asks("later", 20)...) // due in an hour
	f.events(atLeast(20))
	unclaimed, unsettled := look()
	require.Zero(t, unclaimed)
	require.Zero(t, unsettled)

	f.publish(record(schemas.TopicIntake, 0, schemas.HeaderTopic, "orders", schemas.HeaderID, "due", schemas.HeaderEvents, "all", schemas.HeaderDelay, "0s"))
	f.events(atLeast(21))
	unclaimed, _ = look()
	require.Zero(t, unclaimed, "it has just come")
	f.sql("UPDATE tasks SET pos = " + strconv.FormatInt(due, 10) + " WHERE id = CAST('due' AS BLOB)")
	unclaimed, unsettled = look()
	require.Equal(t, 1, unclaimed, "nobody owns the slot")
	require.Zero(t, unsettled)
	require.GreaterOrEqual(t, gauged(s.worker.metrics.oldest), int(2*behindAfter.Seconds())-1, "the database's clock is this machine's, to a moment")

	slots, err := f.store.SlotCount(t.Context())
	require.NoError(t, err)
	all := make([]int, slots)
	for i := range all {
		all[i] = i
	}
	epoch, err := intake.New(f.store).Line().NextEpoch(t.Context())
	require.NoError(t, err)
	_, err = intake.New(f.store).Line().Acquire(t.Context(), all, epoch, "it hangs")
	require.NoError(t, err)
	require.NoError(t, intake.New(f.store).Line().Claim(t.Context(), 0, all, make([]int64, len(all)), epoch, due))
	unclaimed, unsettled = look()
	require.Zero(t, unclaimed)
	require.Equal(t, 1, unsettled, "its owner does not settle it")

	require.GreaterOrEqual(t, gauged(s.worker.metrics.oldest), int(2*behindAfter.Seconds())-1)

	f.sql("UPDATE slots SET done = claimed")
	unclaimed, unsettled = look()
	require.Zero(t, unclaimed)
	require.Zero(t, unsettled)
	require.Zero(t, gauged(s.worker.metrics.oldest), "what comes in an hour is not overdue")
}
