// Package dispatcher delivers tasks at their instant: it claims the near future of the slots it owns, stages the tasks in
// memory, and sends each to its topic when it is due. Slots go in; records on business topics and settled slots come out.
//
// Loops share the state, each in its own file, in the order in which a task meets them: ownership (which slots), claim (which
// tasks), fetch (their bodies), send (at the instant), isolate (send again alone what was refused in company), settle
// (make the outcome durable). warm keeps the index in step beside them, and retire forgets what ended long ago.
//
// Order of effects, for each task: (1) its place is claimed in the database; (2) its intent is in the send log, synced;
// (3) it is sent, not before it is due; (4) Kafka's answer is in the send log; (5) the final event is told; (6) done moves
// beyond it. Where a dispatcher dies, the next owner sends again what lies between done and claimed.
package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/notyet/notyet/events"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/store"
)

// Deps are what a dispatcher works with. All are required.
type Deps struct {
	Kafka   kafka.Config
	Store   *store.Store
	Index   Index
	Members election.Source
	SendLog *sendlog.Log
	Metrics prometheus.Registerer
	Log     *zap.Logger
}

// Index is what a dispatcher needs of the index: internal/index has one in Redis and one in memory.
type Index interface {
	Wakes(ctx context.Context) <-chan []index.SlotPos
	Next(ctx context.Context, from []index.SlotPos) ([]index.SlotPos, error)
	Count(ctx context.Context, slot int, from, to int64) (int64, error)
	Counts(ctx context.Context, slots []int, bounds []int64) ([]int64, error)
	Range(ctx context.Context, slot int, from, to int64) ([]index.Entry, error)
	Marks(ctx context.Context, slots []int) (map[int]int64, error)
	SetMark(ctx context.Context, slot int, upTo int64) error
	Add(ctx context.Context, entries []index.Entry) error
	Remove(ctx context.Context, entries []index.Entry) error
	Trim(ctx context.Context, upTo []index.SlotPos) error
	Clear(ctx context.Context, slot int) error
}

// Dispatcher owns a share of the slots. Make it with New.
type Dispatcher struct {
	cfg     Config
	store   *store.Store
	clock   *store.Clock
	index   Index
	members election.Source
	sent    *sendlog.Log
	log     *zap.Logger
	metrics *metrics
	client  *kgo.Client
	kafka   kafka.Config
	solos   sync.WaitGroup // see isolate.go
	failure chan error
	results *events.Publisher
	pending deferred // see announce.go
	sources *sources

	suspended suspension // while it is active, nothing is claimed or sent
	held      holdings   // of the owner loop: slots without a line
	stopping  atomic.Bool

	claimKick, sweepKick, fetchKick, releaseKick, settleKick, ownKick kick

	waits map[[2]int64]time.Time // of the owner loop: since when a slot is waited for, by slot and epoch

	mu          sync.Mutex
	ahead       int64 // the look-ahead for now, ms
	lines       map[int]*ownedSlot
	fetching    fetchQueue
	unread      []*claimedTask // taken from it, but there was no room for their bodies
	bite        int            // how many of them to try at once
	due         dueHeap
	targets     map[outlet]*target
	flight      flight           // what the producers hold for them
	probes      int              // under way
	where       *kafka.Placement // to which outlet a record goes
	refusals    refusals
	staging     staging
	entries     int // tasks in memory, with or without
	outcomes    []outcome
	transitions []transition
	recalls     []transition           // tasks that were put off, and may be sent again
	proofs      proofs                 // what an earlier run of this process is known to have delivered
	indexAway   time.Time              // of the settle loop: the index failed, leave it alone until then
	stuck       map[int64]*claimedTask // sent, unanswered for long, and out of their line since
	untold      map[*claimedTask]told  // delivered, their events with the producer
}

// kick wakes a loop; kicks that come while it is awake become one.
type kick chan struct{}

func newKick() kick { return make(kick, 1) }

func (k kick) now() {
	select {
	case k <- struct{}{}:
	default:
	}
}

