package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/test/bench"
	"go.uber.org/zap"
)

// cli is the whole command line.
type cli struct {
	Ingest    ingestCmd          `cmd:"" help:"How fast requests are stored."`
	Burst     burstCmd           `cmd:"" help:"How late tasks are that are all due in one second."`
	Steady    steadyCmd          `cmd:"" help:"How late tasks are at a steady rate."`
	Sustained sustainedCmd       `cmd:"" help:"How much goes through: schedule, deliver, settle."`
	Backlog   backlogCmd         `cmd:"" help:"What many pending tasks cost those that are due."`
	History   historyCmd         `cmd:"" help:"What many ended tasks cost those that are due."`
	Retention retentionCmd       `cmd:"" help:"Whether ended tasks are deleted as fast as they come."`
	Cancel    cancelCmd          `cmd:"" help:"How long a cancel of many tasks takes, and what it costs others that are due."`
	Attack    attackCmd          `cmd:"" help:"What one tenant's many names, slow origins or cancels cost another tenant."`
	Failover  failoverCmd        `cmd:"" help:"How long deliveries pause when a dispatcher is killed."`
	Idle      idleCmd            `cmd:"" help:"What processes use when there is nothing to do."`
	Timers    timersCmd          `cmd:"" help:"How late the runs of many timers are that are due at the same instant."`
	Callbacks callbacksCmd       `cmd:"" help:"How late HTTP callbacks are at a steady rate."`
	Report    reportCmd          `cmd:"" help:"Results of runs as Markdown, beside the goals."`
	Version   command.VersionCmd `cmd:"" help:"Print the version; so does --version."`
}

const description = `Measures load and lateness of a running notyet. It sends requests to the intake topic of the configured installation and measures the deliveries on a topic of its own. It creates that topic with message.timestamp.type=LogAppendTime and deletes it afterwards. Lateness is the broker's time of a delivery minus its due time. Nobody else should use the installation meanwhile, because the figures would include that load.

Settings come from the same file, environment and flags as those of notyet.

Exit codes: 0 done, 1 failed, or a task was lost or came early, 2 bad usage or configuration.`

// flags are those of every measurement.
type flags struct {
	command.Settings
	command.Servers
	command.AsJSON
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
func (c *flags) measure(a *command.App, run func(context.Context, *bench.Bench) (*bench.Result, error), checks ...error) error {
	for _, err := range checks {
		if err != nil {
			return err
		}
	}
	cfg, err := a.Client(c.Settings, c.Servers)
	if err != nil {
		return err
	}
	bcfg, err := c.config(a, cfg)
	if err != nil {
		return err
	}
	log := command.NewLogger(cfg.Log, a.Stderr)
	if err := reach(a.Ctx, cfg, bcfg.Kafka, log); err != nil {
		return err
	}
	b, err := bench.Open(a.Ctx, bcfg, log)
	if err != nil {
		return err
	}
	defer b.Close(context.WithoutCancel(a.Ctx))
	r, err := run(a.Ctx, b)
	if err != nil {
		return err
	}
	r.Label = c.Label
	return c.printResult(a, r)
}

// reach says in one line that Kafka is not there.
func reach(ctx context.Context, cfg *config.Config, kcfg kafka.Config, log *zap.Logger) error {
	client, err := kafka.NewSoloProducer(kcfg, log)
	if err != nil {
		return err
	}
	defer client.Close()
	return command.Reach(ctx, cfg, client)
}

func (c *flags) config(a *command.App, cfg *config.Config) (bench.Config, error) {
	kcfg, err := command.KafkaConfig(cfg, zap.NewNop())
	if err != nil {
		return bench.Config{}, err
	}
	intake, err := command.Intake(cfg, c.Intake)
	if err != nil {
		return bench.Config{}, err
	}
	limits, _ := cfg.Limits(intake)
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
	scfg, err := command.StoreConfig(cfg, zap.NewNop())
	if err != nil {
		return bench.Config{}, err
	}
	return bench.Config{
		Kafka: kcfg, Intake: intake, Reports: cfg.Reports.Topic, Results: cfg.Results.Topic, Limits: limits, DSN: cfg.MySQL.DSN, BeforeConnect: scfg.BeforeConnect,
		Topic: c.Topic, Partitions: c.Partitions, ValueBytes: c.ValueBytes, Keep: c.Keep, IdleTimeout: c.Patience, Processes: processes,
		Say: func(format string, args ...any) { fmt.Fprintf(a.Stderr, format+"\n", args...) },
	}, nil
}

func (c *flags) processes() ([]bench.Process, error) {
	var out []bench.Process
	for _, text := range c.PIDs {
		name, number, ok := strings.Cut(text, "=")
		pid, err := strconv.Atoi(number)
		if !ok || name == "" || err != nil || pid < 1 {
			return nil, command.Usage("--pids %q: write NAME=PID, several with commas", text)
		}
		if _, err := os.Stat("/proc/" + number); err != nil {
			return nil, command.Usage("--pids %q: there is no process %d on this machine", text, pid)
		}
		out = append(out, bench.Process{Name: name, PID: pid})
	}
	return out, nil
}

// printResult prints a result; something lost or early is a failure.
func (c *flags) printResult(a *command.App, r *bench.Result) error {
	if c.JSON {
		if err := a.Line(r); err != nil {
			return err
		}
	} else {
		show(a, r)
	}
	if c.Plot != "" {
		if err := r.Plot(c.Plot); err != nil {
			return err
		}
	}
	if len(r.Wrong) > 0 {
		return command.ErrReported
	}
	return nil
}

func show(a *command.App, r *bench.Result) {
	rows := [][]any{{"tasks", strconv.Itoa(r.Tasks)}}
	for _, f := range r.Figures {
		rows = append(rows, []any{strings.ReplaceAll(f.Name, "_", " "), figureText(f.Value)})
	}
	a.Table([]any{strings.TrimSpace(r.Shape + " " + r.Variant), ""}, rows)
	if r.Clock == "CreateTime" {
		fmt.Fprintln(a.Stdout, "The broker keeps no LogAppendTime: lateness is by the dispatcher's clock as it sent.")
	}
	for _, n := range r.Notes {
		fmt.Fprintln(a.Stdout, "Note: "+n)
	}
	for _, w := range r.Wrong {
		fmt.Fprintln(a.Stdout, "WRONG: "+w)
	}
}

// figureText shows whole numbers whole.
func figureText(v float64) string {
	if v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// atLeast refuses too small a number or duration of the command line.
func atLeast[N int | time.Duration](what string, n, least N) error {
	if n < least {
		return command.Usage("%s %v: at least %v", what, n, least)
	}
	return nil
}

func positive(what string, n int) error { return atLeast(what, n, 1) }

func notNegative(what string, d time.Duration) error { return atLeast(what, d, 0) }
