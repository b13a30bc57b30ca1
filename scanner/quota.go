package scanner

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

// Quota bounds an intake topic. Requests beyond it wait in Kafka, in their order.
type Quota struct {
	// RequestsPerSecond is for all scanners together. A scanner's part is its part of the topic's
	// partitions. It may use the unused rest of the last second. 0: no bound.
	RequestsPerSecond int
	// PendingTasks is how many pending tasks the intake may have made, in all scanners together. A
	// scanner's part is its part of the topic's partitions, at least one. 0: no bound.
	PendingTasks int
	// PendingBytes is likewise for bytes of keys, values and headers. One request may exceed it.
	PendingBytes int64
	// Reject says that requests beyond a quota are rejected. false: they wait in Kafka.
	Reject bool
	// UnknownTargets is how many names of missing target topics the intake's tasks and timers may
	// have, in all scanners together. Requests beyond it are rejected. 0: no bound.
	UnknownTargets int
}

func (q Quota) some() bool {
	return q.RequestsPerSecond > 0 || q.PendingTasks > 0 || q.PendingBytes > 0
}

// The names of the quotas, as the configuration has them.
const (
	quotaRequests = "requests-per-second"
	quotaTasks    = "pending-tasks"
	quotaBytes    = task.QuotaBytes
)

const (
	// lettersPerSecond is how many rejections have a dead letter, of an intake without a quota of
	// requests. With such a quota, the number is the quota.
	lettersPerSecond = 100
	// heldBytes limits the memory of requests that wait at quotas. Each intake has at most an
	// eighth of what the others leave, or one record.
	heldBytes = 32 << 20
	// countEvery is how often the partitions of intakes with quotas are counted.
	countEvery    = 10 * time.Second
	countPatience = 5 * time.Second
	// backEvery limits how often the client is set back, which drops all fetched records.
	backEvery  = time.Second
	waitLogged = time.Minute
)

// pacer has the intakes with quotas wait. It holds polled records beyond a quota in front of the
// queue, as stretches like those in the queue. While it holds records of a partition, nothing more
// of the partition is fetched. So the others' records find the queue and the memory of the client
// free.
//
// The poller alone uses the pacer, except for run and the metrics.
type pacer struct {
	parts    *partitions
	asks     *kgo.Client
	log      *zap.Logger
	memory   int // of what is held
	intakes  map[string]*paced
	behind   map[partitionKey]miss // partitions of which something did not fit; nothing of them is fetched until they are polled again from there
	wentBack time.Time
	sizes    atomic.Pointer[map[string][]int32] // the partitions of the intakes' topics; run writes it
	numbers  atomic.Pointer[map[string]Quota]   // to take over; SetQuotas writes it

	counter                 pendingCounter
	countings               []*counting
	shortCounts, longCounts *semaphore.Weighted
}

type miss struct {
	reading *reading
	whole   bool // nothing fitted of what must wait
}

// paced is an intake with a quota.
type paced struct {
	quota   Quota         // which quotas there are
	now     Quota         // the same with the numbers that are in force; the poller's
	bucket  *rate.Limiter // this scanner's share of the requests per second
	pending pendingShare
	held    []stretch              // in the order in which they came
	bytes   int                    // of what is held
	noted   atomic.Int64           // the same, for the metrics
	room    int                    // bytes that may be held
	each    int                    // the part of a partition in them
	oldest  atomic.Int64           // when the first request that is held came to Kafka, Unix ms; 0: nothing is held
	at      atomic.Pointer[string] // the quota at which requests waited last
	logged  bool                   // that requests wait; run's

	letters  *rate.Limiter // of rejections, the poller's
	rejected atomic.Int64  // requests that were beyond a quota and need not wait, since run looked
	unkept   atomic.Int64  // those of them without a dead letter
}

func newPacer(quotas map[string]Quota, read []string, parts *partitions, asks *kgo.Client, counter pendingCounter, reg prometheus.Registerer, log *zap.Logger) *pacer {
	p := &pacer{parts: parts, asks: asks, counter: counter, log: log, memory: heldBytes, intakes: map[string]*paced{}, behind: map[partitionKey]miss{}, shortCounts: semaphore.NewWeighted(shortCounts), longCounts: semaphore.NewWeighted(1)}
	for topic, quota := range quotas {
		if !quota.some() || !slices.Contains(read, topic) {
			continue
		}
		in := &paced{quota: quota, now: quota, bucket: rate.NewLimiter(rate.Inf, 0), letters: rate.NewLimiter(0, 0)}
		if quota.RequestsPerSecond > 0 {
			in.bucket = rate.NewLimiter(rate.Limit(quota.RequestsPerSecond), quota.RequestsPerSecond)
		}
		in.at.Store(new(string))
		p.intakes[topic] = in
		for name, most := range map[string]int64{quotaRequests: int64(quota.RequestsPerSecond), quotaTasks: int64(quota.PendingTasks), quotaBytes: quota.PendingBytes} {
			if most > 0 {
				promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "scanner", Name: "quota_wait_seconds", ConstLabels: prometheus.Labels{"topic": topic, "quota": name},
					Help: "How long ago the first request that waits at a quota of an intake came to Kafka. 0: none waits."}, func() float64 { return in.waitAt(name).Seconds() })
			}
		}
	}
	p.countings = countings(p.intakes)
	return p
}

