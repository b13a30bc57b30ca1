package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"sync/atomic"
	"syscall"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/console"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/dispatcher"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/figures"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/ops"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
)

// service is one process: its stages around one database, one index and one HTTP port.
type service struct {
	cfg    *config.Config
	log    *zap.Logger
	reg    *prometheus.Registry
	kafka  kafka.Config
	store  *store.Store
	index  nearFuture
	guard  *access.Guard
	http   *ops.Server
	life   *lifecycle
	in     atomic.Pointer[[]api.Intake] // with the limits that are in force
	tracer *tracing.Tracer
	alive  *heartbeat

	installation string // its id, from the database

	member string          // of the dispatcher; "": there is none
	silent func() []string // of the dispatcher: targets that do not answer; nil: there is none
	closes []func()        // in the order of opening

	take []func(*config.Config) // what its parts take over from a configuration that is read again
}

// openService opens what every service needs. It opens the port first, so that a wrong port is
// noticed at once. The access log, if it is on, goes to stdout.
func openService(ctx context.Context, cfg *config.Config, name string, log *zap.Logger, stdout io.Writer) (s *service, err error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(60) // a dispatcher of reports takes 8 % less memory, and 6 % more CPU of its own
	}
	s = &service{cfg: cfg, log: log, reg: ops.NewRegistry()}
	s.reg.MustRegister(buildInfo())
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	s.tracer = tracing.Start(ctx, command.Version(), log)
	s.onClose(s.tracer.Stop)
	ocfg, err := opsConfig(cfg, func() console.Common { return admin.New(s.store) }, log)
	if err != nil {
		return s, err
	}
	if cfg.HTTP.AccessLog {
		signal.Ignore(syscall.SIGPIPE) // the program that reads the lines may end
		ocfg.AccessLog = command.NewLogger(config.Log{Level: "info", Format: "json"}, stdout)
	}
	s.reg.MustRegister(ocfg.Guard.Collectors()...)
	s.guard, s.http = ocfg.Guard, ops.New(ocfg, s.reg, log)
	s.life = &lifecycle{log: log, stopTimeout: cfg.StopTimeout, stopping: s.http.Stopping}
	if err := s.http.Listen(); err != nil {
		return s, err
	}
	s.onClose(func() { _ = s.http.Close() })
	if s.kafka, err = command.KafkaConfig(cfg, log); err != nil {
		return s, err
	}
	if s.store, err = openStore(ctx, cfg, log); err != nil {
		return s, err
	}
	s.onClose(func() { _ = s.store.Close() })
	if err := s.store.CheckRowLocks(ctx); err != nil {
		return s, err
	}
	clock := s.store.Clock()
	if err := clock.Start(ctx); err != nil {
		return s, err
	}
	s.alive = newHeartbeat(s.store, name, s.http.Addr(), cfg.Index.Kind, log)
	s.onClose(s.alive.leave)
	if name != "dispatcher" {
		s.alive.intakes = intakes(cfg)
	}
	if err := s.alive.say(ctx); err != nil {
		return s, err
	}
	s.life.add("clock", func(ctx context.Context) error { clock.Run(ctx); return nil })
	s.kafka.Now = clock.Now
	s.reg.MustRegister(s.store.Collector())
	if s.installation, err = s.store.Installation(ctx); err != nil {
		return s, err
	}
	if s.index, err = openIndex(ctx, cfg, s.store, log); err != nil {
		return s, err
	}
	s.onClose(s.index.Close)
	if x, redis := s.index.(*index.Index); redis {
		s.reg.MustRegister(x.Collector())
	}
	if err = s.takeLimits(cfg); err != nil {
		return s, err
	}
	s.take = append(s.take, func(cfg *config.Config) { _ = s.takeLimits(cfg) }) // the rules of URLs are those of the start
	s.http.Check("mysql", s.store.Ping)
	hint := "redis" // tasks are delivered without it
	if cfg.Index.Kind == config.KindMySQL {
		hint = "wakes"
	}
	s.http.Hint(hint, s.index.Ping)
	return s, s.mountAPI()
}

