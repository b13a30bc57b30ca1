// Package copies finds a database that is behind Kafka's memory of it, because somebody restored an
// older state. Offsets that the scanners' group has committed go in, and how far the database has
// the same partitions; out comes whether anything may be claimed or sent.
//
// A scanner commits an offset after the database has it. So the committed offset never passes the
// stored one, unless the database was set back. Kafka is asked first: a scanner that stores between
// the two questions only raises the stored offset. Only a known offset of a known partition is
// evidence; otherwise the verdict stays.
//
// Named finds that a command has given another copy of the database a newer name.
package copies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

const (
	// every is the time between two looks, and within bounds one.
	every  = 2 * time.Second
	within = 2 * time.Second
	// again is the pause before a running process looks a second time.
	again = 500 * time.Millisecond
	// unanswered is how many looks without an answer, about 10 s, let a process go on that has just
	// begun, or met a new life. Looks are counted, not time: a paused process has not asked.
	unanswered = 5
	// silences is the same, about a minute, of a Kafka that has answered before and is silent now.
	// Nothing could be sent to it meanwhile. Another broker takes a dead one's place sooner.
	silences = 30
	// settling follows the look that finds the database no longer behind, for requests that were
	// read again and wait for their slots.
	settling = 5 * time.Second
	// undecided is how many looks, about 20 s, wait for such requests while none is decided, and
	// undecidedAtMost, about 5 min, while they become fewer.
	undecided       = 40
	undecidedAtMost = 600
	// loggedEvery is the time between two lines about a database that stays behind.
	loggedEvery = time.Minute
)

// Stand is how far the database has each partition of the intake, in a life: see store/life.go. Of
// several sources of a partition, it has the highest offset.
type Stand struct {
	Life   string
	Stored kafka.Offsets
}

// Config of a Watch. All is required.
type Config struct {
	Client   *kgo.Client
	Group    string   // of the scanners
	Topics   []string // that the scanners read
	Database func(context.Context) (Stand, error)
	// Waits returns how much can be decided now, of what waited when it was last called anew:
	// identities, or where there are many, requests.
	Waits    func(_ context.Context, anew bool) (int, error)
	Released func() // called when a hold ends
	Log      *zap.Logger
}

// Partition is one that the database has less of than was committed.
type Partition struct {
	Topic             string
	Partition         int32
	Stored, Committed int64
}

func (p Partition) String() string {
	return fmt.Sprintf("%s/%d at %d of %d", p.Topic, p.Partition, p.Stored, p.Committed)
}

