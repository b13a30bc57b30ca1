// Package scanner takes requests and reports from the intake topics and stores them: Kafka records
// go in; task rows, index entries and answers on the results topic come out.
//
// The order of effects, for each batch:
//
//  1. One transaction stores the tasks, the events that answer the requests, and the offsets.
//  2. The index learns of the tasks, and the dispatchers are woken.
//  3. The events are published. Once Kafka has acknowledged them, they are deleted from the outbox.
//  4. The group's offset is committed to Kafka, for lag monitors only.
//
// If a scanner dies in between, the next one begins at the offsets in the database and publishes
// the events left over. The dispatchers find in the database the tasks missing in the index.
package scanner

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/notyet/notyet/events"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/outbox"
	"github.com/notyet/notyet/store/shards"
)

// Deps are what a scanner works with. All of them are required but Tracer.
type Deps struct {
	Kafka   kafka.Config
	Store   *store.Store
	Index   Index
	Metrics prometheus.Registerer
	Log     *zap.Logger

	// Tracer makes spans of records with traced senders. nil: none.
	Tracer *tracing.Tracer
}

// Scanner is one member of the group. Make it with New. It has no state of its own but its parts. A
// record goes from the poller, by way of the queue, to a worker, and the result to the announcer.
type Scanner struct {
	cfg   Config
	deps  Deps
	clock *store.Clock
	group *kgo.Client // the member of the group, which reads the intake
	asks  *kgo.Client // asks about topics and logs, so that the member's session is never in the way

	parts   *partitions
	poller  *poller
	members *assignment
	refused context.Context // ended by members, with kafka.ErrOlderCopy
	worker  *worker
	indexer *indexer
	results *events.Publisher

	health   *health
	checker  *checker
	resolver *resolver
	watcher  *watcher
	lag      *lag
	recreate *recreated
}

// New checks the configuration and makes the clients. The consumer begins to join its group.
// Nothing is taken before Run.
func New(deps Deps, cfg Config) (*Scanner, error) {
	deps.Kafka.Now = deps.Store.Clock().Now
	s := &Scanner{cfg: cfg.withDefaults(), deps: deps, clock: deps.Store.Clock(), parts: newPartitions(deps.Log)}
	s.parts.until = s.cfg.Until
	decompressor, err := kafka.InspectionDecompressor()
	if err != nil {
		return nil, err
	}
	if s.asks, err = kafka.NewProducer(deps.Kafka, deps.Log); err != nil {
		return nil, err
	}
	if s.results, err = events.New(deps.Kafka, outbox.New(deps.Store), events.Config{Topic: s.cfg.Results, Stage: "scanner", Sources: s.parts.ids}, deps.Metrics, deps.Log); err != nil {
		s.asks.Close()
		return nil, err
	}
	metrics, commits := newMetrics(deps.Metrics), newCommits(s.parts, s.cfg.Installation, deps.Log)
	s.build(metrics, commits, decompressor)
	refused, refuse := context.WithCancelCause(context.Background())
	s.refused = refused
	s.members = &assignment{client: s.asks, lost: s.checker.lost, intake: intake.New(deps.Store), admin: admin.New(deps.Store), group: s.cfg.Group, refuse: refuse, parts: s.parts, commits: commits, checker: s.checker, health: s.health, retry: s.worker.retry, metrics: metrics, log: deps.Log}
	if s.group, err = s.members.join(deps.Kafka, s.cfg); err != nil {
		s.asks.Close()
		s.results.Close(0)
		return nil, err
	}
	s.health.rejoin = s.group.ForceRebalance
	s.worker.pacer = newPacer(s.cfg.Quotas, s.cfg.Read, s.parts, s.asks, intake.New(deps.Store), deps.Metrics, deps.Log)
	s.worker.targets.share(s.worker.pacer)
	s.registerHeld(deps.Metrics)
	s.poller = &poller{
		group: s.group, mover: kafka.NewMover(s.group), parts: s.parts, queue: s.worker.queue, checker: s.checker,
		inspector: newInspector(s.asks, decompressor, s.cfg.Read, s.parts, deps.Log), pacer: s.worker.pacer, metrics: metrics, log: deps.Log, failing: map[partitionKey]failing{},
	}
	s.recreate = &recreated{asks: s.asks, group: s.group, topics: s.cfg.Read, parts: s.parts, commits: commits, log: deps.Log}
	return s, nil
}

func (s *Scanner) build(metrics *metrics, commits *commits, decompressor kgo.Decompressor) {
	d, in := s.deps, intake.New(s.deps.Store)
	retry := retrier{failed: metrics.storeErrors, log: d.Log}
	standing := &standing{}
	s.health = newHealth(d.Store, standing, d.Log)
	s.checker = &checker{prover: prover{s.asks, decompressor}, lost: new(kafka.LostConnections), intake: in, parts: s.parts, retry: retry, metrics: metrics, log: d.Log}
	s.indexer = newIndexer(d.Index, s.clock, s.cfg.Window, metrics, d.Log)
	announcer := announcer{indexer: s.indexer, results: s.results, metrics: metrics}
	s.worker = &worker{
		batch: s.cfg.BatchRecords, group: s.cfg.Group, queue: newQueue(8*s.cfg.Workers, s.cfg.Cancels), parts: s.parts, kept: s.kept, undecided: s.undecided, decoder: newDecoder(s.cfg, metrics, d.Log), checker: s.checker,
		intake: in, applier: in, clock: s.clock, retry: retry, standing: standing, commits: commits, announcer: announcer, tracer: d.Tracer, metrics: metrics, log: d.Log,
	}
	if s.cfg.Shards {
		s.worker.sharer = &sharer{shard: s.cfg.Shard, shards: shards.New(d.Store), own: s.worker.decoder.target, all: s.cfg.Databases, retry: retry, patient: patience, installation: d.Store.Installation}
	}
	quotas := s.cfg.Quotas
	if d.Kafka.AllowAutoTopicCreation {
		quotas = nil // a target topic comes to be when it is used
	}
	s.worker.targets = newTargets(quotas, s.parts, s.asks, in, d.Log)
	s.resolver = &resolver{intake: in, applier: in, clock: s.clock, announcer: announcer, log: d.Log}
	s.watcher = &watcher{store: d.Store, clock: s.clock, parts: s.parts, standing: standing, metrics: metrics, log: d.Log}
	s.lag = newLag(s.asks, s.cfg.Read, s.parts, &s.worker.decoder.placement, standing, d.Metrics, d.Log)
}

