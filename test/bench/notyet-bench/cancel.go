package main

import (
	"context"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/test/bench"
)

type cancelCmd struct {
	flags
	N      int           `arg:"" help:"How many tasks to cancel."`
	Rate   int           `default:"500" help:"Other tasks a second. Default 500." placeholder:"N"`
	For    time.Duration `default:"30s" help:"How long to measure the others before the cancel. Default 30s." placeholder:"DURATION"`
	WarmUp time.Duration `default:"20s" help:"Warm-up before measuring. Default 20s." placeholder:"DURATION"`
}

func (cancelCmd) Help() string {
	return `Schedules N tasks with one tag for tomorrow, puts a steady load of other tasks on the installation, and has the API of a service
(http.addr) cancel the N tasks. It compares the lateness of the others before and meanwhile, and with mysql.dsn deletes the tasks.

Example:
  notyet-bench cancel 1000000 --rate 500`
}

func (c *cancelCmd) Run(a *command.App) error {
	cfg, err := a.Client(c.Settings, c.Servers)
	if err != nil {
		return err
	}
	acfg, err := command.APIConfig(cfg, a.Name)
	if err != nil {
		return err
	}
	client := api.NewClient(acfg)
	cancel := func(ctx context.Context, tag string) (cancelled int64, err error) {
		for r := (api.CancelMany{Tag: tag}); ; {
			done, err := client.CancelMany(ctx, r)
			if cancelled += done.Cancelled; err != nil || done.Cursor == "" {
				return cancelled, err
			}
			r.Cursor = done.Cursor
		}
	}
	return c.measure(a, func(ctx context.Context, b *bench.Bench) (*bench.Result, error) {
		return b.Cancel(ctx, c.N, c.Rate, c.WarmUp, c.For, cancel)
	}, positive("N", c.N), positive("--rate", c.Rate), atLeast("--for", c.For, time.Second), notNegative("--warm-up", c.WarmUp))
}
