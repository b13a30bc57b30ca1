// Package service runs the services. A command names a service's parts, Serve opens the resources,
// runs the parts and stops them, and the settings become connections. Commands use the same
// connections without a service.
package service

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/console"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/ops"
	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
)

// Service is one process: the engines of its databases, and one HTTP port.
type Service struct {
	ctx    context.Context // ends when the program is told to stop
	cfg    *config.Config
	kind   string // the command: scanner, dispatcher, all or dev
	log    *zap.Logger
	reg    *prometheus.Registry
	kafka  kafka.Config
	guard  *access.Guard
	http   *ops.Server
	life   *lifecycle
	in     atomic.Pointer[[]api.Intake] // with the limits that are in force
	tracer *tracing.Tracer
	shards []*shard                   // by number
	stages []func(*Engine) error      // what each engine adds to its parts
	local  func(e *Engine) *api.Local // the API's backend
	homes  shardmap.Known             // which database has which target
	forgot time.Time                  // when tasks that have followed were last forgotten; part moves alone

	mu     sync.Mutex             // guards the following
	closes []func()               // in the order of opening
	now    *config.Config         // what is in force
	take   []func(*config.Config) // what its parts take over from a configuration that is read again
}

// open opens every service's resources, the port first, so that a wrong port is noticed at once.
// The access log, if on, goes to stdout.
func open(ctx context.Context, cfg *config.Config, kind string, log *zap.Logger, stdout io.Writer, stages ...func(*Engine) error) (s *Service, err error) {
	s = &Service{ctx: ctx, cfg: cfg, now: cfg, kind: kind, log: log, reg: ops.NewRegistry(), stages: stages}
	for k := range cfg.Databases() {
		member := api.NewMember(k, nil)
		member.Server = store.Address(cfg.Shard(k).MySQL.DSN)
		s.shards = append(s.shards, &shard{number: k, works: slices.Contains(cfg.Engines(), k), member: member})
	}
	s.reg.MustRegister(buildInfo())
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	s.tracer = tracing.Start(ctx, command.Version(), log)
	s.onClose(s.tracer.Stop)
	ocfg, err := opsConfig(cfg, s.common, log)
	if err != nil {
		return s, err
	}
	if cfg.HTTP.AccessLog {
		signal.Ignore(syscall.SIGPIPE) // the program that reads the lines may end
		ocfg.AccessLog = command.NewLogger(config.Log{Level: "info", Format: "json"}, stdout)
	}
	s.reg.MustRegister(ocfg.Guard.Collectors()...)
	all := s.reg
	if len(s.shards) > 1 {
		all = prometheus.NewRegistry()
		all.MustRegister(s.reg)
	}
	s.guard, s.http = ocfg.Guard, ops.New(ocfg, all, log)
	s.life = &lifecycle{log: log, stopTimeout: cfg.StopTimeout, stopping: s.http.Stopping}
	if err := s.http.Listen(); err != nil {
		return s, err
	}
	s.onClose(func() { _ = s.http.Close() })
	if s.kafka, err = command.KafkaConfig(cfg, log); err != nil {
		return s, err
	}
	s.kafka.Now = s.time
	s.take = append(s.take, func(cfg *config.Config) { _ = s.takeLimits(cfg) }) // the rules of URLs are those of the start
	if len(s.shards) > 1 {
		if err = s.takeLimits(cfg); err == nil {
			err = s.mountAPI()
		}
		if err == nil {
			s.several(all)
		}
		return s, err
	}
	e := s.newEngine(ctx, s.shards[0])
	s.onClose(e.close)
	if err := e.open(); err != nil {
		return s, err
	}
	if err = s.takeLimits(cfg); err != nil {
		return s, err
	}
	if err = s.mountAPI(); err != nil {
		return s, err
	}
	s.begin(e)
	return s, nil
}

func (s *Service) mountAPI() error {
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
	s.http.Check("kafka", func(ctx context.Context) error { return kafka.Ping(ctx, producer) }, s.cfg.Kafka.Brokers...)
	s.local = func(e *Engine) *api.Local {
		return Local(e.cfg, e.store, e.index, "api", func(context.Context) (*kgo.Client, error) { return producer, nil }, e.log)
	}
	// An answer in an aborted transaction does not count.
	answers := api.NewAnswers(s.cfg.Results.Topic, func() (*kgo.Client, error) {
		return kafka.NewReader(s.kafka, s.log)
	}, s.log)
	s.onClose(answers.Close)
	var members []*api.Member
	for _, sh := range s.shards {
		members = append(members, sh.member)
	}
	fleet := api.NewFleet(members, &s.homes)
	s.life.add("operations", api.NewOperator(fleet, s.log).Run)
	api.Mount(s.http.Mux(), fleet, api.NewPublisher(producer, alone), api.Config{Version: command.Version(), Intakes: func() []api.Intake { return *s.in.Load() }, Answers: answers})
	console.Mount(s.http.Mux(), command.Version())
	s.life.add("refusals", s.noteRefusals) // stops after http
	s.life.add("issuer", func(ctx context.Context) error { s.guard.Run(ctx); return nil })
	s.life.add("http", s.http.Run)
	return nil
}

func (s *Service) onClose(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closes = append(s.closes, f)
}

func (s *Service) close() {
	for _, f := range slices.Backward(s.closes) {
		f()
	}
	s.closes = nil
}

// run serves until ctx ends or a part fails, then stops and closes everything.
func (s *Service) run(ctx context.Context) error {
	s.log.Info("started", zap.String("service", s.kind), zap.String("version", command.Version()), zap.String("http", s.http.Addr()))
	if len(s.shards) == 1 {
		s.home().report()
	}
	err := s.life.run(ctx)
	if errors.Is(err, errStuck) || errors.Is(err, kafka.ErrOlderCopy) {
		s.closes = nil // closing could block on a stuck part; the process ends anyway
	}
	return err
}

