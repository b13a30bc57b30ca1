package service

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/notyet/notyet/doctor"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/loop"
)

// DoctorConfig says how to reach the servers with settings.
func DoctorConfig(cfg *config.Config) (doctor.Config, error) {
	out := doctor.Config{Settings: cfg, Version: command.Version(), Targets: cfg.OwnTargets()}
	log := zap.NewNop()
	kcfg, errKafka := command.KafkaConfig(cfg, log)
	scfg, errStore := command.StoreConfig(cfg, log)
	icfg, errIndex := command.IndexConfig(cfg, log)
	ecfg, errElection := ElectionConfig(cfg, log)
	jcfg, errIssuer := jwtConfig(cfg, log)
	if err := cmp.Or(errKafka, errStore, errIndex, errElection, errIssuer); err != nil {
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

// DoctorConfigs says how to look at each database and its own things. Shared servers are looked at
// with the first.
func DoctorConfigs(cfg *config.Config) ([]doctor.Config, error) {
	var out []doctor.Config
	for k := range cfg.Databases() {
		one, err := DoctorConfig(cfg.Shard(k))
		if err != nil {
			return nil, err
		}
		if k > 0 {
			one.Kafka, one.Index, one.Issuer = nil, nil, nil
		}
		out = append(out, one)
	}
	return out, nil
}

// Examine looks at all side by side. Where there are several databases, a finding names its own.
func Examine(ctx context.Context, all []doctor.Config) []doctor.Finding {
	found := make([][]doctor.Finding, len(all))
	var group sync.WaitGroup
	for k, cfg := range all {
		group.Go(func() { found[k] = doctor.Look(ctx, cfg, zap.NewNop()) })
	}
	group.Wait()
	var out []doctor.Finding
	for k, findings := range found {
		for _, f := range findings {
			if k > 0 && f.Check == "settings" {
				continue // the first has said it
			}
			if own := strings.HasPrefix(f.Check, "mysql.") || k > 0; own && len(all) > 1 {
				f.Where = fmt.Sprintf("shard %d: %s", k, f.Where)
			}
			out = append(out, f)
		}
	}
	doctor.Sort(out)
	return out
}

// examineEvery is how often a service looks at its servers again, since their settings can change.
const examineEvery = time.Hour

// selfExamination has a service look at its own servers from time to time, and log new findings.
type selfExamination struct {
	all      []doctor.Config               // by database
	settings atomic.Pointer[config.Config] // that are in force
	gauge    *prometheus.GaugeVec
	log      *zap.Logger
	logged   map[doctor.Finding]bool
}

func (s *Service) examineItself() error {
	all, err := DoctorConfigs(s.cfg)
	if err != nil {
		return err
	}
	for i := range all {
		works := s.kind != "scanner" && s.shards[i].works
		all[i].Running, all[i].Disk = true, works
		if !works {
			all[i].Election = nil
		}
	}
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "notyet", Name: "doctor_findings",
		Help: "What this process finds wrong with its servers, as notyet doctor does, by check and level (failure, warning)."}, []string{"check", "level"})
	s.reg.MustRegister(gauge)
	e := &selfExamination{all: all, gauge: gauge, log: s.log, logged: map[doctor.Finding]bool{}}
	e.settings.Store(s.cfg)
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
	all := slices.Clone(e.all)
	for i := range all {
		all[i].Settings = e.settings.Load().Shard(i)
	}
	e.note(Examine(ctx, all), ctx.Err())
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
