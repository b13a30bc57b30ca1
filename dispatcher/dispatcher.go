// Package dispatcher delivers tasks at their instant: it claims the near future of its slots,
// stages the tasks in memory, and sends each due task to its topic, or to its callback's receiver.
// Slots go in; records on business topics, HTTP requests and settled slots come out.
//
// Each part of the way has a struct, a loop and a file, in the order of a task's way: ownership
// (which slots), claimer (which tasks), fetcher (their bodies), sender (at the instant), settler
// (makes the outcome durable). Between them a task is in flight: package flight holds the tasks and
// decides, and each loop has a small type of flight with the steps that the loop may take. The
// indexer keeps the index in step beside them, the runMaker makes the runs of timers, the
// runStarter asks which of them may begin, and the retirer forgets what ended long ago.
//
// Order of effects, for each task: (1) its place is claimed in the database; (2) its intent is in
// the send log, synced; (3) it is sent, not before it is due; (4) Kafka's answer is in the send
// log; (5) the final event is published; (6) done moves beyond the task. Where a dispatcher dies,
// the next owner sends again the tasks between done and claimed.
package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/events"
	"github.com/notyet/notyet/internal/copies"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/outbox"
)

// Deps are what a dispatcher works with. All are required but Callbacks and Tracer.
type Deps struct {
	Kafka   kafka.Config
	Store   *store.Store
	Index   Index
	Members election.Source
	SendLog *sendlog.Log
	Metrics prometheus.Registerer
	Log     *zap.Logger

	// Callbacks sends HTTP callbacks. nil: a callback becomes a dead letter.
	Callbacks *callback.Sender

	// Tracer makes spans of deliveries whose callers are traced. nil: none.
	Tracer *tracing.Tracer
}

// Dispatcher owns a share of the slots. Make it with New. Its parts stand in the order of a task's
// way; each of them runs in a loop of its own.
type Dispatcher struct {
	*shared
	trust     *trust
	health    *health
	flight    *flight.Flight
	ownership *ownership
	claimer   *claimer
	fetcher   *fetcher
	policies  *policies
	sender    *sender
	settler   *settler
	indexer   *indexer
	runMaker  *runMaker
	starter   *runStarter
	retirer   *retirer
	changer   *changer

	sent      *sendlog.Log
	client    *kgo.Client // for questions; it produces nothing
	producers *producers
	directory *directory
	results   *events.Publisher
}

