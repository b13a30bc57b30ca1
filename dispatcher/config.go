package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/defaults"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/schemas"
)

// Config of a dispatcher. The zero value works.
type Config struct {
	// MemberID names this process among the dispatchers; the election source must use the same.
	// Default host-pid-uuid.
	MemberID string
	// Results is the topic that events go to. Default notyet.results.
	Results string
	// Group is the scanners' group, and Read are their topics. While the database has less of them
	// than the group has committed, nothing is claimed or sent. Default: no group is asked.
	Group string
	Read  []string
	// LookAhead is how far ahead of now tasks are claimed and staged. Longer rides out longer
	// stalls of the database without lateness; a cancel of a claimed task answers too_late. Default
	// 400 ms.
	LookAhead time.Duration
	// BurstLookAhead is how far the look-ahead may grow before more tasks than can be staged within
	// the usual one. A value not above LookAhead keeps the look-ahead as it is. Default 3 s.
	BurstLookAhead time.Duration
	// Window is the near future that the index holds. Default 2 h.
	Window time.Duration
	// StageTasks and StageBytes bound the tasks in memory with their bodies. Default 100 000 and
	// 256 MiB.
	StageTasks int
	StageBytes int
	// CreateTargets makes a missing target topic when its first task is sent. Default false: such a
	// task becomes a dead letter after UndeliverableAfter, for a mistyped name should not come into
	// being.
	CreateTargets bool
	// DrainTimeout bounds the wait for a slot to be given away, and for every slot at shutdown. The
	// next owner sends again what Kafka has not acknowledged by then. Default 20 s.
	DrainTimeout time.Duration
	// Retention is how long a task can be asked about and keeps its version after its end, counted
	// from its due time or, where a caller or a consumer ended the task, from then. Default 7 days.
	Retention time.Duration
	// DeadRetention is how long a dead letter is kept, replayed or not. Default 0: for ever.
	DeadRetention time.Duration
	// AuditRetention is how long an entry of the audit log is kept. Default 0: for ever.
	AuditRetention time.Duration
	// UnresponsiveAfter is how long a target may acknowledge nothing before its tasks are set
	// aside. Default 10 s.
	UnresponsiveAfter time.Duration
	// UndeliverableAfter is how long a missing or forbidden target is tried before its tasks become
	// dead letters. Below 0: once. Default 1 min.
	UndeliverableAfter time.Duration
	// MisfireAfter is how late a timer's run may be before it is missed. Default 1 min.
	MisfireAfter time.Duration
	// Targets are the targets with metrics of their own; the others' are one series. Default the
	// TopTargets with the most traffic.
	Targets []string
	// TopTargets is how many targets those are. Default 20.
	TopTargets int
}

func (c Config) withDefaults() (Config, error) {
	c.Results = cmp.Or(c.Results, schemas.TopicResults)
	c.LookAhead = cmp.Or(c.LookAhead, defaults.LookAhead)
	c.BurstLookAhead = cmp.Or(c.BurstLookAhead, defaults.BurstLookAhead)
	c.Window = cmp.Or(c.Window, defaults.Window)
	c.StageTasks = cmp.Or(c.StageTasks, defaults.StageTasks)
	c.StageBytes = cmp.Or(c.StageBytes, defaults.StageBytes)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, defaults.DrainTimeout)
	c.Retention = cmp.Or(c.Retention, defaults.Retention)
	c.UnresponsiveAfter = cmp.Or(c.UnresponsiveAfter, 10*time.Second)
	c.UndeliverableAfter = cmp.Or(c.UndeliverableAfter, defaults.UndeliverableAfter)
	c.MisfireAfter = cmp.Or(c.MisfireAfter, defaults.MisfireAfter)
	c.TopTargets = cmp.Or(c.TopTargets, defaults.TopTargets)
	if c.MemberID == "" {
		host, _ := os.Hostname()
		c.MemberID = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), uuid.NewString()[:8])
	}
	if c.LookAhead < 10*time.Millisecond || c.LookAhead > time.Minute {
		return c, fmt.Errorf("the look-ahead must be 10ms to 1m, not %v", c.LookAhead)
	}
	if c.StageTasks < 1 || c.StageBytes < 1 {
		return c, errors.New("the staging bounds must be above 0")
	}
	return c, nil
}

// flight is what the tasks in flight go by.
func (c Config) flight() flight.Config {
	return flight.Config{MemberID: c.MemberID, LookAhead: c.LookAhead, Furthest: max(c.LookAhead, c.BurstLookAhead), StageTasks: c.StageTasks, StageBytes: c.StageBytes, DrainTimeout: c.DrainTimeout,
		UnresponsiveAfter: c.UnresponsiveAfter, UndeliverableAfter: c.UndeliverableAfter, MisfireAfter: c.MisfireAfter, Tenants: new(flight.Tenants)}
}

// Index is a dispatcher's view of the index: internal/index has one in Redis, one in memory, and
// one over the database.
type Index interface {
	Wake(ctx context.Context, at []index.SlotPos) error
	Wakes(ctx context.Context) <-chan []index.SlotPos
	Next(ctx context.Context, from []index.SlotPos) ([]index.SlotPos, error)
	Counts(ctx context.Context, slots []int, bounds []int64) ([]int64, error)
	Add(ctx context.Context, entries []index.Entry) error
	Remove(ctx context.Context, entries []index.Entry) error
}

// Copy is an index beside the database, kept in step by the dispatchers.
type Copy interface {
	Index
	Count(ctx context.Context, slot int, from, to int64) (int64, error)
	Range(ctx context.Context, slot int, from, to int64) ([]index.Entry, error)
	Marks(ctx context.Context, slots []int) (map[int]int64, error)
	SetMark(ctx context.Context, slot int, upTo int64) error
	Trim(ctx context.Context, upTo []index.SlotPos) error
	Clear(ctx context.Context, slot int) error
}