func (in *paced) counts() bool { return in.quota.PendingTasks > 0 || in.quota.PendingBytes > 0 }

// waitAt is wait, if the wait is at the named quota.
func (in *paced) waitAt(quota string) time.Duration {
	if *in.at.Load() != quota {
		return 0
	}
	return in.wait()
}

// wait is how long ago the first held request came to Kafka.
func (in *paced) wait() time.Duration {
	oldest := in.oldest.Load()
	if oldest == 0 {
		return 0
	}
	return max(time.Since(time.UnixMilli(oldest)), 0)
}

func (p *pacer) run(ctx context.Context) {
	bound, cancel := context.WithTimeout(ctx, countPatience)
	defer cancel()
	var topics []string
	for topic, in := range p.intakes {
		topics = append(topics, topic)
		if waits := in.wait() >= waitLogged; waits && !in.logged {
			p.log.Warn("requests wait at a quota of their intake, and the intake's retention is the limit of that wait", zap.String("topic", topic),
				zap.String("quota", *in.at.Load()), zap.Duration("wait", in.wait()))
			in.logged = true
		} else if in.wait() == 0 {
			in.logged = false
		}
		if n := in.rejected.Swap(0); n > 0 {
			p.log.Warn("requests came beyond a quota of their intake and are rejected, where they would open a task or the quota is of requests", zap.String("topic", topic), zap.String("quota", *in.at.Load()), zap.Int64("requests", n), zap.Int64("without dead letter", in.unkept.Swap(0)))
		}
	}
	sizes, err := kafka.Partitions(bound, p.asks, topics...)
	if err != nil {
		p.log.Debug("counting the partitions of intakes with quotas failed", zap.Error(err))
	}
	if before := p.sizes.Load(); before != nil {
		for topic, numbers := range *before { // of a topic that cannot be looked up: they seldom change
			if _, found := sizes[topic]; !found {
				sizes[topic] = numbers
			}
		}
	}
	p.sizes.Store(&sizes)
}

// SetQuotas changes the numbers of quotas while the scanner runs. It begins and ends no quota.
func (s *Scanner) SetQuotas(quotas map[string]Quota) {
	s.poller.pacer.numbers.Store(&quotas)
	s.worker.targets.set(quotas)
}

// change takes the numbers of SetQuotas over.
func (p *pacer) change() {
	next := p.numbers.Swap(nil)
	if next == nil {
		return
	}
	for topic, in := range p.intakes {
		q := (*next)[topic]
		if in.quota.RequestsPerSecond > 0 && q.RequestsPerSecond > 0 {
			in.now.RequestsPerSecond = q.RequestsPerSecond
		}
		if in.quota.PendingTasks > 0 && q.PendingTasks > 0 {
			in.now.PendingTasks = q.PendingTasks
		}
		if in.quota.PendingBytes > 0 && q.PendingBytes > 0 {
			in.now.PendingBytes = q.PendingBytes
		}
	}
}

func (p *pacer) divide() {
	if len(p.intakes) == 0 {
		return
	}
	p.change()
	sizes := map[string][]int32{}
	if known := p.sizes.Load(); known != nil {
		sizes = *known
	}
	mine := p.parts.byTopic()
	var stored map[partitionKey]int64
	for topic, in := range p.intakes {
		if len(mine[topic]) == 0 {
			in.pending.none()
			continue
		}
		all := len(sizes[topic])
		for key := range mine[topic] {
			all = max(all, int(key.partition)+1)
		}
		part := float64(len(mine[topic])) / float64(all)
		if in.counts() && len(sizes[topic]) > 0 {
			if stored == nil {
				stored = p.parts.storedUpTo()
			}
			in.pending.divide(in.now, part, mine[topic], stored)
		}
		limit := rate.Limit(float64(cmp.Or(in.now.RequestsPerSecond, lettersPerSecond)) * part)
		if in.letters.Limit() != limit {
			in.letters.SetLimit(limit)
			in.letters.SetBurst(max(int(limit), 1))
		}
		if in.quota.RequestsPerSecond > 0 && in.bucket.Limit() != limit {
			in.bucket.SetLimit(limit)
			in.bucket.SetBurst(max(int(limit), 1))
		}
	}
}

// byTopic returns the assigned partitions of each topic, with how often each was revoked before.
func (p *partitions) byTopic() map[string]map[partitionKey]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]map[partitionKey]int{}
	for key := range p.sources {
		if out[key.topic] == nil {
			out[key.topic] = map[partitionKey]int{}
		}
		out[key.topic][key] = p.revoked[key]
	}
	return out
}