// New checks the configuration and connects nothing yet.
func New(deps Deps, cfg Config) (*Dispatcher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configuring the dispatcher: %w", err)
	}
	sh := newShared(cfg, deps.Store, deps.Metrics, deps.Log)
	flightCfg := cfg.flight()
	if deps.Callbacks != nil {
		flightCfg.CallLimits = deps.Callbacks.Limits
	}
	fl := flight.New(flightCfg, sh.clock, sh.metrics.Metrics, sh.kicks, deps.Log)
	fl.RegisterGauges(deps.Metrics)

	kcfg := deps.Kafka
	kcfg.Now = sh.clock.Now
	// Staged tasks always fit into the producer, so producing never blocks on one target's account.
	kcfg.MaxBufferedRecords = 2 * cfg.StageTasks
	kcfg.MaxBufferedBytes = 2*cfg.StageBytes + 64<<20
	kcfg.AllowAutoTopicCreation = cfg.CreateTargets
	results, err := events.New(kcfg, outbox.New(deps.Store), events.Config{Topic: cfg.Results, Stage: "dispatcher", Sources: leftoverSources(fl.Owned)}, deps.Metrics, deps.Log)
	if err != nil {
		return nil, err
	}
	client, err := kafka.New(kcfg, deps.Log)
	if err != nil {
		results.Close(0)
		return nil, err
	}
	ps, err := newProducers(func(lost *kafka.LostConnections) (*kgo.Client, error) {
		return newProducer(kcfg, cfg, fl.Placement(), lost, deps.Log)
	})
	if err != nil {
		results.Close(0)
		client.Close()
		return nil, err
	}

	tr := &trust{shared: sh, members: deps.Members, copies: newCopies(sh, client)}
	registerGauges(deps.Metrics, deps.SendLog, sh.clock, tr.copies)
	la := newLookahead(sh, fl.Claims, deps.Index)
	d := &Dispatcher{shared: sh, trust: tr, flight: fl, policies: newPolicies(sh, fl.Policies, tr), sent: deps.SendLog, client: client, producers: ps, results: results}
	d.health = &health{shared: sh, members: deps.Members, client: client}
	d.ownership = newOwnership(sh, fl.Owning, tr, deps.SendLog)
	d.claimer = &claimer{shared: sh, flight: fl.Claims, trust: tr, ownership: d.ownership, lookahead: la, index: deps.Index}
	d.sender = newSender(sh, fl, tr, ps, kcfg, deps.Callbacks)
	d.directory = newDirectory(d.sender, client, cfg.CreateTargets)
	d.sender.unmet = d.directory.ask
	d.fetcher = newFetcher(sh, fl.Bodies, tr, deps.SendLog, deps.Tracer)
	d.fetcher.sources.tenants = flightCfg.Tenants
	d.indexer = &indexer{shared: sh, flight: fl.Owned}
	d.indexer.index, _ = deps.Index.(Copy)
	d.runMaker = newRunMaker(d.claimer, d.results.Stored, deps.Index)
	d.starter = newRunStarter(sh, fl.Runs, d.ownership)
	d.changer = newChanger(fl, d.ownership, deps.Index)
	d.retirer = newRetirer(d.changer)
	d.settler = newSettler(fl, d.sender, newAnnouncer(sh, fl.Announcing, results), d.ownership, d.indexer, deps.SendLog)
	return d, nil
}

// newCopies makes the comparison of the database with what the scanners have committed.
func newCopies(sh *shared, client *kgo.Client) *copies.Watch {
	if sh.cfg.Group == "" {
		return nil
	}
	stand := func(ctx context.Context) (copies.Stand, error) {
		life, stored, err := sh.intake.Stand(ctx)
		return copies.Stand{Life: life, Stored: stored}, err
	}
	var last int64 // of the requests that are waited for: more come all the time
	waits := func(ctx context.Context, anew bool) (n int, err error) {
		if anew {
			if last, err = sh.intake.LastArrived(ctx); err != nil {
				return 0, err
			}
		}
		return sh.intake.Undecided(ctx, last)
	}
	released := func() { // what was passed over meanwhile is looked at again
		sh.kicks.Sweep.Now()
		sh.kicks.Release.Now()
		sh.kicks.Timers.Now()
	}
	return copies.New(copies.Config{Client: client, Group: sh.cfg.Group, Topics: sh.cfg.Read, Database: stand, Waits: waits, Released: released, Log: sh.log})
}

// leftoverSources lets one dispatcher look after leftover events of transitions in the outbox: the
// owner of slot 0.
func leftoverSources(fl flight.Owned) func() []int {
	return func() []int {
		if !fl.OwnsFirst() {
			return nil
		}
		return []int{outbox.TransitionSource}
	}
}

// newProducer makes the producer of deliveries. It has one request at a time to each broker: tasks
// due while a request is on its way go along with the next, so a steady trickle costs the broker a
// request a round trip, not one a task, and nothing lingers.
func newProducer(kcfg kafka.Config, cfg Config, where *kafka.Placement, lost *kafka.LostConnections, log *zap.Logger) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.MaxProduceRequestsInflightPerBroker(1), kgo.RecordPartitioner(where),
		kgo.ProduceRequestTimeout(max(cfg.UnresponsiveAfter/2, time.Second)), // a broker lets the others of a request wait for the slowest partition
	}
	opts = append(opts, lost.Opts()...)
	opts = append(opts, kafka.GiveUpAfter(cfg.giveUpAfter())...)
	return kafka.NewProducer(kcfg, log, opts...)
}

