package main

import (
	"context"
	"time"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/test/bench"
)

type namesCmd struct {
	flags
	N        int           `arg:"" help:"How many names."`
	Other    string        `required:"" help:"Intake topic that the tasks for those names go through." placeholder:"TOPIC"`
	Existing bool          `negatable:"" help:"Make a topic of each name before. They stay. Default: none exists."`
	Rate     int           `default:"20" help:"Other tasks a second, through the intake. Default 20." placeholder:"N"`
	For      time.Duration `default:"30s" help:"How long to measure before the names are due; afterwards twice as long. Default 30s." placeholder:"DURATION"`
	WarmUp   time.Duration `default:"20s" help:"Warm-up before measuring. Default 20s." placeholder:"DURATION"`
}

func (namesCmd) Help() string {
	return `Measures whether one tenant's many target topics delay another tenant's tasks. Each of N tasks of one intake names a topic of its own, and all are
due at once, beside a steady load of another intake.

Example:
  notyet-bench names 100000 --intake notyet.intake --other notyet.intake.shop --rate 20`
}

func (c *namesCmd) Run(a *command.App) error {
	return c.measure(a, func(ctx context.Context, b *bench.Bench) (*bench.Result, error) {
		return b.Names(ctx, c.N, c.Rate, c.WarmUp, c.For, c.Other, c.Existing)
	}, positive("N", c.N), positive("--rate", c.Rate), command.AtLeast("--for", c.For, time.Second), notNegative("--warm-up", c.WarmUp))
}
