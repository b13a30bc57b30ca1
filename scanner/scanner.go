// Package scanner takes requests and reports from the intake topics and stores them: Kafka records go in; task rows, index
// entries and answers on the results topic come out.
//
// Order of effects, for each batch: (1) one transaction stores the tasks, the events that answer them and the intake
// offsets they came from; (2) the index learns of them and the dispatchers are woken; (3) the events are told, and
// forgotten once Kafka has acknowledged them; (4) the group's offset is committed to Kafka, for lag monitors only. Where a
// scanner dies, the next one begins at the offsets in the database, tells what was left untold, and the dispatchers find
// what the index has not learned.
package scanner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/notyet/notyet/events"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
)

// Config of a scanner. The zero value works.
type Config struct {
	// Group is the consumer group that shares the intake partitions. Default "notyet-scanner".
	Group string
	// Intake are the topics with requests. Default notyet.intake.
	Intake []string
	// Reports is the topic with consumers' reports. Default notyet.reports.
	Reports string
	// Read are those of these topics that are read. Default all.
	Read []string
	// Results is the topic that events go to. Default notyet.results.
	Results string
	// Limits of a request.
	Limits schemas.Limits
	// IntakeLimits replace Limits for the intake topics that they name.
	IntakeLimits map[string]schemas.Limits
	// Window is the near future that the index holds. Default 2 h.
	Window time.Duration
	// Workers store batches side by side, each on its own connection; a partition is with one of them at a time.
	// Default 4: more make the database no faster (measured: one connection 28k rows/s, four 50k, limited by its CPU).
	Workers int
	// BatchRecords bounds a transaction. Default 2000: about 60 ms of work for the database, during whose last few the
	// slots are locked.
	BatchRecords int
	// CommitEvery is how often Kafka is told what is stored, for lag monitors. Default 1 s; below 0: never.
	CommitEvery time.Duration
}