func (s *service) mountAPI() error {
	producer, err := kafka.NewProducer(s.kafka, s.log, kgo.RecordPartitioner(api.Partitioner()))
	if err != nil {
		return err
	}
	s.onClose(producer.Close)
	alone, err := kafka.NewSoloProducer(s.kafka, s.log, kgo.RecordPartitioner(api.Partitioner()))
	if err != nil {
		return err
	}
	s.onClose(alone.Close)
	s.http.Check("kafka", func(ctx context.Context) error { return kafka.Ping(ctx, producer) })
	local := api.NewLocal(s.store, deadletter.NewLocal(s.store, s.index, "api", s.log))
	local.Unindex = unindexer(s.index, s.log)
	local.Lag = lagOf(s.cfg, s.store, func(context.Context) (*kgo.Client, error) { return producer, nil })
	// An answer in an aborted transaction does not count.
	answers := api.NewAnswers(s.cfg.Results.Topic, func() (*kgo.Client, error) {
		return kafka.NewReader(s.kafka, s.log)
	}, s.log)
	s.onClose(answers.Close)
	api.Mount(s.http.Mux(), local, api.NewPublisher(producer, alone), api.Config{Version: command.Version(), Intakes: func() []api.Intake { return *s.in.Load() }, Answers: answers})
	console.Mount(s.http.Mux(), command.Version())
	s.life.add("refusals", s.noteRefusals) // stops after http
	s.life.add("http", s.http.Run)
	return nil
}

func (s *service) onClose(f func()) { s.closes = append(s.closes, f) }

// close closes what was opened, the last first.
func (s *service) close() {
	for i := len(s.closes) - 1; i >= 0; i-- {
		s.closes[i]()
	}
	s.closes = nil
}

func scannerConfig(cfg *config.Config, intakes []api.Intake) scanner.Config {
	return scanner.Config{
		Group: cfg.Scanner.Group, Intake: cfg.IntakeNames(), Reports: cfg.Reports.Topic, Results: cfg.Results.Topic,
		IntakeLimits: limits(intakes), Window: cfg.Window,
	}
}

func limits(intakes []api.Intake) map[string]schemas.Limits {
	out := map[string]schemas.Limits{}
	for _, in := range intakes {
		out[in.Topic] = in.Limits
	}
	return out
}

// quotas are those of the intakes. Reconcile has none: what it reads has passed, or is behind what did.
func quotas(cfg *config.Config) map[string]scanner.Quota {
	out := map[string]scanner.Quota{}
	for _, in := range cfg.Intake.Topics {
		out[in.Topic] = scanner.Quota{RequestsPerSecond: in.RequestsPerSecond, PendingTasks: in.PendingTasks, PendingBytes: int64(in.PendingBytes), Reject: in.Beyond == config.BeyondReject}
	}
	return out
}

// warnUnrestricted warns of intake topics whose writers may write, cancel and replace everywhere.
func (s *service) warnUnrestricted(cfg *config.Config) {
	if names := cfg.Unrestricted(); len(names) > 0 {
		s.log.Warn("who may write these intake topics may deliver to, cancel and replace tasks of every topic that notyet may write: set intake.allowed-targets, or set it to * where that is meant",
			zap.Strings("intake", names))
	}
}

// addWarnedScanner adds the scanner, with a warning if its intakes are unrestricted.
func (s *service) addWarnedScanner() error {
	s.warnUnrestricted(s.cfg)
	s.take = append(s.take, s.warnUnrestricted)
	return s.addScanner()
}

// addScanner adds the scanner to the parts.
func (s *service) addScanner() error {
	scfg := scannerConfig(s.cfg, *s.in.Load())
	scfg.Installation = s.installation
	scfg.Quotas = quotas(s.cfg)
	if err := s.checkGroup(); err != nil {
		return err
	}
	sc, err := scanner.New(scanner.Deps{Kafka: s.kafka, Store: s.store, Index: s.index, Metrics: s.reg, Log: s.log, Tracer: s.tracer}, scfg)
	if err != nil {
		return fmt.Errorf("setting the scanner up: %w", err)
	}
	s.take = append(s.take, func(cfg *config.Config) {
		sc.SetQuotas(quotas(cfg))
		sc.SetLimits(limits(*s.in.Load())) // taken over before
	})
	s.http.Check("scanner", sc.Ready)
	s.http.Hint("scanner's results topic", sc.ResultsReady)
	s.life.add("scanner", s.onKafka(sc.Run))
	return nil
}

// openSendLog opens the send log of a dispatcher.
func (s *service) openSendLog() (*sendlog.Log, error) {
	sent, err := sendlog.Open(s.cfg.SendLog.Dir, sendlog.Config{Now: s.store.Clock().Now, Retention: s.cfg.SendLog.Retention, MaxBytes: int64(s.cfg.SendLog.MaxBytes), Installation: s.installation}, s.log)
	if err != nil {
		return nil, fmt.Errorf("%w (sendlog.dir says where it is; each dispatcher needs its own)", err)
	}
	s.onClose(func() {
		if err := sent.Close(); err != nil {
			s.log.Warn("closing the send log failed", zap.Error(err))
		}
	})
	return sent, nil
}

