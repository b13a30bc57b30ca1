package service

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/console"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/ops"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/shards"
)

// shard is one database of the installation, as this process has it.
type shard struct {
	number int
	works  bool // the process's stages work for it; otherwise the API alone asks it
	member *api.Member
	engine atomic.Pointer[Engine] // nil: it is not open

	// Where there are several databases:
	checks  *ops.Part // nil unless it works
	up      prometheus.Gauge
	metrics atomic.Pointer[prometheus.Registry] // of its engine
	why     atomic.Pointer[error]               // why it is not open
}

// Describe implements prometheus.Collector. The metrics come and go with the engine.
func (sh *shard) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (sh *shard) Collect(out chan<- prometheus.Metric) {
	if reg := sh.metrics.Load(); reg != nil {
		reg.Collect(out)
	}
}

// several prepares for more than one database. Each is opened, started and, after a failure of its
// own, started again while the others work on. all gets the metrics of every engine.
func (s *Service) several(all *prometheus.Registry) {
	up := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "notyet", Name: "shard_up",
		Help: "1 if this process reaches the database of this number in mysql.shards, otherwise 0."}, []string{"shard"})
	s.reg.MustRegister(up)
	for _, sh := range s.shards {
		label := strconv.Itoa(sh.number)
		sh.up = up.WithLabelValues(label)
		prometheus.WrapRegistererWith(prometheus.Labels{"shard": label}, all).MustRegister(sh)
		address := store.Address(s.cfg.Shard(sh.number).MySQL.DSN)
		if sh.works {
			sh.checks = s.http.Part("shard " + label)
		} else {
			s.http.Hint("mysql shard "+label, sh.ping, address)
		}
	}
	s.life.add("shards", s.superviseAll)
	s.life.add("rules", func(ctx context.Context) error { loop.Every(ctx, rulesEvery, s.tendRules); return nil })
	s.life.add("moves", func(ctx context.Context) error { loop.Every(ctx, rulesEvery, s.follow); return nil })
}

func (sh *shard) ping(ctx context.Context) error {
	if e := sh.engine.Load(); e != nil {
		return e.store.Ping(ctx)
	}
	if why := sh.why.Load(); why != nil {
		return *why
	}
	return errNotOpen
}

var errNotOpen = errors.New("it is not open yet")

// superviseAll runs the engines until ctx ends, or one has found a fault of this process. It does
// not wait for the others where the process may send nothing more.
func (s *Service) superviseAll(ctx context.Context) (fault error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(s.shards))
	for _, sh := range s.shards {
		go func() { ended <- s.supervise(ctx, sh) }()
	}
	for range s.shards {
		err := <-ended
		if err != nil && fault == nil {
			fault = err
		}
		stop()
		if errors.Is(err, kafka.ErrOlderCopy) || errors.Is(err, errStuck) {
			return err
		}
	}
	return fault
}

// The rests between two starts of an engine.
const firstRest, longestRest, calm = time.Second, 10 * time.Second, time.Minute

// supervise starts the engine again and again.
func (s *Service) supervise(ctx context.Context, sh *shard) error {
	for failures := 1; ; failures++ {
		began := time.Now()
		err := s.runEngine(ctx, sh)
		if ctx.Err() != nil || ofProcess(err) {
			return err
		}
		if time.Since(began) > calm {
			failures = 1
		}
		sh.why.Store(&err)
		if sh.works {
			sh.checks.Clear()
			sh.checks.Check("mysql", func(context.Context) error { return err }, store.Address(s.cfg.Shard(sh.number).MySQL.DSN))
		}
		s.log.Warn("this service does not work for one of its databases, trying again; its targets wait, others do not", zap.Int("shard", sh.number), zap.Error(err))
		if loop.Rest(ctx, loop.Pause(failures, firstRest, longestRest)) != nil {
			return nil
		}
	}
}

// ofProcess reports whether an error is the fault of this process: a restart with other settings,
// or of another release, is needed, or something does not stop. The other errors are of one
// database.
func ofProcess(err error) bool {
	var usage command.UsageError
	for _, of := range []error{errStuck, kafka.ErrOlderCopy, store.ErrRequired, admin.ErrOtherElection, admin.ErrOtherIndex, admin.ErrOtherTarget, admin.ErrOtherKafka} {
		if errors.Is(err, of) {
			return true
		}
	}
	return errors.As(err, &usage)
}