// New checks the configuration and connects nothing yet.
func New(deps Deps, cfg Config) (*Dispatcher, error) {
	kcfg, st, reg, log := deps.Kafka, deps.Store, deps.Metrics, deps.Log
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configuring the dispatcher: %w", err)
	}
	// What is staged always fits into the producer, so producing never blocks on one target's account.
	kcfg.MaxBufferedRecords = 2 * cfg.StageTasks
	kcfg.MaxBufferedBytes = 2*cfg.StageBytes + 64<<20
	kcfg.AllowAutoTopicCreation = cfg.CreateTargets
	d := &Dispatcher{
		cfg: cfg, staging: staging{maxTasks: cfg.StageTasks, maxBytes: cfg.StageBytes}, refusals: refusals{patience: cfg.UndeliverableAfter}, ahead: cfg.LookAhead.Milliseconds(), store: st, clock: st.NewClock(), index: deps.Index, members: deps.Members, sent: deps.SendLog, log: log, sources: &sources{store: st}, kafka: kcfg, failure: make(chan error, 1),
		claimKick: newKick(), sweepKick: newKick(), fetchKick: newKick(), releaseKick: newKick(), settleKick: newKick(), ownKick: newKick(),
		waits: map[[2]int64]time.Time{}, lines: map[int]*ownedSlot{}, targets: map[outlet]*target{}, where: kafka.NewPlacement(), stuck: map[int64]*claimedTask{}, proofs: proofs{}, untold: map[*claimedTask]told{}, fetching: newFetchQueue(),
	}
	d.metrics = newMetrics(reg, d)
	if d.results, err = events.New(kcfg, st, events.Config{Topic: cfg.Results, Stage: "dispatcher", Sources: d.leftoverSources}, reg, log); err != nil {
		return nil, err
	}
	// One request at a time to each broker: what falls due while it is on its way goes along with the next, so a steady
	// trickle costs the broker a request a round trip, not one a task, and nothing lingers.
	opts := []kgo.Opt{
		kgo.MaxProduceRequestsInflightPerBroker(1), kgo.RecordPartitioner(d.where),
		kgo.ProduceRequestTimeout(max(cfg.UnresponsiveAfter/2, time.Second)), // a broker lets the others of a request wait for the slowest partition
	}
	if !faultpoint.Without(faultpoint.RoomForOthers) {
		opts = append(opts, kafka.GiveUpAfter(cfg.giveUpAfter())...)
	}
	if d.client, err = kafka.NewProducer(kcfg, log, opts...); err != nil {
		return nil, err
	}
	return d, nil
}

// Ready answers what keeps the dispatcher from delivering. Owning no slot is fine: there may be more members than slots.
func (d *Dispatcher) Ready(ctx context.Context) error {
	if !d.trusted() {
		return errors.New("the election has not been heard of lately")
	}
	return errors.Join(kafka.Ping(ctx, d.client), d.store.Ping(ctx), d.sent.Full())
}

// ResultsReady says whether the results topic answers; deliveries go on without it.
func (d *Dispatcher) ResultsReady(ctx context.Context) error { return d.results.Ready(ctx) }

// Run delivers until ctx ends; then it claims no more, waits for what is staged and sent, settles it, gives its slots back
// and leaves, all within DrainTimeout.
func (d *Dispatcher) Run(ctx context.Context) error {
	if err := d.clock.Start(ctx); err != nil {
		d.client.Close()
		d.results.Close(0)
		return nil // told to stop before the database was there
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, loops := errgroup.WithContext(work)
	member, leave := context.WithCancel(work)
	defer leave()
	var members errgroup.Group
	members.Go(func() error { return d.members.Run(member) })

	group.Go(func() error { d.clock.Run(loops); return nil })
	group.Go(func() error { d.ownLoop(loops); return nil })
	group.Go(func() error { d.claimLoop(loops); return nil })
	group.Go(func() error { d.fetchLoop(loops); return nil })
	group.Go(func() error { d.releaseLoop(loops); return nil })
	group.Go(func() error { d.settleLoop(loops); return nil })
	group.Go(func() error { d.warmLoop(loops); return nil })
	group.Go(func() error { d.retireLoop(loops); return nil })
	group.Go(func() error { d.results.Run(loops); return nil })

	failed := make(chan error, 2)
	go func() { failed <- members.Wait() }()
	var err error
	select {
	case <-ctx.Done():
		d.drain()
	case err = <-failed:
		err = fmt.Errorf("the election ended: %w", err)
		failed <- nil
	case err = <-d.failure:
	}
	stop()
	_ = group.Wait()
	d.solos.Wait()
	leave()
	flush, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = d.client.Flush(flush)
	d.client.Close()
	d.results.Close(time.Second)
	return errors.Join(err, <-failed)
}

// fail ends Run with an error that cannot be mended in this process.
func (d *Dispatcher) fail(err error) {
	select {
	case d.failure <- err:
	default:
	}
}

// drain waits until nothing is left to settle and every slot is given back, within the bound.
func (d *Dispatcher) drain() {
	d.stopping.Store(true)
	d.ownKick.now()
	d.claimKick.now()
	deadline := time.After(d.cfg.DrainTimeout)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		left := d.ownedSlots() + d.held.count()
		if left == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			d.log.Warn("leaving with slots that did not drain, their next owner sends again what was in flight", zap.Int("slots", left))
			return
		}
	}
}

// trusted says whether anything may be claimed or sent now. Once trust is lost it stays so until the owner loop has made
// sure that nobody else took the slots meanwhile.
func (d *Dispatcher) trusted() bool {
	if !d.members.Trusted() {
		if d.suspended.lose() {
			d.ownKick.now()
		}
		return false
	}
	return !d.suspended.active()
}

// pauseAfter is the pause after the n-th failure in a row: 20 ms to 2 s.
func pauseAfter(failures int) time.Duration {
	return min(20*time.Millisecond<<min(failures, 7), 2*time.Second)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