// next is how long the poller may poll before a held record may pass.
func (p *pacer) next(atMost time.Duration) time.Duration {
	now := time.Now()
	for _, in := range p.intakes {
		switch limit := float64(in.bucket.Limit()); {
		case len(in.held) == 0:
		case *in.at.Load() != quotaRequests: // what is on the way is stored in a moment; the end of a count ends the poll
			if len(in.pending.onTheWay) > 0 {
				atMost = min(atMost, pollPause)
			}
		case limit > 0:
			lacks := time.Duration((1 - in.bucket.TokensAt(now)) / limit * float64(time.Second))
			atMost = min(atMost, max(lacks, pollPause))
		}
	}
	return atMost
}

// passage is the fate of some records, up to the first waiting one.
type passage struct {
	runs     []run
	requests int         // that count to the quota of requests
	opens    intake.Size // what those that pass can open
	pending  bool        // something is beyond a quota of what is pending
	quota    string      // at which the next record waits; "": none does
}

// run is records with one fate: they pass, or are rejected for a quota.
type run struct {
	n      int
	beyond string
}

func (p *passage) add(beyond string) {
	if last := len(p.runs) - 1; last >= 0 && p.runs[last].beyond == beyond {
		p.runs[last].n++
		return
	}
	p.runs = append(p.runs, run{1, beyond})
}

func (p *passage) n() (n int) {
	for _, r := range p.runs {
		n += r.n
	}
	return n
}

// passing decides the fate of records. Records below the offset paid passed before, and pass again.
// Records that waited had passed the quota of requests: like cancels, they are not rejected for it.
func (in *paced) passing(paid int64, records []*kgo.Record, waited bool, now time.Time) (out passage) {
	tokens, used, known := math.Inf(1), intake.Size{}, true
	if in.quota.RequestsPerSecond > 0 {
		tokens = in.bucket.TokensAt(now)
	}
	if len(in.held) > 0 && *in.at.Load() == quotaRequests {
		tokens = 0 // others wait for them
	}
	if in.counts() {
		used, known = in.pending.used()
	}
	for _, r := range records {
		var opens intake.Size
		if in.counts() {
			opens = mayOpen(r)
		}
		if r.Offset < paid || r.Attrs.IsControl() {
			out.add("")
			out.opens = out.opens.Plus(opens)
			continue
		}
		quota, reject := "", in.quota.Reject
		switch {
		case float64(out.requests+1) > tokens:
			quota, reject = quotaRequests, reject && !waited && !schemas.MayEnd(r)
		case !known && opens != (intake.Size{}): // a count comes in a moment
			quota, reject = quotaTasks, false
			if in.quota.PendingTasks <= 0 {
				quota = quotaBytes
			}
		default:
			quota = in.pending.beyond(used.Plus(out.opens), opens)
			reject = reject && quota != "" && known && out.opens == (intake.Size{}) && in.pending.sure(quota, now)
		}
		out.pending = out.pending || quota != "" && quota != quotaRequests
		if quota != "" && !reject {
			out.quota = quota
			return out
		}
		out.add(quota)
		if quota != quotaRequests {
			out.requests++
		}
		if quota == "" {
			out.opens = out.opens.Plus(opens)
		}
	}
	return out
}

// pay takes the cost of a stretch's first records, up to the waiting one.
func (in *paced) pay(s stretch, now time.Time) passage {
	pass := in.passing(s.reading.paid.Load(), s.records, s.waited, now)
	if pass.pending {
		in.pending.note(now)
	}
	if pass.quota != "" {
		in.at.Store(&pass.quota)
	}
	if n := pass.n(); n > 0 {
		in.bucket.AllowN(now, pass.requests)
		to := s.records[n-1].Offset + 1
		s.reading.pay(to)
		if pass.opens != (intake.Size{}) {
			in.pending.onTheWay = append(in.pending.onTheWay, passed{s.reading, to, pass.opens})
		}
	}
	return pass
}

// let takes the part of a stretch to store now, and marks rejections. rest must wait; nil: none.
func (in *paced) let(s stretch, now time.Time) (out []stretch, rest *stretch) {
	pass := in.pay(s, now)
	for _, r := range pass.runs {
		head, tail := s.cut(r.n)
		if head.beyond = r.beyond; r.beyond != "" {
			in.reject(&head, now)
		}
		if out = append(out, head); tail == nil {
			return out, nil
		}
		s = *tail
	}
	s.waited = s.waited || pass.quota != quotaRequests
	return out, &s
}

// reject marks a stretch's rejections with a dead letter. Each has an event.
func (in *paced) reject(s *stretch, now time.Time) {
	s.letters = min(len(s.records), max(int(in.letters.TokensAt(now)), 0))
	in.letters.AllowN(now, s.letters)
	in.rejected.Add(int64(len(s.records)))
	in.unkept.Add(int64(len(s.records) - s.letters))
	if len(in.held) == 0 {
		in.at.Store(&s.beyond)
	}
}
