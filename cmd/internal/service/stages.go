package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/dispatcher"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/figures"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
)

func scannerConfig(cfg *config.Config, intakes []api.Intake) scanner.Config {
	return scanner.Config{
		Group: cfg.Scanner.Group, Intake: cfg.IntakeNames(), Reports: cfg.Reports.Topic, Results: cfg.Results.Topic, Cancels: cfg.Cancels.Topic,
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

// quotas are the intakes' quotas. Reconcile has none: its records have passed, or follow such ones.
func quotas(cfg *config.Config) map[string]scanner.Quota {
	out := map[string]scanner.Quota{}
	for _, in := range cfg.Intake.Topics {
		out[in.Topic] = scanner.Quota{RequestsPerSecond: in.RequestsPerSecond, PendingTasks: in.PendingTasks, PendingBytes: int64(in.PendingBytes), Reject: in.Beyond == config.BeyondReject, UnknownTargets: in.UnknownTargets}
	}
	return out
}

// CatchUpConfig configures a scanner for already read records. Its intakes accept every URL: this
// process may lack the intakes' settings, and the dispatcher checks each URL again.
func CatchUpConfig(cfg *config.Config) scanner.Config {
	intakes := Intakes(cfg)
	for i := range intakes {
		intakes[i].Limits.Callbacks = func(schemas.CallbackURL) *schemas.Rejection { return nil }
	}
	return scannerConfig(cfg, intakes)
}

// AddScanner adds the scanner to the parts.
func (e *Engine) AddScanner() error {
	scfg := scannerConfig(e.cfg, *e.process.in.Load())
	scfg.Installation = e.installation
	scfg.Quotas = quotas(e.cfg)
	scfg.Shards, scfg.Shard, scfg.Databases = len(e.process.shards) > 1, e.shard.number, e.process.databases
	if err := e.checkGroup(); err != nil {
		return err
	}
	sc, err := scanner.New(scanner.Deps{Kafka: e.kafka, Store: e.store, Index: e.index, Metrics: e.reg, Log: e.log, Tracer: e.process.tracer}, scfg)
	if err != nil {
		return fmt.Errorf("setting the scanner up: %w", err)
	}
	e.take = append(e.take, func(cfg *config.Config) {
		sc.SetQuotas(quotas(cfg))
		sc.SetLimits(limits(*e.process.in.Load())) // taken over before
	})
	e.checks.Check("scanner", sc.Ready)
	e.checks.Hint("scanner's results topic", sc.ResultsReady)
	e.watchCopies()
	e.life.add("scanner", e.onKafka(func(ctx context.Context) error {
		e.process.rulesBefore(ctx)
		return sc.Run(ctx)
	}))
	return nil
}

func (e *Engine) openSendLog() (*sendlog.Log, error) {
	sent, err := sendlog.Open(e.cfg.SendLog.Dir, sendlog.Config{Now: e.store.Clock().Now, Retention: e.cfg.SendLog.Retention, MaxBytes: int64(e.cfg.SendLog.MaxBytes) / e.sharers(), Installation: e.installation}, e.log)
	if err != nil {
		return nil, fmt.Errorf("%w (sendlog.dir says where it is; each dispatcher needs its own)", err)
	}
	e.onClose(func() {
		if err := sent.Close(); err != nil {
			e.log.Warn("closing the send log failed", zap.Error(err))
		}
	})
	return sent, nil
}

// sharers returns how many engines of this process share its memory, and its disk.
func (e *Engine) sharers() int64 { return int64(len(e.cfg.Engines())) }

// addDispatcher adds the dispatcher to the parts; memberID is its name in the election.
func (e *Engine) addDispatcher(members election.Source, memberID string, sent *sendlog.Log) error {
	callbacks, err := e.addCallbacks()
	if err != nil {
		return err
	}
	d := e.cfg.Dispatcher
	d.UndeliverableAfter = cmp.Or(d.UndeliverableAfter, -1) // one attempt: the dispatcher takes 0 as the default
	disp, err := dispatcher.New(dispatcher.Deps{Kafka: e.kafka, Store: e.store, Index: e.index, Members: members, SendLog: sent, Metrics: e.reg, Log: e.log, Callbacks: callbacks, Tracer: e.process.tracer}, dispatcher.Config{
		MemberID: memberID, Results: e.cfg.Results.Topic, Group: e.cfg.Scanner.Group, Read: e.cfg.ReadTopics(), LookAhead: d.LookAhead, BurstLookAhead: max(d.BurstLookAhead, 1), Window: e.cfg.Window,
		StageTasks: max(1, d.StageTasks/int(e.sharers())), StageBytes: int(int64(d.StageBytes) / e.sharers()), CreateTargets: e.kafka.AllowAutoTopicCreation, DrainTimeout: d.DrainTimeout, UndeliverableAfter: d.UndeliverableAfter, Retention: d.Retention, DeadRetention: e.cfg.DeadLetters.Retention, AuditRetention: e.cfg.Audit.Retention,
		MisfireAfter: e.cfg.Timers.MisfireAfter, Targets: e.cfg.Metrics.Targets, TopTargets: e.cfg.Metrics.TopTargets,
	})
	if err != nil {
		return fmt.Errorf("setting the dispatcher up: %w", err)
	}
	e.member, e.silent = memberID, disp.Unresponsive
	e.deliveries = func() map[string]figures.Deliveries {
		out := map[string]figures.Deliveries{}
		for target, d := range disp.TakeDeliveries() {
			out[target] = figures.Deliveries(d)
		}
		return out
	}
	e.checks.Check("dispatcher", disp.Ready)
	e.checks.Hint("dispatcher's results topic", disp.ResultsReady)
	e.watchCopies()
	e.life.add("dispatcher", e.onKafka(disp.Run))
	return nil
}

// AddDispatcher adds a dispatcher with a share of the slots.
func (e *Engine) AddDispatcher() error {
	sent, err := e.openSendLog()
	if err != nil {
		return err
	}
	start := uuid.NewString()
	before, err := sent.Occupy(start)
	if err != nil {
		e.log.Warn("whether the dispatcher that had the send log before has ended is not certain: its slots may wait for its session (sendlog.dir)", zap.Error(err))
	}
	members, err := e.electorate(start, before)
	if err != nil {
		return err
	}
	return e.addDispatcher(members, members.MemberID(), sent)
}

// electorate returns the election among several dispatchers. start names this start of the process,
// and ended the certainly ended ones before.
func (e *Engine) electorate(start string, ended []string) (members *election.Member, err error) {
	cfg, err := ElectionConfig(e.cfg, e.log)
	if err != nil {
		return nil, err
	}
	kind := e.cfg.Election.Kind
	cfg.MemberID, cfg.Installation = e.cfg.Dispatcher.MemberID, e.installation
	cfg.Instance, cfg.Ended = start, ended
	cfg.Slots = func(ctx context.Context) (int, error) {
		if err := admin.New(e.store).ElectBy(ctx, kind); err != nil {
			return 0, err
		}
		return e.store.SlotCount(ctx)
	}
	cfg.Can, cfg.Required = store.Can(), e.store.Required
	if kind == config.KindMySQL {
		roll := e.store.Roll()
		e.onClose(roll.Close)
		members, err = election.NewDatabase(cfg, roll, intake.New(e.store).Line(), e.log)
	} else {
		members, err = election.NewZooKeeper(cfg, intake.New(e.store).Line(), e.log)
	}
	if err != nil {
		return nil, command.UsageError{Err: err}
	}
	return members, nil
}

// addCallbacks makes the sender of HTTP callbacks. Without callback.enabled it refuses each.
func (e *Engine) addCallbacks() (*callback.Sender, error) {
	cfg, err := callbackConfig(e.cfg.Callback)
	if err != nil {
		return nil, err
	}
	cfg.Now = e.kafka.Now
	most := func(total int) int { return max(1, total/int(e.sharers())) }
	cfg.MaxInFlightTotal = max(cfg.MaxInFlight, most(cfg.MaxInFlightTotal))
	sender, err := callback.New(cfg, e.log, e.reg)
	if err != nil {
		return nil, command.UsageError{Err: err}
	}
	e.onClose(sender.Close)
	e.take = append(e.take, func(cfg *config.Config) {
		sender.Limit(cfg.Callback.MaxInFlight, max(cfg.Callback.MaxInFlight, most(cfg.Callback.MaxInFlightTotal)), cfg.Callback.MaxTimeout)
	})
	return sender, nil
}

// onKafka returns a part that begins once Kafka has proven to be the installation's: a scanner
// would take another cluster's requests, and a dispatcher would deliver to another cluster's
// topics.
func (e *Engine) onKafka(run func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		client, err := kafka.New(e.kafka, e.log)
		if err != nil {
			return err
		}
		defer client.Close()
		for ctx.Err() == nil {
			err := CheckKafka(ctx, e.store, client, false)
			if err == nil {
				if err := e.named(client).Compare(ctx); errors.Is(err, kafka.ErrOlderCopy) {
					return err
				}
				break
			}
			if errors.Is(err, admin.ErrOtherKafka) {
				return err
			}
			e.log.Warn("looking which Kafka cluster this is failed, trying again: nothing is taken or delivered before", zap.Error(err))
			loop.Rest(ctx, time.Second)
		}
		client.Close()
		return run(ctx)
	}
}

// checkGroup refuses a consumer group with offsets of another installation, or of a newer copy of
// the database: its scanners would lose partitions to this one. Without an answer, the scanner
// starts all the same.
func (e *Engine) checkGroup() error {
	client, err := kafka.New(e.kafka, e.log)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(e.ctx, command.DialTimeout)
	defer cancel()
	group := e.cfg.Scanner.Group
	claim, err := kafka.GroupClaim(ctx, client, group, e.cfg.ReadTopics()...)
	if owner := claim.Installation; err == nil && owner != "" && owner != e.installation {
		return fmt.Errorf("the consumer group %s belongs to installation %s, and the database (mysql.dsn) is %s: set scanner.group, intake.topics, reports.topic and results.topic to names of this installation's own; if the other one is gone for good, delete the group", group, owner, e.installation)
	}
	if err == nil {
		err = e.named(client).Replaced(ctx, claim)
	}
	if errors.Is(err, kafka.ErrOlderCopy) {
		return err
	}
	if err != nil {
		e.log.Warn("whose the consumer group is, Kafka or the database does not say: the scanner joins it", zap.String("group", group), zap.Error(err))
	}
	return e.checkStrangers(client)
}
