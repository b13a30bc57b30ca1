package scanner

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

const (
	// pendingEvery is the least time between two counts of what is pending. An intake takes at most its quota between two. The next count
	// comes after countShare times what the shorter one of the last two took, so that counting takes a twentieth of the time, and
	// one stall of the database or of this process makes no long wait. But that is at most longestPause, or twice what a longer count took:
	// an intake may have millions pending, or the database may be slow for two counts.
	pendingEvery = time.Second
	countShare   = 20
	longestPause = 30 * time.Second
	// shortCounts is how many counts read bodies at a time, beside one that took so long the last time that it makes the longest pause.
	shortCounts = 2
	// pendingLook is how often the counter looks whether a count is wanted.
	pendingLook = 200 * time.Millisecond
	// failedEvery is the least time from a count that failed to the next one, and longestPause the longest: without a count, nothing may
	// pass any more.
	failedEvery = 5 * time.Second
	// atLimitFor is how long after an intake has reached a limit of what may be pending it is counted again and again.
	atLimitFor = time.Minute
)

// pendingCounter counts what is pending in the database: intake.Intake.
type pendingCounter interface {
	Sources(ctx context.Context) ([]intake.Source, error)
	PendingSize(ctx context.Context, sources []int, bodies bool) (map[int]intake.Size, error)
}

// pendingShare is how much is pending of what this scanner's partitions of an intake brought: counted, stored since, and on the way. The
// first is the database's word. The others only grow until the next count, so what is delivered meanwhile makes no room, and a count that
// fails makes none either.
type pendingShare struct {
	limit   intake.Size // this scanner's part of the quotas; 0: no quota
	counted atomic.Pointer[pendingCount]
	tasks   atomic.Int64 // that have become pending since this process began; workers add
	bytes   atomic.Int64 // likewise
	wanted  atomic.Bool  // that it is counted again
	urgent  atomic.Bool  // likewise: there are partitions that were never counted

	// The poller alone uses these.
	onTheWay []passed
	gone     bool      // partitions have left that were counted; what they brought takes room until the next count
	full     time.Time // when something was beyond a limit, last
	first    time.Time // since when that has happened at least once a minute
}

// pendingCount is what the database had.
type pendingCount struct {
	intake.Size
	since      intake.Size // what had become pending since the process began, when the count began
	began      time.Time
	old        time.Time            // when nothing is rejected by it any longer
	partitions map[partitionKey]int // whose sources were counted, with how often each had been revoked before
}

// passed is what the records of a stretch can make pending at most.
type passed struct {
	reading *reading
	to      int64
	intake.Size
}

// opened returns what has become pending since this process began.
func (s *pendingShare) opened() intake.Size {
	return intake.Size{Tasks: s.tasks.Load(), Bytes: s.bytes.Load()}
}

// add notes what a batch has made pending. The caller is a worker, before it notes how far the partition is stored.
func (s *pendingShare) add(size intake.Size) {
	s.tasks.Add(size.Tasks)
	s.bytes.Add(size.Bytes)
}

// used returns how much is pending at most. False: it was not counted yet, or this scanner's part is not known.
func (s *pendingShare) used() (intake.Size, bool) {
	counted := s.counted.Load()
	if counted == nil || s.urgent.Load() || s.limit == (intake.Size{}) {
		return intake.Size{}, false
	}
	opened := s.opened()
	used := counted.Size.Plus(intake.Size{Tasks: opened.Tasks - counted.since.Tasks, Bytes: opened.Bytes - counted.since.Bytes})
	for _, p := range s.onTheWay {
		used = used.Plus(p.Size)
	}
	return used, true
}

// beyond returns the name of the quota in which there is no room for one more request. Of bytes, the last one may take more than there
// are: a large one would otherwise stand before the others until nothing is pending, also one that is too large for the intake.
func (s *pendingShare) beyond(used, more intake.Size) string {
	switch {
	case more == (intake.Size{}):
		return ""
	case s.limit.Bytes > 0 && used.Bytes >= s.limit.Bytes: // first: a request beyond it may do less
		return quotaBytes
	case s.limit.Tasks > 0 && used.Tasks >= s.limit.Tasks:
		return quotaTasks
	}
	return ""
}