// Ready returns why the scanner cannot take requests; nil: it can.
func (s *Scanner) Ready(ctx context.Context) error {
	return errors.Join(kafka.Ping(ctx, s.asks), s.deps.Store.Ping(ctx), s.worker.standing.ready(), s.parts.halted.ready(), s.poller.ready(), s.members.ready(), s.recreate.ready(ctx))
}

// stopPatience limits how long a stopping scanner stores records. The next scanner reads the rest.
const stopPatience = 5 * time.Second

// ResultsReady says whether the results topic answers; requests are taken without it.
func (s *Scanner) ResultsReady(ctx context.Context) error { return s.results.Ready(ctx) }

// Run takes requests until ctx ends. Then it stores its records within stopPatience, and leaves. It
// ends by itself with kafka.ErrOlderCopy.
func (s *Scanner) Run(ctx context.Context) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.refused, stop)()
	err := s.run(running)
	if err == nil && ctx.Err() == nil {
		err = context.Cause(s.refused)
	}
	return err
}

func (s *Scanner) run(ctx context.Context) error {
	defer s.asks.Close()
	defer s.leaveGroup()
	// Records read when ctx ends are still stored and published, so work outlives ctx.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	helpers, helping := errgroup.WithContext(work)
	background := func(ctx context.Context, run func(context.Context)) {
		helpers.Go(func() error { run(ctx); return nil })
	}
	background(ctx, s.health.run) // also before the database is there: the group has assigned partitions by then
	if err := s.clock.Start(ctx); err != nil {
		_ = helpers.Wait()
		s.results.Close(0)
		return nil // told to stop before the database was there
	}
	background(helping, s.clock.Run)
	background(helping, s.indexer.run)
	background(helping, s.results.Run)
	background(ctx, s.resolver.run)
	background(ctx, s.watcher.run)
	background(ctx, s.lag.run)
	background(ctx, func(ctx context.Context) { loop.Every(ctx, 5*time.Second, s.recreate.readAnew) })
	background(ctx, func(ctx context.Context) { loop.Every(ctx, checkEvery, s.checker.check) })
	background(ctx, func(ctx context.Context) { loop.Every(ctx, checkEvery, s.poller.inspector.lookStuck) })
	background(ctx, func(ctx context.Context) { loop.Every(ctx, sweepEvery, s.worker.targets.sweep) })
	if pacer := s.poller.pacer; len(pacer.intakes) > 0 {
		background(ctx, func(ctx context.Context) { pacer.run(ctx); loop.Every(ctx, countEvery, pacer.run) })
		for _, c := range pacer.countings {
			background(ctx, func(ctx context.Context) {
				loop.Every(ctx, pendingLook, func(ctx context.Context) { pacer.countPending(ctx, c) })
			})
		}
	}
	commit := func(ctx context.Context) { s.worker.commits.commit(ctx, s.group) }
	if s.cfg.CommitEvery > 0 {
		background(ctx, func(ctx context.Context) { loop.Every(ctx, s.cfg.CommitEvery, commit) })
		background(ctx, func(ctx context.Context) {
			loop.Every(ctx, lowerEvery, func(ctx context.Context) { s.worker.commits.lower(ctx, s.asks) })
		})
	}

	// One limit for all stretches: each of many failing ones would otherwise take that long.
	storing, giveUp := context.WithCancel(work)
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopPatience, giveUp) })()
	workers := errgroup.Group{}
	for range s.cfg.Workers {
		workers.Go(func() error { s.worker.run(storing); return nil })
	}
	err := s.poller.run(ctx)
	s.worker.queue.close()
	_ = workers.Wait()
	if s.cfg.CommitEvery > 0 {
		commit(work)
	}
	cancel()
	_ = helpers.Wait()
	s.results.Close(5 * time.Second)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// SetLimits replaces Config.IntakeLimits while the scanner runs. The limits in force when a record
// is stored judge it. No limits judge it again, unless the database has forgotten it.
func (s *Scanner) SetLimits(byTopic map[string]schemas.Limits) {
	s.worker.decoder.byTopic.Store(&byTopic)
}

// leavePatience limits the request to leave the group, which waits for a join under way. Without
// the request, the group notices after the session's timeout.
const leavePatience = 3 * time.Second

func (s *Scanner) leaveGroup() {
	s.group.AllowRebalance()
	bound, cancel := context.WithTimeout(context.Background(), leavePatience)
	defer cancel()
	if err := s.group.LeaveGroupContext(bound); err != nil {
		s.deps.Log.Warn("leaving the group without its answer", zap.Error(err))
	}
	s.group.CloseAllowingRebalance()
	s.group.AllowRebalance() // a request to leave that was given up may still wait for it
}
