package service

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store/intake"
)

// Serve opens a service, adds its parts and runs it until the program is stopped. The configuration
// is read at the start and at each SIGHUP.
func Serve(a *command.App, name string, read func() (*config.Config, error), parts ...func(*Engine) error) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // before the service opens: SIGHUP would end the process until then
	defer signal.Stop(hangups)
	cfg, err := read()
	if err != nil {
		return err
	}
	log, level := command.NewLevelLogger(cfg.Log, a.Stderr)
	s, err := open(a.Ctx, cfg, name, log, a.Stdout, parts...)
	if err != nil {
		return err
	}
	defer s.close()
	s.take = append(s.take, func(cfg *config.Config) { _ = level.UnmarshalText([]byte(cfg.Log.Level)) }) // already checked
	for _, add := range parts {
		if len(s.shards) > 1 {
			break // each engine adds them once it is open
		}
		if err := add(s.home()); err != nil {
			return err
		}
	}
	if err := s.examineItself(); err != nil {
		return err
	}
	s.rereadAt(hangups, read)
	return s.run(a.Ctx)
}

// Dev runs a scanner and a dispatcher with all slots, on the servers of notyet dev, which make
// topics on first use. ready is called once everything is.
func Dev(a *command.App, cfg *config.Config, log *zap.Logger, ready func(addr string, intakes []api.Intake)) error {
	s, err := open(a.Ctx, cfg, "dev", log, a.Stdout)
	if err != nil {
		return err
	}
	defer s.close()
	e := s.home()
	s.kafka.AllowAutoTopicCreation, e.kafka.AllowAutoTopicCreation = true, true
	if err := e.AddScanner(); err != nil {
		return err
	}
	member := fmt.Sprintf("dev-%d-%d", os.Getpid(), time.Now().UnixMilli())
	sent, err := e.openSendLog()
	if err != nil {
		return err
	}
	if err := e.addDispatcher(election.NewLocal(member, e.store.SlotCount, intake.New(e.store).Line()), member, sent); err != nil {
		return err
	}
	s.life.add("greeting", func(ctx context.Context) error {
		for !s.http.Ready() && ctx.Err() == nil {
			loop.Rest(ctx, 5*time.Millisecond)
		}
		if ctx.Err() == nil {
			ready(s.http.Addr(), *s.in.Load())
		}
		<-ctx.Done()
		return nil
	})
	return s.run(a.Ctx)
}

// rereading reads the configuration of a service again. The service takes over live settings, and
// names the rest. Files of secrets and certificates need no signal: internal/reload looks at them.
type rereading struct {
	service     *Service
	read        func() (*config.Config, error)
	now         *config.Config // what is in force
	at, refused prometheus.Gauge
}

// rereadAt has the service read the configuration again at each signal.
func (s *Service) rereadAt(hangups <-chan os.Signal, read func() (*config.Config, error)) {
	r := &rereading{
		service: s, read: read, now: s.cfg,
		at:      prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "notyet", Name: "config_read_timestamp_seconds", Help: "When the service last read its configuration and took it over, in Unix seconds."}),
		refused: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "notyet", Name: "config_refused", Help: "1 if the configuration was wrong when the service last read it again; the one before stays in force. Otherwise 0."}),
	}
	s.reg.MustRegister(r.at, r.refused)
	r.at.SetToCurrentTime()
	s.life.add("settings", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hangups:
				r.again()
			}
		}
	})
}

func (r *rereading) again() {
	next, err := r.read()
	if err != nil {
		r.refused.Set(1)
		r.service.log.Error("the configuration is wrong, and nothing of it is taken over; the one before stays in force", zap.Error(err))
		return
	}
	now, taken, restart := r.now.Take(next)
	r.service.takeOver(now)
	r.now = now
	r.refused.Set(0)
	r.at.SetToCurrentTime()
	r.service.log.Info("the configuration was read again", zap.Strings("taken_over", taken))
	if len(restart) > 0 {
		r.service.log.Warn("settings have changed that need a restart; until then those before stay in force", zap.Strings("settings", restart))
	}
}