// behind compares what was committed with what is stored, in order of topics.
func behind(committed map[string]map[int32]kafka.Committed, stored kafka.Offsets) (out []Partition) {
	for topic, parts := range committed {
		for part, c := range parts {
			if next, known := stored[topic][part]; known && c.At > next {
				out = append(out, Partition{topic, part, next, c.At})
			}
		}
	}
	slices.SortFunc(out, func(a, b Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

// verdict is what looks have shown so far.
type verdict struct {
	fresh   bool          // no look has been answered since the start, or since a new life
	failed  int           // looks without an answer while fresh, of the database or before Kafka's first answer
	quiet   int           // such looks in which Kafka alone was silent
	known   bool          // Kafka has answered
	behind  []Partition   // by the newest answer of a hold; nil: it does not hold
	doubted bool          // the last answer said behind, and the process was running
	clear   time.Duration // when a hold ends, by the clock of the caller; 0: the last answer said behind
	waits   int           // how many looks still wait for requests to be decided
	looks   int           // how many of them there were since the last settle
	least   int           // the fewest requests that waited since
	anew    bool          // the next such look begins with the requests that wait by then
}

// settle waits for requests that wait by the next look, for so many looks without progress.
func (v *verdict) settle(looks int) { v.waits, v.looks, v.least, v.anew = looks, 0, math.MaxInt, true }

func (v *verdict) holds() bool { return v.fresh || v.behind != nil || v.waits > 0 }

// asksWaits tells whether the next look must know if requests wait.
func (v *verdict) asksWaits() bool { return v.waits > 0 || v.clear > 0 }

// answered takes the answer of a look, with how many requests still wait.
func (v *verdict) answered(found []Partition, waiting int, now time.Duration) {
	first := v.fresh
	v.fresh, v.failed, v.quiet, v.known = false, 0, 0, true
	switch {
	case len(found) > 0 && (first || v.doubted || v.behind != nil):
		v.behind, v.doubted, v.clear = found, false, 0
	case len(found) > 0:
		v.doubted = true
	case v.behind == nil:
		v.doubted = false
	case v.clear == 0:
		v.settle(0) // it holds meanwhile
		v.clear = now + settling
	case now >= v.clear:
		v.behind, v.clear, v.waits = nil, 0, undecided
	}
	if waiting < v.least && v.waits > 0 {
		v.least, v.waits = waiting, undecided
	}
	v.looks++
	if v.waits--; v.waits < 0 || waiting == 0 || v.looks > undecidedAtMost {
		v.waits = 0
	}
}

// silent takes a look without an answer, of Kafka or of anybody. True: nothing more is waited for.
func (v *verdict) silent(kafka bool) bool {
	v.unseen()
	if !v.fresh {
		return false
	}
	if kafka && v.known {
		v.quiet++
	} else {
		v.failed++
	}
	v.fresh = v.failed < unanswered && v.quiet < silences
	v.known = v.known && v.fresh
	return !v.fresh
}

// unseen takes a look that has not shown whether requests wait. It counts for as many as its time.
func (v *verdict) unseen() { v.waits = max(v.waits-int(within/again), 0) }

// rest is the time from one look to the next.
func (v *verdict) rest(now time.Duration) time.Duration {
	switch {
	case v.doubted || v.waits > 0:
		return again
	case v.behind != nil && v.clear > 0:
		return min(every, max(v.clear-now, again)) // it may be over, and nobody answers
	}
	return every
}

// Watch looks, again and again. A nil Watch holds nothing.
type Watch struct {
	cfg   Config
	began time.Time
	kick  chan struct{}

	holds atomic.Bool // mirrors verdict.holds
	life  atomic.Pointer[string]

	mu      sync.Mutex
	renewed int // how often Ask and Settle were called
	verdict verdict
	logged  time.Duration // when the log last told of a hold
}

// New makes a Watch that holds until its first look.
func New(cfg Config) *Watch {
	w := &Watch{cfg: cfg, began: time.Now(), kick: make(chan struct{}, 1), verdict: verdict{fresh: true}}
	w.holds.Store(true)
	return w
}

// Holds says that nothing may be claimed or sent.
func (w *Watch) Holds() bool { return w != nil && w.holds.Load() }

// Life returns the life of the database at the last look. nil: any counts, as no look was answered.
func (w *Watch) Life() *string {
	if w == nil {
		return nil
	}
	return w.life.Load()
}

// Renew holds until a look in the database's new life. The last look, as Life returned it, was in
// another one.
func (w *Watch) Renew(last *string) {
	if w == nil || w.Life() != last {
		return // somebody else was faster
	}
	w.Ask()
}

// Ask holds until a look that begins from now on. Like at a start, it counts alone.
func (w *Watch) Ask() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewed++
	w.verdict.fresh, w.verdict.failed, w.verdict.quiet = true, 0, 0
	w.hold()
}

// Settle holds until requests that can be decided are: slots have become sure, and requests about
// their tasks may have waited for that, cancels among them.
func (w *Watch) Settle() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewed++
	w.verdict.settle(undecided)
	w.hold()
}

// hold has the next look begin at once. The caller holds the lock.
func (w *Watch) hold() {
	w.holds.Store(true)
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// Verdict says whether a look is still waited for, and whether the last one found the database
// behind, or just caught up.
func (w *Watch) Verdict() (asking, behind bool) {
	if w == nil {
		return false, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.verdict.fresh, w.verdict.behind != nil
}

// Behind is of how many partitions the last look found less in the database than was committed.
func (w *Watch) Behind() int {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.verdict.behind)
}

// Ready returns why nothing is claimed or sent; nil: it is.
func (w *Watch) Ready() error {
	if !w.Holds() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.verdict.behind != nil:
	case w.verdict.waits > 0 && !w.verdict.fresh:
		return errors.New("nothing is claimed or sent yet: requests that waited for the owner of a slot are decided first")
	default:
		return fmt.Errorf("nothing is claimed or sent yet: Kafka has not said what group %s has committed", w.cfg.Group)
	}
	return fmt.Errorf("nothing is claimed or sent: the database is older than what group %s has committed, and scanners read it again; behind: %s", w.cfg.Group, list(w.verdict.behind))
}

// list names the first of some partitions.
func list(partitions []Partition) string {
	const most = 5
	var names []string
	for _, p := range partitions[:min(len(partitions), most)] {
		names = append(names, p.String())
	}
	if more := len(partitions) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// Run looks until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	if w == nil {
		return
	}
	for ctx.Err() == nil {
		began := time.Now()
		rest := w.look(ctx)
		timer := time.NewTimer(rest - time.Since(began))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-w.kick:
		}
		timer.Stop()
	}
}

