package main

import (
	"cmp"
	"context"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/letters"
)

// tasks answers queries about tasks, from the database or through a service.
type tasks interface {
	Task(ctx context.Context, topic, id string) (api.Task, error)
	Tasks(ctx context.Context, f api.TaskFilter) (api.Tasks, error)
	Forecast(ctx context.Context, f api.ForecastFilter) (api.Forecast, error)
	CancelMany(ctx context.Context, r api.CancelMany) (api.CancelledMany, error)
}

// deadLetters reads, replays and deletes dead letters.
type deadLetters interface {
	deadletter.Pager
	deadletter.Purger
	deadletter.Source
	Letter(ctx context.Context, id int64) (deadletter.Letter, error)
	CountLetters(ctx context.Context, f letters.Filter) (int64, error)
}

var (
	_ tasks       = (*api.Local)(nil)
	_ deadLetters = (*api.Local)(nil)
	_ tasks       = (*api.Client)(nil)
	_ deadLetters = (*api.Client)(nil)
)

// installation answers who changed what, and what runs, and changes the number of slots.
type installation interface {
	Audit(ctx context.Context, f api.AuditFilter) (api.AuditLog, error)
	Cluster(ctx context.Context) (api.Cluster, error)
	Slots(ctx context.Context) (api.SlotsChange, error)
	SetSlots(ctx context.Context, n int) (api.SlotsChange, error)
}

var (
	_ installation = (*api.Local)(nil)
	_ installation = (*api.Client)(nil)
)

// timers answers queries about timers, and makes runs.
type timers interface {
	Timer(ctx context.Context, topic, id string) (api.Timer, error)
	Timers(ctx context.Context, f api.TimerFilter) (api.Timers, error)
	RunTimer(ctx context.Context, topic, id string, r api.RunTimer) (api.TimerRun, error)
	AuditTimer(ctx context.Context, topic, id string, f api.TimerAuditFilter) (api.TimerAudit, error)
	BackfillTimer(ctx context.Context, topic, id string, r api.Backfill) (api.Backfilled, error)
}

var (
	_ timers = (*api.Local)(nil)
	_ timers = (*api.Client)(nil)
)

// targets pauses and limits targets.
type targets interface {
	Targets(ctx context.Context, allowed func(topic string) bool) (api.Targets, error)
	ChangeTarget(ctx context.Context, topic string, c api.TargetChange) (api.TargetPolicy, error)
}

var (
	_ targets = (*api.Local)(nil)
	_ targets = (*api.Client)(nil)
)

// backend is one or the other.
type backend struct {
	tasks
	deadLetters
	installation
	timers
	targets
	close func()
}

func (a *app) backend(s command.Settings, more command.Servers) (*backend, error) {
	cfg, err := a.Client(s, more)
	if err != nil {
		return nil, err
	}
	if cfg.MySQL.DSN == "" {
		ccfg, err := clientConfig(cfg)
		if err != nil {
			return nil, err
		}
		c := api.NewClient(ccfg)
		return &backend{tasks: c, deadLetters: c, installation: c, timers: c, targets: c, close: func() {}}, nil
	}
	return a.direct(cfg)
}

func (a *app) direct(cfg *config.Config) (*backend, error) {
	log := command.NewLogger(cfg.Log, a.Stderr)
	st, err := openStore(a.Ctx, cfg, zap.NewNop()) // everything that it would log is also in its errors
	if err != nil {
		return nil, err
	}
	closes := []func(){func() { _ = st.Close() }}
	var ix deadletter.Index // without one, dispatchers find replayed tasks at their next look
	var unindex func(context.Context, []store.Place)
	if cfg.Index.Kind == config.KindRedis && cfg.IsSet("redis.addrs") || cfg.Index.Kind == config.KindMySQL && cfg.IsSet("kafka.brokers") {
		opened, err := openIndex(a.Ctx, cfg, st, log)
		if err != nil {
			closes[0]()
			return nil, err
		}
		ix, unindex, closes = opened, unindexer(opened, log), append(closes, opened.Close)
	}
	local := api.NewLocal(st, deadletter.NewLocal(st, ix, operator(), log))
	local.Unindex = unindex
	local.Lag = lagOf(cfg, st, func(ctx context.Context) (*kgo.Client, error) {
		client, err := publisher(ctx, cfg, log)
		if err == nil {
			closes = append(closes, client.Close)
		}
		return client, err
	})
	return &backend{tasks: local, deadLetters: local, installation: local, timers: local, targets: local, close: func() {
		for _, f := range closes {
			f()
		}
	}}, nil
}

// instant parses RFC 3339, Unix milliseconds, or a duration from now in the given direction. "" is
// 0.
func instant(flag, text string, direction time.Duration) (int64, error) {
	if text == "" {
		return 0, nil
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return ms, notSeconds(flag, ms)
	}
	if d, err := time.ParseDuration(text); err == nil {
		return time.Now().Add(direction * d).UnixMilli(), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, command.Usage("%s %q: write RFC 3339 such as 2027-01-31T08:00:00Z, Unix milliseconds, or a duration such as 24h", flag, text)
	}
	return t.UnixMilli(), nil
}

// instantText is instant in the form that the API takes.
func instantText(flag, text string, direction time.Duration) (api.TimeText, error) {
	if text == "" {
		return "", nil
	}
	ms, err := instant(flag, text, direction)
	return api.TimeText(time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")), err
}

// dueSpan parses the flags --from and --to, which limit due times.
func dueSpan(from, to string) (first, end int64, err error) {
	first, errFrom := instant("--from", from, +1)
	end, errTo := instant("--to", to, +1)
	return first, end, cmp.Or(errFrom, errTo)
}

// notSeconds refuses Unix milliseconds before 2001, which are usually seconds by mistake.
func notSeconds(flag string, ms int64) error {
	if y2001 := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC); ms >= y2001.UnixMilli() {
		return nil
	}
	return command.Usage("%s %d: in Unix milliseconds that is %s. If these are seconds, write %d000", flag, ms, stamp(ms), ms)
}

// operator returns the user of this shell, for the audit of replays.
func operator() string {
	host, _ := os.Hostname()
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return name + "@" + host
}
