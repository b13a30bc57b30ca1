package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/notyet/notyet/bench"
	"github.com/notyet/notyet/internal/config"
)

// benchCmd measures a running installation.
type benchCmd struct {
	Ingest    benchIngestCmd    `cmd:"" help:"How fast requests are stored."`
	Burst     benchBurstCmd     `cmd:"" help:"How late tasks are that are all due in one second."`
	Steady    benchSteadyCmd    `cmd:"" help:"How late tasks are at a steady rate."`
	Sustained benchSustainedCmd `cmd:"" help:"How much goes through: schedule, deliver, settle."`
	Backlog   benchBacklogCmd   `cmd:"" help:"What many pending tasks cost those that are due."`
	History   benchHistoryCmd   `cmd:"" help:"What many ended tasks cost those that are due."`
	Retention benchRetentionCmd `cmd:"" help:"Whether ended tasks are deleted as fast as they come."`
	Failover  benchFailoverCmd  `cmd:"" help:"How long deliveries pause when a dispatcher is killed."`
	Idle      benchIdleCmd      `cmd:"" help:"What processes use when there is nothing to do."`
	Timers    benchTimersCmd    `cmd:"" help:"How late the runs of many timers are that are due at the same instant."`
	Callbacks benchCallbacksCmd `cmd:"" help:"How late HTTP callbacks are at a steady rate."`
	Report    benchReportCmd    `cmd:"" help:"Results of runs as Markdown, beside the goals."`
}

// Help is part of --help.
func (benchCmd) Help() string {
	return `Sends requests to the intake topic of the configured installation and measures the deliveries on a topic of its own. It
creates that topic with message.timestamp.type=LogAppendTime and deletes it afterwards. Lateness is the broker's time of a
delivery minus its due time. Nobody else should use the installation meanwhile, because the figures would include that load.

Exit code 1 when a task was lost or came early.`
}

// benchFlags are those of every measurement.
type benchFlags struct {
	settings
	servers
	asJSON
	Intake     string        `help:"Intake topic, if several are configured." placeholder:"TOPIC"`
	Topic      string        `help:"Target topic to make. Default: notyet-bench- and random characters." placeholder:"TOPIC" short:"t"`
	Partitions int           `default:"8" help:"Partitions of the target topic. Default 8." placeholder:"N"`
	ValueBytes int           `default:"200" help:"Size of each task's value. Default 200." placeholder:"N"`
	PIDs       []string      `help:"Processes on this machine whose CPU time and memory are measured." name:"pids" placeholder:"NAME=PID,…"`
	Patience   time.Duration `default:"1m" help:"If nothing arrives for this long, missing tasks count as lost. Default 1m." placeholder:"DURATION"`
	Label      string        `help:"Your name for what is measured, to distinguish results." placeholder:"TEXT"`
	Keep       bool          `help:"Do not delete the topics and the tasks that are not due."`
	Plot       string        `help:"Draw lateness and deliveries over time into this SVG file." placeholder:"FILE" type:"path"`
}

// measure connects, runs one measurement, prints it and cleans up.
func (c *benchFlags) measure(a *app, run func(context.Context, *bench.Bench) (*bench.Result, error), checks ...error) error {
	for _, err := range checks {
		if err != nil {
			return err
		}
	}
	cfg, err := a.client(c.settings, c.servers)
	if err != nil {
		return err
	}
	bcfg, err := c.config(a, cfg)
	if err != nil {
		return err
	}
	log := newLogger(cfg.Log, a.stderr)
	first, err := publisher(a.ctx, cfg, log) // says in one line that Kafka is not there
	if err != nil {
		return err
	}
	first.Close()
	b, err := bench.Open(a.ctx, bcfg, log)
	if err != nil {
		return err
	}
	defer b.Close(context.WithoutCancel(a.ctx))
	r, err := run(a.ctx, b)
	if err != nil {
		return err
	}
	r.Label = c.Label
	return c.printResult(a, r)
}

func (c *benchFlags) config(a *app, cfg *config.Config) (bench.Config, error) {
	kcfg, err := kafkaConfig(cfg)
	if err != nil {
		return bench.Config{}, err
	}
	in, err := intake(cfg, c.Intake)
	if err != nil {
		return bench.Config{}, err
	}
	processes, err := c.processes()
	if err != nil {
		return bench.Config{}, err
	}
	for _, err := range []error{
		positive("--partitions", c.Partitions), atLeast("--value-bytes", c.ValueBytes, bench.MinValueBytes), atLeast("--patience", c.Patience, time.Second),
	} {
		if err != nil {
			return bench.Config{}, err
		}
	}
	secure, err := tlsConfig("mysql.tls", cfg.MySQL.TLS)
	if err != nil {
		return bench.Config{}, err
	}
	return bench.Config{
		Kafka: kcfg, Intake: in.Topic, Reports: cfg.Reports.Topic, Results: cfg.Results.Topic, Limits: in.Limits, DSN: cfg.MySQL.DSN, TLS: secure,
		Topic: c.Topic, Partitions: c.Partitions, ValueBytes: c.ValueBytes, Keep: c.Keep, IdleTimeout: c.Patience, Processes: processes,
		Say: func(format string, args ...any) { fmt.Fprintf(a.stderr, format+"\n", args...) },
	}, nil
}

func (c *benchFlags) processes() ([]bench.Process, error) {
	var out []bench.Process
	for _, text := range c.PIDs {
		name, number, ok := strings.Cut(text, "=")
		pid, err := strconv.Atoi(number)
		if !ok || name == "" || err != nil || pid < 1 {
			return nil, usage("--pids %q: write NAME=PID, several with commas", text)
		}
		if _, err := os.Stat("/proc/" + number); err != nil {
			return nil, usage("--pids %q: there is no process %d on this machine", text, pid)
		}
		out = append(out, bench.Process{Name: name, PID: pid})
	}
	return out, nil
}

// printResult prints a result; something lost or early is a failure.
func (c *benchFlags) printResult(a *app, r *bench.Result) error {
	if c.JSON {
		if err := a.line(r); err != nil {
			return err
		}
	} else {
		a.result(r)
	}
	if c.Plot != "" {
		if err := r.Plot(c.Plot); err != nil {
			return err
		}
	}
	if len(r.Wrong) > 0 {
		return errReported
	}
	return nil
}

func (a *app) result(r *bench.Result) {
	rows := [][]any{{"tasks", strconv.Itoa(r.Tasks)}}
	for _, f := range r.Figures {
		rows = append(rows, []any{strings.ReplaceAll(f.Name, "_", " "), figureText(f.Value)})
	}
	a.table([]any{strings.TrimSpace(r.Shape + " " + r.Variant), ""}, rows)
	if r.Clock == "CreateTime" {
		fmt.Fprintln(a.stdout, "The broker keeps no LogAppendTime: lateness is by the dispatcher's clock as it sent.")
	}
	for _, n := range r.Notes {
		fmt.Fprintln(a.stdout, "Note: "+n)
	}
	for _, w := range r.Wrong {
		fmt.Fprintln(a.stdout, "WRONG: "+w)
	}
}

// figureText shows whole numbers whole.
func figureText(v float64) string {
	if v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

func positive(what string, n int) error { return atLeast(what, n, 1) }

func notNegative(what string, d time.Duration) error { return atLeast(what, d, 0) }

func atLeast[N int | time.Duration](what string, n, least N) error {
	if n < least {
		return usage("%s %v: at least %v", what, n, least)
	}
	return nil
}
