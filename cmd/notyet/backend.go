package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/cmd/internal/service"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/shardmap"
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
	CountDiedAgain(ctx context.Context, f letters.Filter, since int64) (int64, error)
}

// installation tells changes and running services, and changes the number of slots and the homes of
// targets.
type installation interface {
	Audit(ctx context.Context, f api.AuditFilter) (api.AuditLog, error)
	Cluster(ctx context.Context) (api.Cluster, error)
	Slots(ctx context.Context, shard int) (api.SlotsChange, error)
	SetSlots(ctx context.Context, shard, n int) (api.SlotsChange, error)
	Shards(ctx context.Context) (api.Shards, error)
	MoveTargets(ctx context.Context, r api.MoveTargets) (api.MovedTargets, error)
}

// timers answers queries about timers, and makes runs.
type timers interface {
	Timer(ctx context.Context, topic, id string) (api.Timer, error)
	Timers(ctx context.Context, f api.TimerFilter) (api.Timers, error)
	RunTimer(ctx context.Context, topic, id string, r api.RunTimer) (api.TimerRun, error)
	AuditTimer(ctx context.Context, topic, id string, f api.TimerAuditFilter) (api.TimerAudit, error)
	BackfillTimer(ctx context.Context, topic, id string, r api.Backfill) (api.Backfilled, error)
}

// targets pauses and limits targets.
type targets interface {
	Targets(ctx context.Context, f api.TargetFilter) (api.Targets, error)
	ChangeTarget(ctx context.Context, topic string, c api.TargetChange) (api.TargetPolicy, error)
}

// begun shows and stops operations, which are changes of many that the services make.
type begun interface {
	Operations(ctx context.Context, limit int, cursor string) (api.Operations, error)
	Operation(ctx context.Context, id int64) (api.Operation, error)
	StopOperation(ctx context.Context, id int64) (api.Operation, error)
}

// beginner begins operations.
type beginner interface {
	BeginCancelMany(ctx context.Context, r api.CancelMany) (api.Operation, error)
	BeginReplay(ctx context.Context, f letters.Filter) (api.Operation, error)
	BeginPurge(ctx context.Context, f letters.Filter) (api.Operation, error)
	BeginBackfill(ctx context.Context, topic, id string, r api.Backfill) (api.Operation, error)
}

// source is the databases (api.Fleet), or a service (api.Client).
type source interface {
	tasks
	deadLetters
	installation
	timers
	targets
	begun
	beginner
}

type backend struct {
	source
	close   func()
	intakes []api.Intake // of the databases
}

func (a *app) backend(c asking) (*backend, error) {
	cfg, err := a.Client(c.Settings, c.Servers)
	if err != nil {
		return nil, err
	}
	if cfg.MySQL.DSN == "" {
		ccfg, err := command.APIConfig(cfg, operator())
		if err != nil {
			return nil, err
		}
		client := api.NewClient(ccfg)
		client.OnMissing = a.missing()
		return &backend{source: client, close: func() {}}, nil
	}
	return a.direct(cfg)
}

// missing returns a warning about databases that do not answer, each named once.
func (a *app) missing() func(numbers []int) {
	told := map[int]bool{}
	return func(numbers []int) {
		for _, number := range numbers {
			if !told[number] {
				told[number] = true
				fmt.Fprintf(a.Stderr, "warning: database %d does not answer: what it holds is missing here\n", number)
			}
		}
	}
}