func (c Config) withDefaults() Config {
	def(&c.Group, "notyet-scanner")
	def(&c.Reports, schemas.TopicReports)
	def(&c.Results, schemas.TopicResults)
	def(&c.Window, 2*time.Hour)
	def(&c.Workers, 4)
	def(&c.BatchRecords, 2000)
	def(&c.CommitEvery, time.Second)
	if len(c.Intake) == 0 {
		c.Intake = []string{schemas.TopicIntake}
	}
	if len(c.Read) == 0 {
		c.Read = append([]string{c.Reports}, c.Intake...)
	}
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// applier stores batches: the store.
type applier interface {
	Apply(ctx context.Context, b store.Batch, now int64) (store.Applied, error)
}

// Index is what the scanner needs of the index: internal/index has one in Redis and one in memory.
type Index interface {
	Add(ctx context.Context, entries []index.Entry) error
	Remove(ctx context.Context, entries []index.Entry) error
	Wake(ctx context.Context, at []index.SlotPos) error
}

// Scanner is one member of the group. Make it with New.
type Scanner struct {
	cfg     Config
	kcfg    kafka.Config
	store   *store.Store
	applier applier
	clock   *store.Clock
	index   Index
	log     *zap.Logger
	metrics *metrics

	consumer *kgo.Client
	mover    *kafka.Mover // of the consumer; the poller's
	producer *kgo.Client  // asks about topics, so that the consumer's session is never in the way
	parts    *partitions
	queue    *queue
	standing standing
	halted   halted
	stuck    stuck

	decompressor kgo.Decompressor // for looks into gaps
	indexing     chan store.Applied
	results      *events.Publisher
}

// New checks the configuration and makes the clients; the consumer begins to join its group. Nothing is taken before Run.
func New(kcfg kafka.Config, st *store.Store, ix Index, cfg Config, reg prometheus.Registerer, log *zap.Logger) (*Scanner, error) {
	cfg = cfg.withDefaults()
	s := &Scanner{cfg: cfg, kcfg: kcfg, store: st, applier: st, clock: st.NewClock(), index: ix, log: log, metrics: newMetrics(reg), indexing: make(chan store.Applied, 256)}
	var err error
	if s.decompressor, err = kafka.InspectionDecompressor(); err != nil {
		return nil, err
	}
	if s.producer, err = kafka.NewProducer(kcfg, log); err != nil {
		return nil, err
	}
	s.parts, s.stuck.found = newPartitions(s), map[*reading]*kafka.Unreadable{}
	if s.results, err = events.New(kcfg, st, events.Config{Topic: cfg.Results, Stage: "scanner", Sources: s.parts.ids}, reg, log); err != nil {
		s.producer.Close()
		return nil, err
	}
	s.consumer, err = kafka.NewConsumerGroup(kcfg, cfg.Group, cfg.Read, log,
		kgo.AdjustFetchOffsetsFn(s.parts.begin),
		kgo.OnPartitionsRevoked(s.parts.drop),
		kgo.OnPartitionsLost(s.parts.drop),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.KeepControlRecords(),   // a marker of a transaction is no gap: see inspect
		kgo.BlockRebalanceOnPoll(), // until what was polled is known by its reading, not while it is stored
		kgo.FetchMaxWait(250*time.Millisecond),
		// A dead scanner's partitions wait this long for another; 6 s is the least that brokers allow by default. Losing
		// the membership by mistake costs a rebalance and nothing else.
		kgo.SessionTimeout(6*time.Second),
		// What others wait for a member that does not join anew, and, with ten seconds more, what a member waits for a group
		// that does not come together. Nothing is done before a member joins again.
		kgo.RebalanceTimeout(10*time.Second),
		kgo.HeartbeatInterval(1500*time.Millisecond),
	)
	if err != nil {
		s.producer.Close()
		s.results.Close(0)
		return nil, err
	}
	s.mover, s.queue = kafka.NewMover(s.consumer), newQueue(8*cfg.Workers)
	return s, nil
}

// Ready answers what keeps the scanner from taking requests.
func (s *Scanner) Ready(ctx context.Context) error {
	return errors.Join(kafka.Ping(ctx, s.producer), s.store.Ping(ctx), s.standing.ready(), s.halted.ready(), s.readyRecreated(ctx))
}

// stopPatience is how long what is at hand may take to be stored once the scanner is to stop. What is not stored by then is
// in Kafka, for the next.
const stopPatience = 5 * time.Second

// ResultsReady says whether the results topic answers; requests are taken without it.
func (s *Scanner) ResultsReady(ctx context.Context) error { return s.results.Ready(ctx) }

// Run takes requests until ctx ends; then it finishes the batches at hand and leaves the group.
func (s *Scanner) Run(ctx context.Context) error {
	defer s.producer.Close()
	defer s.leaveGroup()
	if err := s.clock.Start(ctx); err != nil {
		s.results.Close(0)
		return nil // told to stop before the database was there
	}
	// What is at hand when ctx ends is still stored and told, within the time that remains to work.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	helpers, helping := errgroup.WithContext(work)
	helpers.Go(func() error { s.clock.Run(helping); return nil })
	helpers.Go(func() error { s.feedIndex(helping); return nil })
	helpers.Go(func() error { s.results.Run(helping); return nil })
	helpers.Go(func() error { s.resolve(ctx); return nil })
	helpers.Go(func() error { s.watch(ctx); return nil })
	helpers.Go(func() error { every(ctx, 5*time.Second, s.readRecreated); return nil })
	helpers.Go(func() error { every(ctx, checkEvery, s.check); return nil })
	helpers.Go(func() error { every(ctx, checkEvery, s.lookStuck); return nil })
	if s.cfg.CommitEvery > 0 {
		helpers.Go(func() error { every(ctx, s.cfg.CommitEvery, s.parts.commit); return nil })
	}

	// One bound for all of it: many runs that cannot be stored must not each have it.
	storing, giveUp := context.WithCancel(work)
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopPatience, giveUp) })()
	workers := errgroup.Group{}
	for range s.cfg.Workers {
		workers.Go(func() error { worker{s}.run(storing); return nil })
	}
	err := s.poll(ctx)
	s.queue.close()
	_ = workers.Wait()
	if s.cfg.CommitEvery > 0 {
		s.parts.commit(work)
	}
	cancel()
	_ = helpers.Wait()
	s.results.Close(5 * time.Second)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// leavePatience bounds the goodbye to the group: it waits behind a join, and so for whatever that waits for. Without it the
// group finds out by itself, after the session.
const leavePatience = 3 * time.Second

