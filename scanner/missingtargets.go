package scanner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

const (
	// mostKnown bounds the memory of existing topics: 25 MB of the longest names, twice. After
	// knownFor, or twice knownFor, Kafka is asked about a topic again.
	mostKnown = 100_000
	knownFor  = 5 * time.Minute
	// lookUpAtOnce is how many topics one request asks about. lookUpPatience limits the requests of
	// a batch. After a failure, Kafka is not asked for lookUpRest.
	lookUpAtOnce   = 500
	lookUpPatience = 3 * time.Second
	lookUpRest     = 5 * time.Second
	sweepEvery     = 30 * time.Second
)

// targets finds changes for missing target topics. The workers and sweep's loop use it.
type targets struct {
	asks   *kgo.Client
	intake intake.Intake
	parts  *partitions
	log    *zap.Logger
	most   atomic.Pointer[map[string]int] // the quotas, by intake

	mu            sync.Mutex
	known, before map[string]bool // topics that exist; before: of an earlier time
	turned        time.Time       // known became before

	silent rest // of Kafka

	beyond map[string]*beyondTargets // by intake
}

// beyondTargets are the rejections of an intake beyond its quota of unknown targets.
type beyondTargets struct {
	letters          *rate.Limiter // of dead letters
	rejected, unkept atomic.Int64  // since sweep looked: requests, and those of them without a dead letter
}

func newTargets(quotas map[string]Quota, parts *partitions, asks *kgo.Client, in intake.Intake, log *zap.Logger) *targets {
	t := &targets{asks: asks, intake: in, parts: parts, log: log, known: map[string]bool{}, beyond: map[string]*beyondTargets{}}
	for topic := range quotas {
		t.beyond[topic] = &beyondTargets{letters: rate.NewLimiter(lettersPerSecond, lettersPerSecond)}
	}
	t.set(quotas)
	return t
}

// share has all quotas of an intake share the limiter of dead letters.
func (t *targets) share(p *pacer) {
	for topic, in := range p.intakes {
		if b := t.beyond[topic]; b != nil {
			b.letters = in.letters
		}
	}
}

// set takes quotas over. An intake without a quota at the start keeps none.
func (t *targets) set(quotas map[string]Quota) {
	most := map[string]int{}
	for topic, q := range quotas {
		if q.UnknownTargets > 0 && t.beyond[topic] != nil {
			most[topic] = q.UnknownTargets
		}
	}
	t.most.Store(&most)
}

// unknown returns the changes for missing topics, except those that were stored before the database
// was set back. While Kafka gives no answer about a topic, the topic counts as existing.
func (t *targets) unknown(ctx context.Context, changes []task.Change, covered []coverage) intake.Unknown {
	u := intake.Unknown{Most: *t.most.Load(), Letter: t.letter}
	places := t.notKnown(u.Most, changes)
	for _, name := range t.missing(ctx, slices.Collect(maps.Keys(places))) {
		for _, place := range places[name] {
			source, offset := task.SplitSeq(changes[place].Seq)
			if slices.ContainsFunc(covered, func(c coverage) bool { return c.src.ID == source && offset >= c.reading.decided.Load() }) {
				u.Changes = append(u.Changes, place)
			}
		}
	}
	slices.Sort(u.Changes)
	return u
}

// notKnown returns, by unknown topic, the places of changes that may open a task or a timer.
func (t *targets) notKnown(most map[string]int, changes []task.Change) map[string][]int {
	if len(most) == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.turned) >= knownFor || len(t.known) >= mostKnown {
		t.known, t.before, t.turned = map[string]bool{}, t.known, time.Now()
	}
	places, last := map[string][]int{}, ""
	for i := range changes {
		r := changes[i].Request
		if r == nil || r.Topic == last || r.Op != schemas.OpSchedule && r.Op != schemas.OpTimer || schemas.IsOrigin(r.Topic) {
			continue
		}
		if t.known[r.Topic] || t.before[r.Topic] {
			last = r.Topic
		} else {
			places[r.Topic] = append(places[r.Topic], i)
		}
	}
	return places
}

// missing asks Kafka which topics do not exist, and remembers the others.
func (t *targets) missing(ctx context.Context, names []string) (missing []string) {
	if t.silent.lasts() {
		return nil
	}
	bound, cancel := context.WithTimeout(ctx, lookUpPatience)
	defer cancel()
	for part := range slices.Chunk(names, lookUpAtOnce) {
		found, err := kafka.LookUp(bound, t.asks, false, part...)
		missing = append(missing, t.learn(found)...)
		if err != nil {
			t.silent.begin(lookUpRest)
			t.log.Warn("looking up target topics failed: until Kafka answers, each counts as one that exists", zap.Error(err))
			break
		}
	}
	return missing
}

// learn remembers topics that exist, as those do that may not be seen.
func (t *targets) learn(found map[string]error) (missing []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, no := range found {
		if errors.Is(no, kerr.UnknownTopicOrPartition) {
			missing = append(missing, name)
			delete(t.known, name)
			delete(t.before, name)
		} else {
			t.known[name] = true
		}
	}
	return missing
}

// letter counts a rejection, and returns whether to write a dead letter.
func (t *targets) letter(topic string) bool {
	b := t.beyond[topic]
	b.rejected.Add(1)
	if b.letters.Allow() {
		return true
	}
	b.unkept.Add(1)
	return false
}

// sweep has the database forget unknown targets that exist by now, or for which an intake has
// nothing left. Of an intake's scanners, the one with partition 0 sweeps.
func (t *targets) sweep(ctx context.Context) {
	for topic, b := range t.beyond {
		if n := b.rejected.Swap(0); n > 0 {
			t.log.Warn("requests are for more target topics that do not exist than the quota unknown-targets of their intake allows, and are rejected, where they would open a task or a timer",
				zap.String("topic", topic), zap.Int64("requests", n), zap.Int64("without dead letter", b.unkept.Swap(0)))
		}
		if t.parts.reading(partitionKey{topic, 0}) == nil {
			continue
		}
		if err := t.forget(ctx, topic); err != nil && ctx.Err() == nil {
			t.log.Warn("forgetting unknown targets failed, trying again later", zap.String("topic", topic), zap.Error(err))
		}
	}
}

func (t *targets) forget(ctx context.Context, topic string) error {
	names, err := t.intake.UnknownTargets(ctx, topic)
	if err != nil || len(names) == 0 {
		return err
	}
	t.missing(ctx, names)
	for _, name := range names {
		t.mu.Lock()
		exists := t.known[name]
		t.mu.Unlock()
		if err := t.intake.ForgetUnknown(ctx, topic, name, exists); err != nil {
			return err
		}
	}
	return nil
}
