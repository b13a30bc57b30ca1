package flight

import (
	"cmp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

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
	return New(cfg, machineClock{}, nil, NewMetrics(prometheus.NewRegistry()), NewKicks(), zap.NewNop())
}

func nowMillis() int64 { return time.Now().UnixMilli() }

var counted = counter.Value