// look asks once, and returns how long after its beginning the next one is due.
func (w *Watch) look(ctx context.Context) time.Duration {
	w.mu.Lock()
	asked, asksWaits, anew := w.renewed, w.verdict.asksWaits(), w.verdict.anew
	w.mu.Unlock()
	bound, cancel := context.WithTimeout(ctx, within)
	found, stand, err := w.ask(bound)
	var unseen error
	var waiting int
	if asksWaits && err == nil {
		if waiting, unseen = w.cfg.Waits(bound, anew); unseen != nil {
			waiting = math.MaxInt
		}
		anew = anew && unseen != nil
	}
	cancel()
	if ctx.Err() != nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if asked != w.renewed {
		return 0 // it may have been in the life before
	}
	w.verdict.anew = anew
	now, held, before := time.Since(w.began), w.verdict.holds(), w.verdict.behind
	switch last := w.life.Load(); {
	case err == nil:
		if last == nil || *last != stand.Life {
			w.verdict.fresh = w.verdict.fresh || last != nil
			w.life.Store(&stand.Life)
		}
		if unseen != nil { // very many may wait
			w.verdict.unseen()
		}
		w.verdict.answered(found, waiting, now)
	case w.verdict.silent(errors.Is(err, errSilent)):
		w.life.Store(nil)
		w.cfg.Log.Warn("Kafka does not say what the scanners have committed, so a database that was set back is not noticed: Describe is needed on the group, and on the topics that scanners read", zap.String("group", w.cfg.Group), zap.Error(err))
	}
	switch after := w.verdict.behind; {
	case after != nil && (before == nil || now-w.logged >= loggedEvery):
		w.logged = now
		w.cfg.Log.Warn("the database is older than what its scanners have committed: nothing is claimed or sent until they have read it again", zap.String("group", w.cfg.Group), zap.String("behind", list(after)))
	case after == nil && before != nil:
		w.cfg.Log.Info("the database has again what its scanners have committed", zap.String("group", w.cfg.Group))
	}
	if w.holds.Store(w.verdict.holds()); held && !w.verdict.holds() {
		w.cfg.Released()
	}
	return w.verdict.rest(time.Since(w.began))
}

// errSilent: Kafka has not answered, or does not know it yet. It has not refused the answer.
var errSilent = errors.New("no answer")

// ask reads Kafka first, and then the database.
func (w *Watch) ask(ctx context.Context) ([]Partition, Stand, error) {
	committed, err := kafka.GroupOffsets(ctx, w.cfg.Client, w.cfg.Group, w.cfg.Topics...)
	if said, is := errors.AsType[*kerr.Error](err); err != nil && (!is || said.Retriable) {
		err = fmt.Errorf("%w: %w", errSilent, err)
	}
	if err != nil {
		return nil, Stand{}, err
	}
	stand, err := w.cfg.Database(ctx)
	return behind(committed, stand.Stored), stand, err
}