// direct asks the databases. One that is away is named, and left out.
func (a *app) direct(cfg *config.Config) (*backend, error) {
	d := &direct{app: a, cfg: cfg, log: command.NewLogger(cfg.Log, a.Stderr)}
	var members []*api.Member
	var failed []error
	for k := range cfg.Databases() {
		local, err := d.open(k)
		if err != nil {
			failed = append(failed, ofDatabase(cfg, k, err))
		}
		m := api.NewMember(k, local)
		m.Server = store.Address(cfg.Shard(k).MySQL.DSN)
		members = append(members, m)
	}
	fleet := api.NewFleet(members, new(shardmap.Known))
	fleet.OnMissing = a.missing()
	if len(failed) == len(members) {
		d.close()
		return nil, failed[0]
	}
	for _, err := range failed {
		fmt.Fprintf(a.Stderr, "warning: %v\n", err)
	}
	if err := fleet.ReadHomes(a.Ctx); err != nil {
		d.close()
		return nil, err
	}
	return &backend{fleet, d.close, service.Intakes(cfg)}, nil
}

// direct is what a command has open.
type direct struct {
	*app
	cfg    *config.Config
	log    *zap.Logger
	home   string // the id of the installation's first database; "": it is away
	closes []func()
}

func (d *direct) close() {
	for _, f := range d.closes {
		f()
	}
}

// open returns the backend on database k.
func (d *direct) open(k int) (*api.Local, error) {
	cfg := d.cfg.Shard(k)
	st, err := service.OpenStore(d.Ctx, cfg, zap.NewNop()) // everything that it would log is also in its errors
	if err != nil {
		return nil, err
	}
	d.closes = append(d.closes, func() { _ = st.Close() })
	if err := service.Joined(d.Ctx, d.home, st, k, d.cfg.Databases()); err != nil {
		return nil, err
	}
	if k == 0 {
		if d.home, err = st.Installation(d.Ctx); err != nil {
			return nil, err
		}
	}
	var ix service.Index // without one, dispatchers find replayed tasks at their next look
	if cfg.Index.Kind == config.KindRedis && cfg.IsSet("redis.addrs") || cfg.Index.Kind == config.KindMySQL && cfg.IsSet("kafka.brokers") {
		if ix, err = service.OpenIndex(d.Ctx, cfg, st, d.log); err != nil {
			return nil, err
		}
		d.closes = append(d.closes, ix.Close)
	}
	return service.Local(cfg, st, ix, operator(), func(ctx context.Context) (*kgo.Client, error) {
		client, err := service.Publisher(ctx, cfg, d.log)
		if err == nil {
			d.closes = append(d.closes, client.Close)
		}
		return client, err
	}, d.log), nil
}

// show asks, and prints the answer: as JSON with --json.
func show[T any](a *app, c asking, ask func(*backend) (T, error), print func(T)) error {
	b, err := a.backend(c)
	if err != nil {
		return err
	}
	defer b.close()
	found, err := ask(b)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.JSON(found)
	}
	print(found)
	return nil
}

// listed reads pages up to the wanted number, or to the end. page takes the room left and a cursor.
func listed[T any](want int, page func(room int, cursor string) (found []T, next string, err error)) ([]T, error) {
	out, cursor := []T{}, ""
	for {
		found, next, err := page(want-len(out), cursor)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
		if cursor = next; cursor == "" || len(out) >= want {
			return out, nil
		}
	}
}

// instant parses RFC 3339, Unix ms, or a duration from now in the given direction. "" is none.
func instant(flag, text string, direction time.Duration) (at api.Instant, err error) {
	if text == "" {
		return at, nil
	}
	if d, err := time.ParseDuration(text); err == nil && text != "0" {
		return api.At(time.Now().Add(direction * d).UnixMilli()), nil
	}
	if err := at.UnmarshalText([]byte(text)); err != nil {
		return at, command.Usage("%s %q %v, or a duration such as 24h", flag, text, err)
	}
	return at, nil
}

// span parses the flags --from and --to.
func span(from, to string, direction time.Duration) (first, end api.Instant, err error) {
	first, errFrom := instant("--from", from, direction)
	end, errTo := instant("--to", to, direction)
	return first, end, cmp.Or(errFrom, errTo)
}

// whereFrom explains the two sources of data.
const whereFrom = `Reads the database if mysql.dsn (NOTYET_MYSQL_DSN) is set, otherwise asks the service at http.addr, such as a running notyet dev.`