// runEngine returns once the engine has ended. Its resources stay open for the API while the
// process stops.
func (s *Service) runEngine(ctx context.Context, sh *shard) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("database %d: %w", sh.number, err)
		}
	}()
	e := s.newEngine(ctx, sh)
	if sh.works {
		sh.checks.Clear()
		e.checks = sh.checks
	}
	err = e.open()
	for _, add := range s.stages {
		if err == nil && sh.works {
			err = add(e)
		}
	}
	if err != nil {
		e.close()
		if ctx.Err() != nil && !ofProcess(err) {
			return nil
		}
		return err
	}
	e.life.add("connection", e.watch)
	if sh.works {
		e.report()
	}
	s.begin(e)
	err = e.life.run(ctx)
	sh.up.Set(0)
	switch {
	case errors.Is(err, errStuck) || errors.Is(err, kafka.ErrOlderCopy): // closing could block
	case ctx.Err() != nil:
		s.onClose(e.close)
	default:
		sh.member.Set(nil)
		sh.engine.Store(nil)
		sh.metrics.Store(nil)
		e.close()
	}
	return err
}

// watch shows whether the database answers. It ends the engine where the database was removed from
// the installation, or turns out to be another one's, once the first database has said which
// installation this is.
func (e *Engine) watch(ctx context.Context) (foreign error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	known := e.shard.number == 0
	look := func(ctx context.Context) {
		bound, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		err := e.store.Ping(bound)
		up := 0.0
		if err == nil {
			up = 1
		}
		e.shard.up.Set(up)
		if e.shard.number > 0 && err == nil {
			if _, _, gone := shards.New(e.store).Number(bound); errors.Is(gone, shards.ErrRemoved) {
				foreign = gone
				end()
				return
			}
		}
		home := e.process.home()
		if known || err != nil || home == nil {
			return
		}
		err = Joined(bound, home.installation, e.store, e.shard.number, len(e.process.shards))
		known = err == nil
		if errors.Is(err, shards.ErrOtherShard) && ctx.Err() == nil {
			foreign = err
			end()
		}
	}
	look(ctx)
	if foreign == nil {
		loop.Every(ctx, time.Second, look)
	}
	return foreign
}

// home returns the engine of the first database; nil: that is not open.
func (s *Service) home() *Engine { return s.shards[0].engine.Load() }

// begin puts an opened engine into use, with the settings that are in force.
func (s *Service) begin(e *Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, take := range e.take {
		take(s.now)
	}
	if len(s.shards) > 1 {
		s.readRules(e)
	}
	e.shard.member.Set(s.local(e))
	if reg, own := e.reg.(*prometheus.Registry); own && reg != s.reg {
		e.shard.metrics.Store(reg)
	}
	e.shard.engine.Store(e)
}

// takeOver puts settings into force.
func (s *Service) takeOver(cfg *config.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = cfg
	for _, take := range s.take {
		take(cfg)
	}
	for _, sh := range s.shards {
		if e := sh.engine.Load(); e != nil {
			for _, take := range e.take {
				take(cfg)
			}
		}
	}
}

// time is the home's, or that of another database while the home is not open.
func (s *Service) time() time.Time {
	for _, sh := range s.shards {
		if e := sh.engine.Load(); e != nil {
			return e.kafka.Now()
		}
	}
	return time.Now()
}

// common is the data that all processes share, in the first database.
func (s *Service) common() console.Common {
	if e := s.home(); e != nil {
		return admin.New(e.store)
	}
	return homeAway{}
}

// homeAway stands for a first database that is not open: nobody signs in anew.
type homeAway struct{}

var errHomeAway = errors.New("database 0 of mysql.shards is not open")

func (homeAway) Secret(context.Context, string) (secret [16]byte, err error) {
	return secret, errHomeAway
}
func (homeAway) EndSession(context.Context, string, int64) error             { return errHomeAway }
func (homeAway) EndedSessions(context.Context) (map[string]time.Time, error) { return nil, errHomeAway }
