package main

import (
	"context"
	"time"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/test/bench"
)

// comparison is the load of measurements that compare an installation with itself.
type comparison struct {
	pressure
	Rate int `help:"Tasks a second. Default: as much as goes through, with at most --pending on their way." placeholder:"N"`
}

func (t comparison) shape() bench.Shape {
	return bench.Shape{Rate: t.Rate, Pending: t.Pending, WarmUp: t.WarmUp, For: t.For}
}

func (t comparison) checks() []error {
	return append(t.pressure.checks(), atLeast("--rate", t.Rate, 0))
}

type backlogCmd struct {
	flags
	comparison
	N int `arg:"" help:"How many pending tasks to add."`
}

func (backlogCmd) Help() string {
	return `Measures a load, schedules N tasks for tomorrow, measures the load again, and deletes the tasks. Needs mysql.dsn. The cost of a
task is measured for the processes in --pids.

Example:
  notyet-bench backlog 10000000 --pids scanner=4711,dispatcher=4712,redis=4713`
}

func (c *backlogCmd) Run(a *command.App) error {
	return c.measure(a, func(ctx context.Context, b *bench.Bench) (*bench.Result, error) {
		return b.Backlog(ctx, c.N, c.shape())
	},
		append(c.checks(), positive("N", c.N))...)
}

type historyCmd struct {
	flags
	comparison
	N    int     `arg:"" help:"How many tasks to make."`
	Days float64 `default:"30" help:"How many days ago the oldest ended. dispatcher.retention must be longer, or they are deleted meanwhile. Default 30." placeholder:"DAYS"`
}

func (historyCmd) Help() string {
	return `Measures a load, writes N ended tasks directly into the database, measures the load again, and deletes them. Needs mysql.dsn. Use
it only on an installation for tests.

Example:
  notyet-bench history 5000000 --pids scanner=4711,dispatcher=4712`
}

func (c *historyCmd) Run(a *command.App) error {
	checks := append(c.checks(), positive("N", c.N))
	if c.Days <= 0 {
		checks = append(checks, command.Usage("--days %v: above 0", c.Days))
	}
	return c.measure(a, func(ctx context.Context, b *bench.Bench) (*bench.Result, error) {
		return b.History(ctx, c.N, c.Days, c.shape())
	}, checks...)
}

type failoverCmd struct {
	flags
	Rate   int           `default:"500" help:"Tasks a second. Default 500." placeholder:"N"`
	Kill   int           `help:"Process id of a dispatcher on this machine, which is killed with SIGKILL. Default: asks you to kill one." placeholder:"PID"`
	For    time.Duration `default:"30s" help:"How long to measure after the kill. Default 30s." placeholder:"DURATION"`
	WarmUp time.Duration `default:"10s" help:"Warm-up before measuring. Default 10s." placeholder:"DURATION"`
}

func (failoverCmd) Help() string {
	return `Puts a steady load on an installation with two dispatchers or more, kills one, and measures the time until its successor delivers,
how late tasks were, and how many were delivered twice.

Example:
  notyet-bench failover --kill $(pidof -s notyet)`
}

func (c *failoverCmd) Run(a *command.App) error {
	return c.measure(a, func(ctx context.Context, b *bench.Bench) (*bench.Result, error) {
		return b.Failover(ctx, c.Rate, c.Kill, c.WarmUp, c.For)
	}, positive("--rate", c.Rate), atLeast("--kill", c.Kill, 0), atLeast("--for", c.For, time.Second), notNegative("--warm-up", c.WarmUp))
}

type idleCmd struct {
	flags
	For time.Duration `default:"60s" help:"How long to watch. Default 60s." placeholder:"DURATION"`
}

func (idleCmd) Help() string {
	return `Delivers a few tasks, then measures the processes in --pids while there is no load.

Example:
  notyet-bench idle --pids scanner=4711,dispatcher=4712`
}

func (c *idleCmd) Run(a *command.App) error {
	check := atLeast("--for", c.For, time.Second)
	if len(c.PIDs) == 0 {
		check = command.Usage("--pids: name the processes to watch")
	}
	return c.measure(a, func(ctx context.Context, b *bench.Bench) (*bench.Result, error) { return b.Idle(ctx, c.For) }, check)
}

type retentionCmd struct {
	flags
	Rate int           `default:"5000" help:"Tasks a second; half are cancelled, a quarter is reported. Default 5000." placeholder:"N"`
	Kept time.Duration `default:"1m" help:"The dispatcher's retention (dispatcher.retention). Default 1m." placeholder:"DURATION"`
	For  time.Duration `default:"10m" help:"How long to send, three times --kept or longer. Default 10m." placeholder:"DURATION"`
}

func (retentionCmd) Help() string {
	return `Schedules, cancels and reports at a steady rate, and counts the rows of the task table. Start with an empty table and a
dispatcher whose retention is --kept. Exit code 1 also if there were more rows than twice the rate times the retention.

Example:
  notyet-bench retention --rate 5000 --kept 1m --for 10m`
}

func (c *retentionCmd) Run(a *command.App) error {
	return c.measure(a, func(ctx context.Context, b *bench.Bench) (*bench.Result, error) {
		return b.Retention(ctx, c.Rate, c.Kept, c.For)
	}, positive("--rate", c.Rate), atLeast("--kept", c.Kept, time.Second), atLeast("--for", c.For, 3*c.Kept))
}