// note notes that something is beyond a limit.
func (s *pendingShare) note(now time.Time) {
	if now.Sub(s.full) >= atLimitFor {
		s.first = now
	}
	s.full = now
}

// sure tells whether what is beyond a quota can be rejected. Nothing is on the way, which might open less than it may. And a count has
// begun since a limit was reached, is not old, has counted no partition that left, and has found half of the limit used: of what was taken
// since, much may be gone.
func (s *pendingShare) sure(quota string, now time.Time) bool {
	c := s.counted.Load()
	found, limit := c.Tasks, s.limit.Tasks
	if quota == quotaBytes {
		found, limit = c.Bytes, s.limit.Bytes
	}
	return len(s.onTheWay) == 0 && !s.gone && 2*found >= limit && now.Sub(s.full) < atLimitFor && c.began.After(s.first) && now.Before(c.old)
}

// divide sets this scanner's part, forgets what has arrived of what was on the way, and says whether a count is wanted.
func (s *pendingShare) divide(quota Quota, part float64, mine map[partitionKey]int, stored map[partitionKey]int64) {
	s.limit = intake.Size{Tasks: partOf(int64(quota.PendingTasks), part), Bytes: partOf(quota.PendingBytes, part)}
	left := s.onTheWay[:0]
	for _, p := range s.onTheWay {
		until := p.reading.until.Load() // what lies behind it is never stored
		if !p.reading.ended.Load() && (until == 0 || p.to <= until) && stored[p.reading.key] < p.to {
			left = append(left, p)
		}
	}
	s.onTheWay = left
	counted := s.counted.Load()
	urgent := counted == nil
	for key, revoked := range mine {
		if !urgent {
			before, there := counted.partitions[key]
			urgent = !there || before != revoked // another scanner may have stored something meanwhile
		}
	}
	s.urgent.Store(urgent)
	used, known := s.used()
	// Half of the room that the count found is used.
	half := known && (s.limit.Tasks > 0 && 2*used.Tasks >= s.limit.Tasks+counted.Tasks && used.Tasks > counted.Tasks ||
		s.limit.Bytes > 0 && 2*used.Bytes >= s.limit.Bytes+counted.Bytes && used.Bytes > counted.Bytes)
	s.gone = counted != nil && len(counted.partitions) > len(mine)
	s.wanted.Store(urgent || s.gone || half || time.Since(s.full) < atLimitFor)
}

// none says that no partition of the intake is here. Those that come are counted first.
func (s *pendingShare) none() {
	s.counted.Store(nil)
	s.wanted.Store(false)
	s.urgent.Store(false)
}

// partOf is a part of a quota, at least one; 0: there is none.
func partOf(quota int64, part float64) int64 {
	if quota <= 0 {
		return 0
	}
	return max(int64(math.Floor(float64(quota)*part)), 1)
}

// mayOpen is what a record can make pending at most.
func mayOpen(r *kgo.Record) intake.Size {
	if r.Attrs.IsControl() || !schemas.MaySchedule(r) {
		return intake.Size{}
	}
	size := intake.Size{Tasks: 1, Bytes: int64(64 + len(r.Key) + len(r.Value))}
	for _, h := range r.Headers {
		size.Bytes += int64(8 + len(h.Key) + len(h.Value))
	}
	return size
}

// counting is when some intakes are counted together. Each has a goroutine, which alone uses it.
type counting struct {
	intakes map[string]*paced
	bodies  bool          // they are read
	after   time.Time     // the next count comes not before
	took    time.Duration // the last one
	failed  error         // the last one; nil: it did not fail
}