// addDispatcher adds the dispatcher to the parts; memberID is its name in the election.
func (s *service) addDispatcher(members election.Source, memberID string, sent *sendlog.Log) error {
	callbacks, err := s.addCallbacks()
	if err != nil {
		return err
	}
	d := s.cfg.Dispatcher
	d.UndeliverableAfter = cmp.Or(d.UndeliverableAfter, -1) // one attempt: the dispatcher takes 0 as the default
	disp, err := dispatcher.New(dispatcher.Deps{Kafka: s.kafka, Store: s.store, Index: s.index, Members: members, SendLog: sent, Metrics: s.reg, Log: s.log, Callbacks: callbacks, Tracer: s.tracer}, dispatcher.Config{
		MemberID: memberID, Results: s.cfg.Results.Topic, LookAhead: d.LookAhead, BurstLookAhead: max(d.BurstLookAhead, 1), Window: s.cfg.Window,
		StageTasks: d.StageTasks, StageBytes: int(d.StageBytes), CreateTargets: s.kafka.AllowAutoTopicCreation, DrainTimeout: d.DrainTimeout, UndeliverableAfter: d.UndeliverableAfter, Retention: d.Retention, DeadRetention: s.cfg.DeadLetters.Retention, AuditRetention: s.cfg.Audit.Retention,
		MisfireAfter: s.cfg.Timers.MisfireAfter, Targets: s.cfg.Metrics.Targets, TopTargets: s.cfg.Metrics.TopTargets,
	})
	if err != nil {
		return fmt.Errorf("setting the dispatcher up: %w", err)
	}
	s.member, s.silent = memberID, disp.Unresponsive
	s.http.Check("dispatcher", disp.Ready)
	s.http.Hint("dispatcher's results topic", disp.ResultsReady)
	s.life.add("dispatcher", s.onKafka(disp.Run))
	return nil
}

// joinDispatchers adds a dispatcher that shares the slots with others.
func (s *service) joinDispatchers() error {
	sent, err := s.openSendLog()
	if err != nil {
		return err
	}
	start := uuid.NewString()
	before, err := sent.Occupy(start)
	if err != nil {
		s.log.Warn("whether the dispatcher that had the send log before has ended is not certain: its slots may wait for its session (sendlog.dir)", zap.Error(err))
	}
	members, err := s.electorate(start, before)
	if err != nil {
		return err
	}
	return s.addDispatcher(members, members.MemberID(), sent)
}

// electorate returns the election among several dispatchers. start names this start of the process, and ended those before, which have
// certainly ended.
func (s *service) electorate(start string, ended []string) (members *election.Member, err error) {
	cfg, err := electionConfig(s.cfg, s.log)
	if err != nil {
		return nil, err
	}
	kind := s.cfg.Election.Kind
	cfg.MemberID, cfg.Installation = s.cfg.Dispatcher.MemberID, s.installation
	cfg.Instance, cfg.Ended = start, ended
	cfg.Slots = func(ctx context.Context) (int, error) {
		if err := admin.New(s.store).ElectBy(ctx, kind); err != nil {
			return 0, err
		}
		return s.store.SlotCount(ctx)
	}
	if kind == config.KindMySQL {
		roll := s.store.Roll()
		s.onClose(roll.Close)
		members, err = election.NewDatabase(cfg, roll, intake.New(s.store).Line(), s.log)
	} else {
		members, err = election.NewZooKeeper(cfg, intake.New(s.store).Line(), s.log)
	}
	if err != nil {
		return nil, command.UsageError{Err: err}
	}
	return members, nil
}

// newRecorder returns what makes the figures of this process.
func (s *service) newRecorder(id string) *figures.Recorder {
	return figures.NewRecorder(figures.Config{
		Gather: s.reg, Time: s.store.Time, Targets: s.silent,
		Save: func(ctx context.Context, minute int64, data []byte) error {
			return admin.New(s.store).SaveMinute(ctx, id, minute, data)
		},
	}, s.log)
}

// run serves until ctx ends or a part fails, then stops everything and closes what was opened.
func (s *service) run(ctx context.Context) error {
	s.log.Info("started", zap.String("service", s.alive.service.Kind), zap.String("version", command.Version()), zap.String("http", s.http.Addr()))
	recorder := s.newRecorder(s.alive.service.ID)
	s.alive.service.Member, s.alive.figures = s.member, recorder.Now
	s.life.parts = append([]part{{"heartbeat", s.alive.run}, {"figures", recorder.Run}}, s.life.parts...) // the last to stop: the others are at work until then
	err := s.life.run(ctx)
	if errors.Is(err, errStuck) {
		s.closes = nil // closing could block on a stuck part; the process ends anyway
	}
	return err
}
