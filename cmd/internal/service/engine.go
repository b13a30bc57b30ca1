package service

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/figures"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
)

// Engine is the part of a process around one database: its connection, clock, index, sign of life,
// and the stages that the process's command names.
type Engine struct {
	process *Service
	shard   *shard
	ctx     context.Context // ends when the engine has to stop
	cfg     *config.Config  // of this database
	log     *zap.Logger
	reg     prometheus.Registerer
	figures prometheus.Gatherer // what it says of its work
	checks  checks
	life    *lifecycle

	kafka  kafka.Config // with the database's clock
	store  *store.Store
	index  Index
	alive  *heartbeat // nil where no stage works for the database
	closes []func()   // in the order of opening

	installation string // its id, from the database
	copy         string // the name of the database's copy, when the engine began

	member string          // of the dispatcher; "": there is none
	silent func() []string // of the dispatcher: targets that do not answer; nil: there is none

	deliveries func() map[string]figures.Deliveries // of the dispatcher, likewise

	take []func(*config.Config) // what its stages take over from a configuration that is read again
}

// checks collects the checks of /readyz.
type checks interface {
	Check(name string, run func(ctx context.Context) error, where ...string)
	Hint(name string, run func(ctx context.Context) error, where ...string)
}

// newEngine makes the engine of a database. Of several, each has metrics and a life of its own.
func (s *Service) newEngine(ctx context.Context, sh *shard) *Engine {
	s.mu.Lock()
	cfg := s.now.Shard(sh.number)
	s.mu.Unlock()
	e := &Engine{process: s, shard: sh, ctx: ctx, cfg: cfg, log: s.log, reg: s.reg, figures: s.reg, checks: s.http, life: s.life}
	if len(s.shards) > 1 {
		e.log = s.log.With(zap.Int("shard", sh.number))
		reg := prometheus.NewRegistry()
		e.reg, e.figures, e.checks = reg, reg, nobodysChecks{}
		if sh.number == s.cfg.Engines()[0] {
			e.figures = prometheus.Gatherers{reg, s.reg} // with those of the process
		}
		e.life = &lifecycle{log: e.log, stopTimeout: s.cfg.StopTimeout, stopping: func() {}}
	}
	return e
}

// nobodysChecks are those of a database for which no stage works.
type nobodysChecks struct{}

func (nobodysChecks) Check(string, func(context.Context) error, ...string) {}
func (nobodysChecks) Hint(string, func(context.Context) error, ...string)  {}

// open opens what the stages need. After an error, close closes the rest.
func (e *Engine) open() (err error) {
	ctx, cfg := e.ctx, e.cfg
	if e.store, err = OpenStore(ctx, cfg, e.log); err != nil {
		return err
	}
	e.onClose(func() { _ = e.store.Close() })
	if err := e.store.CheckRowLocks(ctx); err != nil {
		return err
	}
	clock := e.store.Clock()
	if err := clock.Start(ctx); err != nil {
		return err
	}
	home := ""
	if first := e.process.home(); first != nil {
		home = first.installation
	}
	databases := len(e.process.shards)
	if err := Joined(ctx, home, e.store, e.shard.number, databases); err != nil {
		return err
	}
	if e.shard.works {
		if err := e.begins(ctx); err != nil {
			return err
		}
		// A database that joins meanwhile asks which services know it. One of both sees the other.
		if err := Joined(ctx, home, e.store, e.shard.number, databases); err != nil {
			return err
		}
	}
	e.life.add("clock", func(ctx context.Context) error { clock.Run(ctx); return nil })
	e.kafka = e.process.kafka
	e.kafka.Now = clock.Now
	e.reg.MustRegister(e.store.Collector())
	if e.installation, err = e.store.Installation(ctx); err != nil {
		return err
	}
	if e.copy, err = admin.New(e.store).Copy(ctx); err != nil {
		return err
	}
	if e.index, err = OpenIndex(ctx, cfg, e.store, e.log); err != nil {
		return err
	}
	e.onClose(e.index.Close)
	if x, redis := e.index.(*index.Index); redis {
		e.reg.MustRegister(x.Collector())
	}
	e.checks.Check("mysql", e.store.Ping, store.Address(cfg.MySQL.DSN))
	if cfg.Index.Kind == config.KindMySQL { // tasks are delivered without either
		e.checks.Hint("wakes", e.index.Ping, cfg.Kafka.Brokers...)
	} else {
		e.checks.Hint("redis", e.index.Ping, cfg.Redis.Addrs...)
	}
	return nil
}

// begins notes that this process works for the database.
func (e *Engine) begins(ctx context.Context) error {
	e.alive = newHeartbeat(e.store, e.process.kind, e.process.http.Addr(), e.cfg.Index.Kind, e.log)
	e.alive.service.Databases = len(e.process.shards)
	e.onClose(e.alive.leave)
	if e.process.kind != "dispatcher" {
		e.alive.intakes = Intakes(e.cfg)
	}
	return e.alive.say(ctx)
}

func (e *Engine) onClose(f func()) { e.closes = append(e.closes, f) }

func (e *Engine) close() {
	for _, f := range slices.Backward(e.closes) {
		f()
	}
	e.closes = nil
}

func (e *Engine) newRecorder() *figures.Recorder {
	id := e.alive.service.ID
	return figures.NewRecorder(figures.Config{
		Gather: e.figures, Time: e.store.Time, Targets: e.silent, Deliveries: e.deliveries,
		Save: func(ctx context.Context, minute int64, data []byte) error {
			return admin.New(e.store).SaveMinute(ctx, id, minute, data)
		},
	}, e.log)
}

// report adds the signs of life and the figures: the last to stop, for the others are at work until
// then.
func (e *Engine) report() {
	recorder := e.newRecorder()
	e.alive.service.Member, e.alive.figures = e.member, recorder.Now
	e.life.parts = append([]part{{"heartbeat", e.alive.run}, {"figures", recorder.Run}}, e.life.parts...)
}
