package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/doctor"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/loop"
)

type doctorCmd struct {
	asking
	Strict   bool          `help:"Exit with 1 on warnings too."`
	All      bool          `help:"Print what is well, too. --json always does."`
	Targets  []string      `help:"Target topics to look at, too." placeholder:"TOPIC,…"`
	Patience time.Duration `default:"10s" help:"How long to wait for each server."`
}

func (doctorCmd) Help() string {
	return `Looks at every server that is configured, side by side: whether it is reached, its version and clock, settings by which it
forgets what it has committed, row locks, topics and their settings, rights, the send log's disk, services alive, the OpenID
provider. Each finding
says its fix. A server whose setting is left out is not looked at. It changes nothing but traces of its own, which it removes:
a row, an entry of the index, a znode, a file in the send log's directory.

Exit codes: 0 well, or with warnings; 1 failures (with --strict warnings too); 2 bad usage or configuration.

Examples:
  notyet doctor --config /etc/notyet.yaml
  notyet doctor --json --strict | jq '.findings[] | select(.level == "failure")'`
}

// examined is what doctor prints.
type examined struct {
	Findings []doctor.Finding `json:"findings"`
}

func (c *doctorCmd) Run(a *app) error {
	cfg, err := a.Client(c.Settings, c.Servers)
	if err != nil {
		return err
	}
	if err := command.AtLeast("--patience", c.Patience, 100*time.Millisecond); err != nil {
		return err
	}
	dcfg, err := doctorConfig(cfg)
	if err != nil {
		return err
	}
	if dcfg.Kafka == nil && dcfg.Store == nil && dcfg.Index == nil && dcfg.Election == nil && dcfg.Issuer == nil {
		return command.Usage("no server is configured: set %s", strings.Join(dispatcherServers, ", "))
	}
	for _, name := range c.Targets {
		if !slices.Contains(dcfg.Targets, name) {
			dcfg.Targets = append(dcfg.Targets, name)
		}
	}
	dcfg.Patience = c.Patience
	out := examined{doctor.Look(a.Ctx, dcfg, zap.NewNop())}
	if err := a.Ctx.Err(); err != nil {
		return err
	}
	if c.JSON {
		err = a.JSON(out)
	} else {
		c.print(a, out.Findings)
	}
	if worst := doctor.Worst(out.Findings); err == nil && (worst == doctor.Failure || worst == doctor.Warning && c.Strict) {
		err = command.ErrReported
	}
	return err
}

func (c *doctorCmd) print(a *app, all []doctor.Finding) {
	counts := map[doctor.Level]int{}
	for _, f := range all {
		counts[f.Level]++
		if f.Level == doctor.OK && !c.All {
			continue
		}
		fmt.Fprintf(a.Stdout, "%-8s %s: %s: %s\n", f.Level, f.Check, command.Plain(f.Where), command.Plain(f.Found))
		if f.Fix != "" {
			fmt.Fprintf(a.Stdout, "         fix: %s\n", command.Plain(f.Fix))
		}
	}
	fmt.Fprintf(a.Stdout, "%d failures, %d warnings, %d notes, %d well\n", counts[doctor.Failure], counts[doctor.Warning], counts[doctor.Note], counts[doctor.OK])
}

// doctorConfig says how to reach the servers whose settings are set.
func doctorConfig(cfg *config.Config) (doctor.Config, error) {
	out := doctor.Config{Settings: cfg, Version: command.Version(), Targets: cfg.OwnTargets()}
	kcfg, err := command.KafkaConfig(cfg, zap.NewNop())
	if err != nil {
		return out, err
	}
	scfg, err := command.StoreConfig(cfg, zap.NewNop())
	if err != nil {
		return out, err
	}
	icfg, err := command.IndexConfig(cfg, zap.NewNop())
	if err != nil {
		return out, err
	}
	ecfg, err := electionConfig(cfg, zap.NewNop())
	if err != nil {
		return out, err
	}
	jcfg, err := jwtConfig(cfg, zap.NewNop())
	if err != nil {
		return out, err
	}
	if jcfg.Issuer != "" {
		out.Issuer = &jcfg
	}
	if cfg.IsSet("kafka.brokers") {
		out.Kafka = &kcfg
	}
	if cfg.IsSet("mysql.dsn") {
		out.Store = &scfg
	}
	if cfg.Index.Kind == config.KindRedis && cfg.IsSet("redis.addrs") {
		out.Index = &icfg
	}
	switch {
	case cfg.Election.Kind == config.KindMySQL:
		out.Disk = out.Store != nil
	case cfg.IsSet("zookeeper.servers"):
		out.Election, out.Disk = &ecfg, true
	}
	return out, nil
}

// examineEvery is how often a service looks at its servers again: settings are changed while it runs.
const examineEvery = time.Hour

// selfExamination has a service look at its own servers, at its start and from time to time. It logs each finding once.
type selfExamination struct {
	cfg      doctor.Config
	settings atomic.Pointer[config.Config] // that are in force
	gauge    *prometheus.GaugeVec
	log      *zap.Logger
	logged   map[doctor.Finding]bool
}

func (s *service) examineItself() error {
	cfg, err := doctorConfig(s.cfg)
	if err != nil {
		return err
	}
	cfg.Running, cfg.Disk = true, s.member != ""
	if s.member == "" {
		cfg.Election = nil
	}
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "notyet", Name: "doctor_findings",
		Help: "What this process finds wrong with its servers, as notyet doctor does, by check and level (failure, warning)."}, []string{"check", "level"})
	s.reg.MustRegister(gauge)
	e := &selfExamination{cfg: cfg, gauge: gauge, log: s.log, logged: map[doctor.Finding]bool{}}
	e.settings.Store(cfg.Settings)
	s.take = append(s.take, e.settings.Store)
	s.life.add("self-examination", e.run)
	return nil
}

func (e *selfExamination) run(ctx context.Context) error {
	e.look(ctx)
	loop.Every(ctx, examineEvery, e.look)
	return nil
}

func (e *selfExamination) look(ctx context.Context) {
	cfg := e.cfg
	cfg.Settings = e.settings.Load()
	e.note(doctor.Look(ctx, cfg, zap.NewNop()), ctx.Err())
}

func (e *selfExamination) note(all []doctor.Finding, stopped error) {
	if stopped != nil {
		return // what did not answer was not waited for
	}
	e.gauge.Reset()
	for _, f := range all {
		if f.Level != doctor.Failure && f.Level != doctor.Warning {
			continue
		}
		e.gauge.WithLabelValues(f.Check, string(f.Level)).Inc()
		if e.logged[f] {
			continue
		}
		e.logged[f] = true
		e.log.Warn("doctor: "+f.Check, zap.String("level", string(f.Level)), zap.String("where", f.Where), zap.String("found", f.Found), zap.String("fix", f.Fix))
	}
}