// countings returns who is counted with whom: those without a quota of bytes together, by the index. Each other one is by itself, so that
// one with millions pending delays only its like, and those that were never counted.
func countings(intakes map[string]*paced) (out []*counting) {
	byIndex := &counting{intakes: map[string]*paced{}}
	for topic, in := range intakes {
		switch {
		case in.quota.PendingBytes > 0:
			out = append(out, &counting{intakes: map[string]*paced{topic: in}, bodies: true})
		case in.quota.PendingTasks > 0:
			byIndex.intakes[topic] = in
		}
	}
	if len(byIndex.intakes) > 0 {
		out = append(out, byIndex)
	}
	return out
}

// countPending counts what is pending of some intakes, if one of them wants it and the last count is long enough ago.
func (p *pacer) countPending(ctx context.Context, c *counting) {
	var wanted, urgent bool
	for _, in := range c.intakes {
		wanted, urgent = wanted || in.pending.wanted.Load(), urgent || in.pending.urgent.Load()
	}
	if now := time.Now(); !wanted || now.Before(c.after) && (!urgent || c.failed != nil) {
		return
	}
	if c.bodies {
		turns := p.shortCounts
		if c.took > longestPause/countShare {
			turns = p.longCounts
		}
		if turns.Acquire(ctx, 1) != nil {
			return
		}
		defer turns.Release(1)
	}
	began := time.Now()
	counts, err := p.countAll(ctx, c)
	ended := time.Now()
	took := ended.Sub(began)
	shorter := min(took, c.took)
	pause := max(min(countShare*shorter, max(longestPause, 2*shorter)), pendingEvery)
	if err != nil {
		pause = max(min(pause, longestPause), failedEvery)
		p.log.Warn("counting what is pending of intakes with quotas failed: the last count stands, with all that was taken since; what was never counted waits",
			zap.Strings("topics", slices.Sorted(maps.Keys(c.intakes))), zap.Error(err))
	}
	for topic, count := range counts {
		count.old = ended.Add(max(atLimitFor, 3*(took+pause)))
		c.intakes[topic].pending.counted.Store(count)
	}
	c.after, c.took, c.failed = ended.Add(pause), took, err
	p.parts.wakePoller()
}

func (p *pacer) countAll(ctx context.Context, c *counting) (map[string]*pendingCount, error) {
	mine, since := p.parts.byTopic(), map[string]intake.Size{} // before the sources are read: one that is made later is empty then
	for topic, in := range c.intakes {
		since[topic] = in.pending.opened()
	}
	bound, cancel := context.WithTimeout(ctx, countPatience)
	defer cancel()
	sources, err := p.counter.Sources(bound)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	counts, of := map[string]*pendingCount{}, map[int]*pendingCount{}
	for topic := range c.intakes {
		counts[topic] = &pendingCount{since: since[topic], began: began, partitions: mine[topic]}
	}
	var ids []int
	for _, src := range sources {
		if count := counts[src.Topic]; count != nil {
			if _, assigned := count.partitions[partitionKey{src.Topic, src.Partition}]; assigned {
				of[src.ID], ids = count, append(ids, src.ID)
			}
		}
	}
	sizes, err := p.counter.PendingSize(ctx, ids, c.bodies)
	if err != nil {
		return nil, err
	}
	for id, size := range sizes {
		of[id].Size = of[id].Plus(size)
	}
	return counts, nil
}

// stored notes what a batch has made pending.
func (p *pacer) stored(covered []coverage, opened map[int]intake.Size) {
	for _, c := range covered {
		if in := p.intakes[c.reading.key.topic]; in != nil {
			in.pending.add(opened[c.src.ID])
		}
	}
}

// perhapsStored notes what a batch has made pending at most, of which it is only known that it, or a part of it, is stored.
func (p *pacer) perhapsStored(covered []coverage, b intake.Batch) {
	if len(p.countings) == 0 {
		return
	}
	opened := map[int]intake.Size{}
	for _, c := range b.Changes {
		if r := c.Request; r != nil {
			source, _ := task.SplitSeq(c.Seq)
			opened[source] = opened[source].Plus(intake.Size{Tasks: 1, Bytes: int64(len(schemas.EncodeBody(nil, r.Key, r.Value, r.Headers, r.Settings)))})
		}
	}
	p.stored(covered, opened)
}