// Ready returns what keeps the dispatcher from delivering. Owning no slot is fine: there may be
// more members than slots.
func (d *Dispatcher) Ready(ctx context.Context) error {
	if err := d.trust.copies.Ready(); err != nil {
		return err
	}
	if !d.trust.trusted() {
		return errors.New("the election has not been heard of lately")
	}
	return errors.Join(kafka.Ping(ctx, d.client), d.store.Ping(ctx), d.sent.Full())
}

// ResultsReady says whether the results topic answers; deliveries go on without it.
func (d *Dispatcher) ResultsReady(ctx context.Context) error { return d.results.Ready(ctx) }

// Unresponsive returns the topics and origins with a part that does not answer, in order. For
// operators.
func (d *Dispatcher) Unresponsive() []string { return d.flight.Unresponsive() }

// TakeDeliveries returns what was counted by target since the last call.
func (d *Dispatcher) TakeDeliveries() map[string]Deliveries { return d.targetMetrics.take() }

// Run delivers until ctx ends; then it claims no more, waits up to DrainTimeout for staged and sent
// tasks, settles them, and gives its slots back. It leaves the election once all calls under way
// have ended and the producer is closed.
func (d *Dispatcher) Run(ctx context.Context) error {
	if d.clock.Start(ctx) != nil || d.policies.start(ctx) != nil {
		d.closeClients(ctx)
		d.results.Close(0)
		return nil // stopped before the database was there
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, loops := errgroup.WithContext(work)
	member, leave := context.WithCancel(context.WithoutCancel(ctx)) // outlasts the loops
	defer leave()
	var members errgroup.Group
	members.Go(func() error { return d.trust.members.Run(member) })

	group.Go(func() error { d.clock.Run(loops); return nil })
	group.Go(func() error { d.results.Run(loops); return nil })
	for _, run := range []func(context.Context){d.trust.copies.Run, d.health.run, d.ownership.run, d.claimer.run, d.fetcher.run, d.directory.run, d.sender.run, d.settler.run, d.indexer.run, d.starter.run, d.runMaker.run, d.retirer.run, d.changer.run, d.targetLoop, d.policies.run, d.policies.move} {
		group.Go(func() error { run(loops); return nil })
	}

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
	d.sender.background.Wait()
	flush, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	d.closeClients(flush)
	d.settler.lastOutcomes()
	leave() // others take now what did not drain: nothing of it may still be on its way from here
	d.results.Close(time.Second)
	return errors.Join(err, <-failed)
}

// closeClients waits for what the producers hold until ctx ends.
func (d *Dispatcher) closeClients(ctx context.Context) {
	d.directory.close()
	d.producers.close(ctx)
	d.client.Close()
}

// drain waits until nothing is left to settle and every slot is given back, within the bound.
func (d *Dispatcher) drain() {
	d.flight.Stop()
	d.kicks.Own.Now()
	d.kicks.Claim.Now()
	deadline := time.After(d.cfg.DrainTimeout)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		left := d.flight.Left()
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

// targetLoop ranks targets, and counts their waiting tasks if this dispatcher owns slot 0: so one
// of all does it.
func (d *Dispatcher) targetLoop(ctx context.Context) {
	rank := time.NewTicker(rankEvery)
	defer rank.Stop()
	measure := time.NewTimer(measureEvery)
	defer measure.Stop()
	m := d.targetMetrics
	for {
		select {
		case <-ctx.Done():
			return
		case <-rank.C:
			m.rank()
		case <-measure.C:
			began := time.Now()
			d.measureTargets(ctx)
			measure.Reset(max(measureEvery, measureRest*time.Since(began)))
		}
	}
}

func (d *Dispatcher) measureTargets(ctx context.Context) {
	if !d.flight.OwnsFirst() {
		d.targetMetrics.forget()
		return
	}
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := d.targetMetrics.measure(bound, look.New(d.store), d.clock.Millis()); err != nil {
		d.targetMetrics.forget() // old figures would look like new ones
		if ctx.Err() == nil {
			d.log.Debug("counting what waits for targets failed", zap.Error(err))
		}
	}
}
