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
	// pendingEvery is the least time between two counts of pending tasks. An intake takes at most
	// its quota between two. The next count comes after countShare times the shorter one of the
	// last two counts. So counting takes a twentieth of the time, and one stall of the database or
	// of this process makes no long wait. The bound is longestPause, or twice a longer count: an
	// intake may have millions pending, or the database may be slow for two counts.
	pendingEvery = time.Second
	countShare   = 20
	longestPause = 30 * time.Second
	// shortCounts is how many counts read bodies at a time, besides one of the longest pause.
	shortCounts = 2
	// pendingLook is how often the counter looks whether a count is wanted.
	pendingLook = 200 * time.Millisecond
	// failedEvery is the least time from a failed count to the next one, and longestPause the
	// longest: without a count, nothing may pass any more.
	failedEvery = 5 * time.Second
	// atLimitFor is how long an intake is counted repeatedly after it reached a pending limit.
	atLimitFor = time.Minute
)

// pendingCounter counts pending tasks in the database: intake.Intake.
type pendingCounter interface {
	Sources(ctx context.Context) ([]intake.Source, error)
	PendingSize(ctx context.Context, sources []int, bodies bool) (map[int]intake.Size, error)
}

// pendingShare is how much is pending from this scanner's partitions of an intake: counted, stored
// since, and on the way. The database gives the first. The others only grow until the next count,
// so neither a delivery meanwhile nor a failed count makes room.
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

// pendingCount is a count in the database.
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

func (s *pendingShare) opened() intake.Size {
	return intake.Size{Tasks: s.tasks.Load(), Bytes: s.bytes.Load()}
}

// add notes a batch's pending tasks. The worker calls add before it notes the stored offset.
func (s *pendingShare) add(size intake.Size) {
	s.tasks.Add(size.Tasks)
	s.bytes.Add(size.Bytes)
}

// used returns how much is pending at most. False: there is no count yet, or no known part.
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

// beyond returns the name of the quota without room for one more request. The last request may
// exceed the quota of bytes: otherwise a large one would wait until nothing is pending, or longer.
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

func (s *pendingShare) note(now time.Time) {
	if now.Sub(s.full) >= atLimitFor {
		s.first = now
	}
	s.full = now
}

// sure tells whether requests beyond a quota can be rejected. Nothing is on the way, which might
// open less than its most. And a count has begun since a limit was reached, is not old, has counted
// no partition that left, and has found half of the limit used: of later tasks, many may be gone.
func (s *pendingShare) sure(quota string, now time.Time) bool {
	c := s.counted.Load()
	found, limit := c.Tasks, s.limit.Tasks
	if quota == quotaBytes {
		found, limit = c.Bytes, s.limit.Bytes
	}
	return len(s.onTheWay) == 0 && !s.gone && 2*found >= limit && now.Sub(s.full) < atLimitFor && c.began.After(s.first) && now.Before(c.old)
}

// divide sets this scanner's part, forgets arrived stretches, and says whether a count is wanted.
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

// none says that no partition of the intake is here. New ones are counted first.
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

// counting is when some intakes are counted together. Each has its own goroutine.
type counting struct {
	intakes map[string]*paced
	bodies  bool          // they are read
	after   time.Time     // the next count comes not before
	took    time.Duration // the last one
	failed  error         // the last one; nil: it did not fail
}

// countings groups the intakes for counting. Intakes without a quota of bytes are together, by the
// index. Each other one is alone. Millions pending delay only like intakes, and never counted ones.
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

// countPending counts pending tasks of some intakes, if one wants it and the last count is old.
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

func (p *pacer) stored(covered []coverage, opened map[int]intake.Size) {
	for _, c := range covered {
		if in := p.intakes[c.reading.key.topic]; in != nil {
			in.pending.add(opened[c.src.ID])
		}
	}
}

// perhapsStored notes what a batch has made pending at most, when it is stored in full or in part.
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
