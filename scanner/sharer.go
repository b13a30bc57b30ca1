package scanner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

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
	all    func() shards.Databases             // those that this process reaches
	retry  retrier
	// installation is the id that cancels of many have that were listed in this database.
	installation func(context.Context) (string, error)

	now  atomic.Pointer[shardmap.Map] // nil: not known
	most atomic.Int64                 // rules in force that it has had
	// lacking is since when the database has fewer than that: it was set back. Others give it what
	// it lacks: see shards.Databases.Tend. Until then it decides nothing, unless all are away.
	lacking atomic.Pointer[time.Time]
	patient time.Duration
	noPull  rest // in which no failed look is logged
}

// patience is longer than others take to give a database its rules, or to take back a rule that it
// alone had.
const patience = 30 * time.Second

var errLacking = errors.New("the database has lost rules about the databases of targets: another one is asked for them")

// believe returns errLacking if the database was set back, and has to be given its rules.
func (s *sharer) believe(ctx context.Context, m *shardmap.Map) error {
	n, forgotten := int64(m.InForce()), s.all().Forgotten(ctx, s.shard, *m)
	if n < s.most.Load() || forgotten {
		since := s.lacking.Load()
		if since == nil {
			now := time.Now()
			since = &now
			s.lacking.Store(since)
		}
		if forgotten || time.Since(*since) < s.patient {
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
			err = s.believe(ctx, m)
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
	if !slices.ContainsFunc(s.rules.Rules, func(r shardmap.Rule) bool {
		return !r.Followed && (s.shard == r.Former || s.shard == r.Shard && !r.Held)
	}) {
		return len(r.records) // not this one's before nor after
	}
	for i, rec := range r.records {
		if rec.Offset < next {
			continue
		}
		if shard, decided := s.at(rec); !decided && (shard == s.shard || s.rules.Announced() != nil) {
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

// undecidedRest is the time between two looks at announced rules, and at tasks that follow.
const undecidedRest = 20 * time.Millisecond

// wait waits a moment for the rules to be decided.
func (s *sharer) wait(ctx context.Context) error {
	s.forget()
	return loop.Rest(ctx, undecidedRest)
}

// pullWithin bounds a look for tasks in another database.
const pullWithin = 2 * time.Second

func sourceOf(c task.Change) int {
	source, _ := task.SplitSeq(c.Seq)
	return source
}

// pull has the tasks that changes are about follow their targets from their former home, before the
// changes are decided. It returns the sources whose records have to wait: the former home does not
// answer, or has a delivery under way.
func (s *sharer) pull(ctx context.Context, rules *shardmap.Map, changes []task.Change) map[int]bool {
	if s == nil {
		return nil
	}
	for _, rule := range rules.Rules { // a database that was set back has several
		if rule.Held && !rule.Followed && rule.Shard == s.shard {
			if wait := s.pullBy(ctx, rule, changes); len(wait) > 0 {
				return wait
			}
		}
	}
	return nil
}

func (s *sharer) pullBy(ctx context.Context, rule shardmap.Rule, changes []task.Change) (wait map[int]bool) {
	sources, idents := map[int]bool{}, map[[16]byte]bool{}
	add := func(c task.Change, ident [16]byte) { sources[sourceOf(c)], idents[ident] = true, true }
	both := func(c task.Change, topic, id string) { // a timer may still have to make the run
		add(c, task.Ident(topic, id))
		add(c, task.TimerOf(topic, id))
	}
	own := ""
	for _, c := range changes {
		if c.Cancels != nil && own == "" {
			var err error
			if own, err = s.installation(ctx); err != nil {
				s.retry.log.Warn("cancels of many wait: it is not known whether they are this database's", zap.Error(err))
				return map[int]bool{sourceOf(c): true}
			}
		}
		switch {
		case c.Cancels != nil && c.Cancels.Installation != own: // another database decides them, with its tasks
		case c.Cancels != nil:
			for _, l := range c.Cancels.Tasks { // of any target
				add(c, [16]byte(l.Ident))
			}
		case c.Report != nil && rule.Matches(c.Report.Topic):
			both(c, c.Report.Topic, c.Report.ID)
		case c.Request != nil && rule.Matches(c.Request.Topic):
			both(c, c.Request.Topic, c.Request.ID)
		}
	}
	if len(idents) == 0 {
		return nil
	}
	bound, cancel := context.WithTimeout(ctx, pullWithin)
	defer cancel()
	done, err := s.all().Pull(bound, rule, slices.Collect(maps.Keys(idents)))
	if done {
		return nil
	}
	if err != nil && ctx.Err() == nil && !s.noPull.lasts() {
		s.noPull.begin(pullWithin)
		s.retry.log.Warn("requests wait: it is not known whether the former database of their targets has their tasks", zap.Int("former", rule.Former), zap.Error(err))
	}
	return sources
}
