package flight

import (
	"cmp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight/target"
	"github.com/notyet/notyet/test/counter"
)

// machineClock is a database's clock that agrees with this machine's.
type machineClock struct{}

func (machineClock) Now() time.Time        { return time.Now() }
func (machineClock) Millis() int64         { return time.Now().UnixMilli() }
func (machineClock) Latest() int64         { return time.Now().UnixMilli() }
func (machineClock) Offset() time.Duration { return 0 }

// newFlight makes one with nothing in flight; what the configuration leaves open is as usual.
func newFlight(t *testing.T, cfg Config) *Flight {
	t.Helper()
	cfg.MemberID = cmp.Or(cfg.MemberID, "one")
	cfg.LookAhead = cmp.Or(cfg.LookAhead, 400*time.Millisecond)
	cfg.Furthest = cmp.Or(cfg.Furthest, 3*time.Second)
	cfg.StageTasks = cmp.Or(cfg.StageTasks, 100_000)
	cfg.StageBytes = cmp.Or(cfg.StageBytes, 256<<20)
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 20*time.Second)
	cfg.UnresponsiveAfter = cmp.Or(cfg.UnresponsiveAfter, 10*time.Second)
	cfg.UndeliverableAfter = cmp.Or(cfg.UndeliverableAfter, time.Minute)
	cfg.MisfireAfter = cmp.Or(cfg.MisfireAfter, time.Minute)
	cfg.Tenants = new(Tenants)
	return New(cfg, machineClock{}, NewMetrics(prometheus.NewRegistry()), NewKicks(), zap.NewNop())
}

// usualLimits are the limits of callbacks without any configuration.
func usualLimits() (each, all int) { return 64, 2048 }

// admits says whether a due task is sent now.
func (fl *Flight) admits(t *Task, now int64) bool {
	return fl.Due.admit(&look{machine: fl.machine, now: now, at: time.Now()}, t, false)
}

// detains has only the policy of its target judge a task, and does what follows.
func (f *gates) detains(t *Task, now int64) bool {
	v := f.judge(t, time.Now())
	return v != sends && !Due{Owned{f.flight}}.act(&look{machine: f.flight, now: now, task: t}, v)
}

// silentSince is of an outlet that did not answer at an instant.
func silentSince(at time.Time) (b target.Bar) {
	b.Close(target.Silent, at)
	return b
}

// refusesSince is of an outlet whose topic was missing at an instant.
func refusesSince(at time.Time) (b target.Bar) {
	b.Refuse(target.Refused, at.Add(time.Hour), 0, at)
	return b
}

func nowMillis() int64 { return time.Now().UnixMilli() }

var counted = counter.Value
