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
func (s *Service) AddScanner() error {
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
	s.watchCopies()
	s.life.add("scanner", s.onKafka(sc.Run))
	return nil
}

func (s *Service) openSendLog() (*sendlog.Log, error) {
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
func (s *Service) addDispatcher(members election.Source, memberID string, sent *sendlog.Log) error {
	callbacks, err := s.addCallbacks()
	if err != nil {
		return err
	}
	d := s.cfg.Dispatcher
	d.UndeliverableAfter = cmp.Or(d.UndeliverableAfter, -1) // one attempt: the dispatcher takes 0 as the default
	disp, err := dispatcher.New(dispatcher.Deps{Kafka: s.kafka, Store: s.store, Index: s.index, Members: members, SendLog: sent, Metrics: s.reg, Log: s.log, Callbacks: callbacks, Tracer: s.tracer}, dispatcher.Config{
		MemberID: memberID, Results: s.cfg.Results.Topic, Group: s.cfg.Scanner.Group, Read: s.cfg.ReadTopics(), LookAhead: d.LookAhead, BurstLookAhead: max(d.BurstLookAhead, 1), Window: s.cfg.Window,
		StageTasks: d.StageTasks, StageBytes: int(d.StageBytes), CreateTargets: s.kafka.AllowAutoTopicCreation, DrainTimeout: d.DrainTimeout, UndeliverableAfter: d.UndeliverableAfter, Retention: d.Retention, DeadRetention: s.cfg.DeadLetters.Retention, AuditRetention: s.cfg.Audit.Retention,
		MisfireAfter: s.cfg.Timers.MisfireAfter, Targets: s.cfg.Metrics.Targets, TopTargets: s.cfg.Metrics.TopTargets,
	})
	if err != nil {
		return fmt.Errorf("setting the dispatcher up: %w", err)
	}
	s.member, s.silent = memberID, disp.Unresponsive
	s.http.Check("dispatcher", disp.Ready)
	s.http.Hint("dispatcher's results topic", disp.ResultsReady)
	s.watchCopies()
	s.life.add("dispatcher", s.onKafka(disp.Run))
	return nil
}

// AddDispatcher adds a dispatcher with a share of the slots.
func (s *Service) AddDispatcher() error {
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

// electorate returns the election among several dispatchers. start names this start of the process,
// and ended the certainly ended ones before.
func (s *Service) electorate(start string, ended []string) (members *election.Member, err error) {
	cfg, err := ElectionConfig(s.cfg, s.log)
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
	cfg.Can, cfg.Required = store.Can(), s.store.Required
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

// addCallbacks makes the sender of HTTP callbacks. Without callback.enabled it refuses each.
func (s *Service) addCallbacks() (*callback.Sender, error) {
	cfg, err := callbackConfig(s.cfg.Callback)
	if err != nil {
		return nil, err
	}
	cfg.Now = s.kafka.Now
	sender, err := callback.New(cfg, s.log, s.reg)
	if err != nil {
		return nil, command.UsageError{Err: err}
	}
	s.onClose(sender.Close)
	s.take = append(s.take, func(cfg *config.Config) {
		sender.Limit(cfg.Callback.MaxInFlight, cfg.Callback.MaxInFlightTotal, cfg.Callback.MaxTimeout)
	})
	return sender, nil
}

// onKafka returns a part that begins once Kafka has proven to be the installation's: a scanner
// would take another cluster's requests, and a dispatcher would deliver to another cluster's
// topics.
func (s *Service) onKafka(run func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		client, err := kafka.New(s.kafka, s.log)
		if err != nil {
			return err
		}
		defer client.Close()
		for ctx.Err() == nil {
			err := CheckKafka(ctx, s.store, client, false)
			if err == nil {
				if err := s.named(client).Compare(ctx); errors.Is(err, kafka.ErrOlderCopy) {
					return err
				}
				break
			}
			if errors.Is(err, admin.ErrOtherKafka) {
				return err
			}
			s.log.Warn("looking which Kafka cluster this is failed, trying again: nothing is taken or delivered before", zap.Error(err))
			loop.Rest(ctx, time.Second)
		}
		client.Close()
		return run(ctx)
	}
}

// checkGroup refuses a consumer group with offsets of another installation, or of a newer copy of
// the database: its scanners would lose partitions to this one. Without an answer, the scanner
// starts all the same.
func (s *Service) checkGroup() error {
	client, err := kafka.New(s.kafka, s.log)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), command.DialTimeout)
	defer cancel()
	group := s.cfg.Scanner.Group
	claim, err := kafka.GroupClaim(ctx, client, group, s.cfg.ReadTopics()...)
	if owner := claim.Installation; err == nil && owner != "" && owner != s.installation {
		return fmt.Errorf("the consumer group %s belongs to installation %s, and the database (mysql.dsn) is %s: set scanner.group, intake.topics, reports.topic and results.topic to names of this installation's own; if the other one is gone for good, delete the group", group, owner, s.installation)
	}
	if err == nil {
		err = s.named(client).Replaced(ctx, claim)
	}
	if errors.Is(err, kafka.ErrOlderCopy) {
		return err
	}
	if err != nil {
		s.log.Warn("whose the consumer group is, Kafka or the database does not say: the scanner joins it", zap.String("group", group), zap.Error(err))
	}
	return s.checkStrangers(client)
}
