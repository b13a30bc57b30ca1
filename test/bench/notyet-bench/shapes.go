package main

import (
	"context"
	"time"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/test/bench"
)

type ingestCmd struct {
	flags
	N int `arg:"" help:"How many tasks."`
}

func (ingestCmd) Help() string {
	return `Schedules N tasks for tomorrow, and measures until all are in the database. With mysql.dsn it compares this with how fast the
database alone inserts the same rows (4 connections, 500 rows a statement), and deletes the tasks. Without mysql.dsn it
counts events instead of rows, and cancels the tasks.

Example:
  notyet-bench ingest 200000`
}

func (c *ingestCmd) Run(a *command.App) error {
	return c.measure(a, func(ctx context.Context, b *bench.Bench) (*bench.Result, error) { return b.Ingest(ctx, c.N) }, positive("N", c.N))
}

type burstCmd struct {
	flags
	N    int           `arg:"" help:"How many tasks."`
	Lead time.Duration `help:"Time between the first request and the second in which all are due. Default: 5s plus 1s per 8000 tasks." placeholder:"DURATION"`
}

func (burstCmd) Help() string {
	return `Schedules N tasks with different keys, all due within one second and spread over its milliseconds. It sends the last request
before that second. Then it sends the same records directly to Kafka, for comparison.

Example:
  notyet-bench burst 100000 --plot burst.svg`
}

func (c *burstCmd) Run(a *command.App) error {
	return c.measure(a, func(ctx context.Context, b *bench.Bench) (*bench.Result, error) { return b.Burst(ctx, c.N, c.Lead) },
		positive("N", c.N), notNegative("--lead", c.Lead))
}

type steadyCmd struct {
	flags
	Rate   int           `arg:"" help:"Tasks a second."`
	For    time.Duration `default:"60s" help:"How long to measure. Default 60s." placeholder:"DURATION"`
	WarmUp time.Duration `default:"20s" help:"Warm-up before measuring. Default 20s." placeholder:"DURATION"`
	Ahead  time.Duration `default:"3s" help:"How long before its due time a task is sent, at least. Default 3s." placeholder:"DURATION"`
}

func (steadyCmd) Help() string {
	return `Schedules RATE tasks a second, each due 3 to 5 s later at a random millisecond. Far fewer tasks and a
short --ahead show how soon a dispatcher is woken for them. For comparison, it then sends records directly to
Kafka at the same rate and measures how long Kafka takes to acknowledge them.

Example:
  notyet-bench steady 2000 --for 60s --pids scanner=4711,dispatcher=4712`
}

func (c *steadyCmd) Run(a *command.App) error {
	return c.measure(a, func(ctx context.Context, b *bench.Bench) (*bench.Result, error) {
		return b.Steady(ctx, c.Rate, c.Ahead, c.WarmUp, c.For)
	},
		positive("RATE", c.Rate), notNegative("--ahead", c.Ahead), atLeast("--for", c.For, time.Second), notNegative("--warm-up", c.WarmUp))
}

// pressure are the flags of measurements that send as much as goes through.
type pressure struct {
	For     time.Duration `default:"60s" help:"How long to measure. Default 60s." placeholder:"DURATION"`
	WarmUp  time.Duration `default:"15s" help:"Warm-up before measuring. Default 15s." placeholder:"DURATION"`
	Pending int           `default:"100000" help:"Maximum number of tasks in progress. Default 100000." placeholder:"N"`
}

func (p pressure) checks() []error {
	return []error{atLeast("--for", p.For, time.Second), notNegative("--warm-up", p.WarmUp), positive("--pending", p.Pending)}
}

type sustainedCmd struct {
	flags
	pressure
	Ack        string `default:"none" enum:"none,report" help:"none, or report: the bench consumes the deliveries and reports each." placeholder:"none|report"`
	IDs        bool   `help:"Give the tasks ids, so that each has a final event." name:"ids"`
	Priorities bool   `help:"Alternate between high, normal and low priority."`
}

func (sustainedCmd) Help() string {
	return `Schedules as many tasks as the installation can take, each due 1 to 3 s later, and measures deliveries a second. With mysql.dsn it
also measures how many were settled.

Examples:
  notyet-bench sustained --for 60s
  notyet-bench sustained --ack report`
}

func (c *sustainedCmd) Run(a *command.App) error {
	v := bench.Variant{Report: c.Ack == "report", IDs: c.IDs, Priorities: c.Priorities}
	if v.Report && v.IDs || v.Report && v.Priorities || v.IDs && v.Priorities {
		return command.Usage("--ack report, --ids and --priorities are measured one at a time")
	}
	return c.measure(a, func(ctx context.Context, b *bench.Bench) (*bench.Result, error) {
		return b.Sustained(ctx, v, c.Pending, c.WarmUp, c.For)
	}, c.checks()...)
}

type timersCmd struct {
	flags
	N       int           `arg:"" help:"How many timers."`
	Minutes int           `default:"3" help:"How many minutes to measure. Default 3." placeholder:"N"`
	Jitter  time.Duration `help:"Spread the runs of a minute over its first DURATION (notyet-jitter). Default none." placeholder:"DURATION"`
}

func (timersCmd) Help() string {
	return `Sets N timers that run every minute, so that N runs are due at the same instant (--jitter spreads them), and measures the runs of some minutes. Then it deletes
the timers.

Example:
  notyet-bench timers 100000 --pids scanner=4711,dispatcher=4712`
}

func (c *timersCmd) Run(a *command.App) error {
	return c.measure(a, func(ctx context.Context, b *bench.Bench) (*bench.Result, error) {
		return b.Timers(ctx, c.N, c.Minutes, c.Jitter)
	},
		positive("N", c.N), positive("--minutes", c.Minutes))
}

type callbacksCmd struct {
	flags
	Rate    int           `arg:"" help:"Callbacks a second."`
	Hanging int           `help:"Callbacks a second to a second origin that does not answer. Default none." placeholder:"N"`
	For     time.Duration `default:"60s" help:"How long to measure. Default 60s." placeholder:"DURATION"`
	WarmUp  time.Duration `default:"15s" help:"Warm-up before measuring. Default 15s." placeholder:"DURATION"`
}

func (callbacksCmd) Help() string {
	return `Schedules RATE HTTP callbacks a second to a receiver of its own on 127.0.0.1, each due 3 to 5 s later at a random millisecond. The
dispatchers run on the same machine and are allowed to call it: callback.enabled, callback.allow-http, and callback.allowed-networks with
127.0.0.0/8.

Example:
  notyet-bench callbacks 1000 --hanging 20 --for 60s --pids dispatcher=4712`
}

func (c *callbacksCmd) Run(a *command.App) error {
	return c.measure(a, func(ctx context.Context, b *bench.Bench) (*bench.Result, error) {
		return b.Callbacks(ctx, c.Rate, c.Hanging, c.WarmUp, c.For)
	}, positive("RATE", c.Rate), atLeast("--hanging", c.Hanging, 0), atLeast("--for", c.For, time.Second), notNegative("--warm-up", c.WarmUp))
}
