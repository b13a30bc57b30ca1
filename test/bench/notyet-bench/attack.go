package main

import (
	"context"
	"time"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/test/bench"
)

type attackCmd struct {
	flags
	Kind   string        `arg:"" enum:"missing,existing,origins,cancels" help:"missing or existing: tasks for N topics that do not exist, or do (they stay). origins: callbacks to N origins that answer once. cancels: N cancels of tasks that do not exist."`
	N      int           `arg:"" help:"How many."`
	Other  string        `required:"" help:"Intake topic that the attack goes through." placeholder:"TOPIC"`
	Rate   int           `default:"20" help:"Measured tasks a second, through the intake. Default 20." placeholder:"N"`
	For    time.Duration `default:"30s" help:"How long to measure before the attack; afterwards twice as long. Default 30s." placeholder:"DURATION"`
	WarmUp time.Duration `default:"20s" help:"Warm-up before measuring. Default 20s." placeholder:"DURATION"`
}

func (attackCmd) Help() string {
	return `Measures whether one tenant's load delays another tenant's tasks: names, origins or cancels, N of them at once through one
intake, beside a steady load of another intake.

Example:
  notyet-bench attack missing 100000 --intake notyet.intake --other notyet.intake.names`
}

func (c *attackCmd) Run(a *command.App) error {
	return c.measure(a, func(ctx context.Context, b *bench.Bench) (*bench.Result, error) {
		return b.Attack(ctx, c.Kind, c.N, c.Rate, c.WarmUp, c.For, c.Other)
	}, positive("N", c.N), positive("--rate", c.Rate), atLeast("--for", c.For, time.Second), notNegative("--warm-up", c.WarmUp))
}