func (s *Scanner) leaveGroup() {
	s.consumer.AllowRebalance()
	bound, cancel := context.WithTimeout(context.Background(), leavePatience)
	defer cancel()
	if err := s.consumer.LeaveGroupContext(bound); err != nil {
		s.log.Warn("leaving without a goodbye to the group", zap.Error(err))
	}
	s.consumer.CloseAllowingRebalance()
	s.consumer.AllowRebalance() // a goodbye that was given up may still wait for it
}

// A poll that brought few records is followed by a pause: a trickle would else be a fetch and a transaction a record, each of
// which costs as much as fifty rows. After a rest, a record is taken at once.
const (
	pollPause = 25 * time.Millisecond
	pollFew   = 1000
)

// poll hands fetched records to the workers. A full queue holds it up, and so the intake waits where it is safe: in Kafka.
func (s *Scanner) poll(ctx context.Context) error {
	for ctx.Err() == nil {
		runs := s.unstuck() // before the client is set behind them
		polling, polledAll := s.parts.polling(ctx)
		fetches := s.consumer.PollRecords(polling, 10_000)
		woken := polling.Err() != nil
		polledAll()
		polled := time.Now()
		if fetches.IsClientClosed() {
			return errors.New("polling the intake: the client was closed")
		}
		failed := false
		fetches.EachError(func(topic string, partition int32, err error) {
			loss, lost := errors.AsType[*kgo.ErrDataLoss](err)
			switch {
			case lost:
				s.lost(loss) // what it resumes at is not read: see received
				return
			case woken && errors.Is(err, polling.Err()), errors.Is(err, kgo.ErrMaxDecompress):
				return
			case errors.Is(err, kafka.ErrHeld): // the workers make room
				failed = true
				return
			}
			if failed = true; ctx.Err() == nil {
				s.metrics.fetchErrors.Inc()
				s.log.Warn("fetching intake failed", zap.String("topic", topic), zap.Int32("partition", partition), zap.Error(err))
			}
		})
		looking, looked := context.WithTimeout(ctx, inspectPatience)
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			of, ok := s.receive(looking, p)
			runs, failed = append(runs, of...), failed || !ok
		})
		looked()
		s.consumer.AllowRebalance() // a partition was not revoked and given back between the poll and here
		s.queue.put(ctx, runs)
		var pause time.Duration
		switch {
		case failed: // an error that stays must not become a spin
			pause = 100 * time.Millisecond
		case fetches.NumRecords() < pollFew && !slices.ContainsFunc(runs, func(r run) bool { return r.unreadable != nil }):
			pause = time.Until(polled.Add(pollPause))
		}
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// receive makes runs of what was polled of a partition: its records, and a batch behind them that cannot be read; false: it is to be
// polled again.
func (s *Scanner) receive(ctx context.Context, p kgo.FetchTopicPartition) (runs []run, ok bool) {
	key := partitionKey{p.Topic, p.Partition}
	records, bad, err := s.inspect(ctx, key, p.Records)
	if err != nil {
		s.metrics.fetchErrors.Inc()
		s.log.Warn("looking at what a poll has jumped over failed, trying again", zap.Error(err))
		s.parts.pollAgain(key)
		return nil, false
	}
	if e, is := errors.AsType[*kgo.ErrDecompressTooLarge](p.Err); is && bad == nil {
		s.log.Warn("a batch of the intake is too large to be read or damaged, and becomes a dead letter", zap.Error(e))
		bad = tooLarge(e)
	}
	if len(records) > 0 {
		if r, ok := s.parts.received(records); ok {
			runs = append(runs, r)
		}
	}
	if bad != nil {
		if r, ok := s.parts.receivedUnreadable(key, bad); ok {
			runs = append(runs, r)
		}
	}
	return runs, true
}

// retry runs f until it succeeds or ctx ends, with pauses from 50 ms to 5 s: bad world, keep and try again.
func (s *Scanner) retry(ctx context.Context, what string, f func() error) error {
	pause := 50 * time.Millisecond
	for {
		err := f()
		if err == nil || errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrUncovered) || store.BadRecord(err) && !faultpoint.Without(faultpoint.RefusedAlone) {
			return err
		}
		s.metrics.storeErrors.Inc()
		s.log.Warn("the database did not take it, trying again", zap.String("doing", what), zap.Duration("pause", pause), zap.Error(err))
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, errors.Join(err, ctx.Err()))
		case <-time.After(pause):
		}
		pause = min(2*pause, 5*time.Second)
	}
}
