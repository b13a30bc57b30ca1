package scanner

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/shards"
	"github.com/notyet/notyet/task"
)

// sharer leaves out the records of other databases. A batch says by which version of the rules its
// records were left out, and is refused if there is another one. nil: there is one database.
type sharer struct {
	shard  int
	shards shards.Shards
	own    func(intake string) (target string) // of an intake; "": none
	retry  retrier

	now  atomic.Pointer[shardmap.Map] // nil: not known
	most atomic.Int64                 // rules in force that it has had
	// lacking is since when the database has fewer than that: it was set back. Others give it what
	// it lacks: see shards.Databases.Tend. Until then it decides nothing, unless all are away.
	lacking atomic.Pointer[time.Time]
	patient time.Duration
}

// patience is longer than others take to give a database its rules, or to take back a rule that it
// alone had.
const patience = 30 * time.Second

var errLacking = errors.New("the database has lost rules about the databases of targets: another one is asked for them")

// believe returns errLacking if the database was set back, and has to be given its rules.
func (s *sharer) believe(m *shardmap.Map) error {
	n := int64(m.InForce())
	if n < s.most.Load() {
		since := s.lacking.Load()
		if since == nil {
			now := time.Now()
			since = &now
			s.lacking.Store(since)
		}
		if time.Since(*since) < s.patient {
			return errLacking
		}
	}
	s.most.Store(n)
	s.lacking.Store(nil)
	return nil
}

// rules returns the rules in force. At first use, and after forget, it reads them.
func (s *sharer) rules(ctx context.Context) (m *shardmap.Map, err error) {
	if s == nil {
		return nil, nil
	}
	if m = s.now.Load(); m != nil {
		return m, nil
	}
	err = s.retry.do(ctx, "reading which database has which target", func() error {
		read, err := s.shards.Map(ctx)
		if m = &read; err == nil {
			err = s.believe(m)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.now.Store(m)
	return m, nil
}

// forget has the rules read again.
func (s *sharer) forget() { s.now.Store(nil) }

// sharing is the rules for one partition.
type sharing struct {
	*sharer
	rules *shardmap.Map
	part  shardmap.Partition
}

func (s *sharer) of(rules *shardmap.Map, src intake.Source) sharing {
	return sharing{s, rules, shardmap.Partition{Topic: src.Topic, TopicID: src.TopicID, Partition: src.Partition}}
}

func (s sharing) at(r *kgo.Record) (shard int, decided bool) {
	return s.rules.At(schemas.Route(r, s.own(r.Topic)), s.part, r.Offset)
}

// before returns how many records of a stretch come before the first unstored one that nobody can
// decide yet.
func (s sharing) before(r stretch, next int64) int {
	if s.sharer == nil {
		return len(r.records)
	}
	if a := s.rules.Announced(); a == nil || s.shard != a.Former && s.shard != a.Shard { // not this one's before nor after
		return len(r.records)
	}
	for i, rec := range r.records {
		if rec.Offset < next {
			continue
		}
		if _, decided := s.at(rec); !decided {
			return i
		}
	}
	return len(r.records)
}

// decode is of a record of this database; others bring no change. Cancels of many name the
// installation themselves. An unreadable record names no target.
func (s sharing) decode(cancels string, of func(source int, r *kgo.Record) (task.Change, bool)) func(source int, r *kgo.Record) (task.Change, bool) {
	if s.sharer == nil {
		return of
	}
	return func(source int, r *kgo.Record) (task.Change, bool) {
		if shard, _ := s.at(r); shard != s.shard && r.Topic != cancels {
			return task.Change{}, false
		}
		return of(source, r)
	}
}

// undecidedRest is the time between two looks at rules that are announced.
const undecidedRest = 20 * time.Millisecond

// wait waits a moment for the rules to be decided.
func (s *sharer) wait(ctx context.Context) error {
	s.forget()
	return loop.Rest(ctx, undecidedRest)
}