// opsConfig configures a service's HTTP server. common is asked once the service has its store.
func opsConfig(cfg *config.Config, common func() console.Common, log *zap.Logger) (ops.Config, error) {
	h := cfg.HTTP
	out := ops.Config{Addr: h.Addr, OpsAddr: cfg.Ops.Addr, MaxConns: h.MaxConns, Pprof: h.Pprof, GuardMetrics: cfg.Metrics.NeedToken}
	if h.TLS.Enabled {
		if h.TLS.Cert == "" {
			return out, command.Usage("http.tls.enabled needs a certificate in a service: set http.tls.cert and http.tls.key to PEM files")
		}
		if _, err := tls.LoadX509KeyPair(h.TLS.Cert, h.TLS.Key); err != nil {
			return out, command.Usage("http.tls.cert and http.tls.key: %v: name the PEM files of one pair", err)
		}
		out.Certificate, out.Key = h.TLS.Cert, h.TLS.Key
	}
	acfg := access.Config{Tokens: h.Tokens, Hosts: h.Hosts, Intakes: cfg.IntakeNames()}
	var err error
	if acfg.JWT, err = jwtConfig(cfg, log); err != nil {
		return out, err
	}
	acfg.SignIn = access.SignIn{ClientID: h.SignIn.ClientID, Scopes: h.SignIn.Scopes, PublicURL: h.PublicURL}
	if acfg.SignIn.Secret, err = command.ClientSecret(cfg, log); err != nil {
		return out, err
	}
	if out.Guard, err = access.New(acfg, log); err != nil {
		return out, command.UsageError{Err: err}
	}
	out.Front = console.NewSessions(console.Config{Guard: out.Guard, Common: common, PublicURL: h.PublicURL, Version: command.Version(), Log: log}).Front
	return out, nil
}

func jwtConfig(cfg *config.Config, log *zap.Logger) (access.JWT, error) {
	j := cfg.HTTP.JWT
	t, err := command.TLSConfig("http.jwt", config.TLS{Enabled: true, CA: j.CA}, log)
	return access.JWT{Issuer: j.Issuer, Audience: j.Audience, GroupsClaim: j.GroupsClaim, NameClaim: j.NameClaim, KeysMaxAge: j.KeysMaxAge, TLS: t}, err
}

// takeLimits puts the limits of the intakes into force, with this installation's rules for URLs.
// Commands do not know these rules: their settings need not be the services'.
func (s *Service) takeLimits(cfg *config.Config) error {
	guard, err := callback.NewGuard(callbackRules(cfg.Callback))
	if err != nil {
		return command.UsageError{Err: err}
	}
	out := Intakes(cfg)
	for i := range out {
		out[i].Limits.Callbacks, out[i].Now = guard.Check, s.kafka.Now
	}
	s.in.Store(&out)
	return nil
}

// Refused sign-ins and tokens reach the audit log merged, once a minute: a flood fills nothing.
const (
	refusalsEvery   = time.Minute
	refusalsTimeout = 5 * time.Second
	// refusedWho has blanks, unlike any token's name.
	refusedWho, refusedWhat = "not signed in", "sign-in refused"
)

func (s *Service) noteRefusals(ctx context.Context) error {
	loop.Every(ctx, refusalsEvery, s.writeRefusals)
	s.writeRefusals(context.WithoutCancel(ctx))
	return nil
}

func (s *Service) writeRefusals(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refusalsTimeout)
	defer cancel()
	err := s.guard.EachRefused(func(all []access.Refused) error {
		var entries []admin.AuditEntry
		for _, x := range all {
			entries = append(entries, admin.AuditEntry{
				Actor: admin.Actor{Who: refusedWho, Via: admin.ViaAPI}, What: refusedWhat, Count: x.Count,
				Detail: admin.AuditDetail(map[string]any{"why": x.Why, "at": x.At, "last_peer": x.Peer}),
			})
		}
		e := s.home()
		if e == nil {
			return errHomeAway
		}
		return admin.New(e.store).Audit(ctx, entries)
	})
	if err != nil {
		s.log.Warn("refused sign-ins cannot be noted in the audit log; this will be tried again", zap.Error(err))
	}
}

func buildInfo() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "notyet", Name: "build_info", Help: "1; its labels name the program's version, and the Go version that made it.",
		ConstLabels: prometheus.Labels{"version": command.Version(), "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

// Mistakes returns the mistakes behind the settings, such as missing files, as a service and its
// parts find them one by one.
func Mistakes(cfg *config.Config, dispatches bool) (found []error) {
	log := zap.NewNop()
	note := func(_ any, err error) {
		if err != nil {
			found = append(found, err)
		}
	}
	note(opsConfig(cfg, nil, log))
	note(command.KafkaConfig(cfg, log))
	for k := range cfg.Databases() {
		note(command.StoreConfig(cfg.Shard(k), log))
	}
	if cfg.Index.Kind == config.KindRedis {
		note(command.IndexConfig(cfg, log))
	}
	if !dispatches {
		note(callback.NewGuard(callbackRules(cfg.Callback)))
		return found
	}
	note(ElectionConfig(cfg, log))
	sending, err := callbackConfig(cfg.Callback)
	if err == nil {
		var sender *callback.Sender
		if sender, err = callback.New(sending, log, prometheus.NewRegistry()); err == nil {
			sender.Close()
		}
	}
	note(nil, err)
	return found
}
