// Command chaos breaks a cluster of its own under load and judges what came of it. scripts/chaos
// runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/notyet/notyet/test/chaos"
	"github.com/notyet/notyet/test/chaos/check"
	"github.com/notyet/notyet/test/chaos/history"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

var errFound = errors.New("invariants were broken")

func run(ctx context.Context) error {
	cfg := chaos.Config{}
	var kinds, report, again string
	var long, keep, cluster, sentinels bool
	flag.StringVar(&cfg.Root, "root", ".", "the repository")
	flag.StringVar(&cfg.Dir, "dir", "", "where logs, data and the history go (default: a new temporary folder)")
	flag.IntVar(&cfg.BasePort, "port", 21000, "servers listen on this + 92, 181, 306, 379 and 609; clusters on up to 50 more")
	flag.Uint64Var(&cfg.Seed, "seed", 0, "decides requests, consumers and faults (default: the time)")
	flag.DurationVar(&cfg.For, "for", 10*time.Minute, "how long requests keep coming")
	flag.IntVar(&cfg.Rate, "rate", 200, "tasks begun a second")
	flag.IntVar(&cfg.Burst, "burst", 10_000, "tasks of a burst, due within one second")
	flag.DurationVar(&cfg.Longest, "longest", time.Minute, "farthest due time of an ordinary task")
	flag.StringVar(&kinds, "faults", "", "kinds, separated by commas (default: all: "+strings.Join(chaos.Kinds(), ", ")+")")
	flag.IntVar(&cfg.Rounds, "rounds", 0, "how often each kind is broken at most (default: as often as time allows)")
	flag.BoolVar(&cfg.Small, "small", false, "Kafka and the database alone: election.kind and index.kind mysql")
	flag.IntVar(&cfg.Several, "databases", 1, "how many databases share the targets, which move between them")
	flag.BoolVar(&cluster, "cluster", false, "several servers of each: three brokers, three ZooKeepers, a database with a replica, Redis Cluster")
	flag.BoolVar(&sentinels, "sentinels", false, "the same, with sentinels in Redis Cluster's place")
	flag.StringVar(&cfg.Before, "before", "", "begin with the program of this commit, and roll to this tree's and back; faults that are named hit the two versions side by side")
	flag.BoolVar(&long, "long", false, "the published form: an hour, 250 tasks a second and bursts of 50000")
	flag.StringVar(&report, "report", "", "write the report to this file")
	flag.StringVar(&again, "check", "", "judge this history again, and nothing else")
	flag.BoolVar(&keep, "keep", false, "keep the folder though nothing was found")
	flag.Parse()
	if again != "" {
		return judge(cfg, again, report)
	}
	switch {
	case sentinels:
		cfg.Form = chaos.Sentinels
	case cluster:
		cfg.Form = chaos.Clustered
	}
	if long {
		cfg.For, cfg.Rate, cfg.Burst = time.Hour, 250, 50_000
	}
	if cfg.Before != "" {
		cfg.For, cfg.Rounds = time.Hour, 1 // until all is rolled
	}
	if kinds != "" {
		cfg.Faults = strings.Split(kinds, ",")
	}
	if cfg.Seed == 0 {
		cfg.Seed = uint64(time.Now().UnixNano())
	}
	if cfg.Dir == "" {
		var err error
		if cfg.Dir, err = os.MkdirTemp("", "notyet-chaos-"); err != nil {
			return err
		}
	}
	return breakThings(ctx, cfg, report, keep)
}

func breakThings(ctx context.Context, cfg chaos.Config, report string, keep bool) error {
	logs := zap.NewDevelopmentConfig()
	logs.Level, logs.DisableStacktrace, logs.DisableCaller = zap.NewAtomicLevelAt(zapcore.InfoLevel), true, true
	log, err := logs.Build()
	if err != nil {
		return err
	}
	log.Info("breaking things", zap.Uint64("seed", cfg.Seed), zap.String("dir", cfg.Dir), zap.Duration("for", cfg.For))
	rep, err := chaos.Run(ctx, cfg, log)
	if err != nil {
		return fmt.Errorf("%w (seed %d; everything is in %s)", err, cfg.Seed, cfg.Dir)
	}
	if err := rep.Print(os.Stdout); err != nil {
		return err
	}
	if report != "" {
		if err := rep.Write(report); err != nil {
			return err
		}
	}
	rep.Explain(os.Stdout)
	if len(rep.Result.Findings) > 0 {
		return fmt.Errorf("%w: %d findings (seed %d; everything is in %s)", errFound, len(rep.Result.Findings), cfg.Seed, cfg.Dir)
	}
	if !keep {
		return os.RemoveAll(cfg.Dir)
	}
	return nil
}

func judge(cfg chaos.Config, path, report string) error {
	h, err := history.Load(path)
	if err != nil {
		return err
	}
	rep := chaos.Report{Config: cfg, History: h, Result: check.Run(h, check.Bounds{}), Took: time.Duration(h.Run.End-h.Run.Start) * time.Millisecond}
	if err := rep.Print(os.Stdout); err != nil {
		return err
	}
	rep.Explain(os.Stdout)
	if report != "" {
		if err := rep.Write(report); err != nil {
			return err
		}
	}
	if len(rep.Result.Findings) > 0 {
		return fmt.Errorf("%w: %d findings", errFound, len(rep.Result.Findings))
	}
	return nil
}
