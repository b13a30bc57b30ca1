package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/schemas"
)

// target is what cancel and fire ask about, and how.
type target struct {
	settings
	servers
	asJSON
	Topic       string        `help:"Target topic of the task." placeholder:"TOPIC" required:"" short:"t"`
	ID          string        `help:"The task's id." name:"id" placeholder:"ID" required:""`
	Key         *string       `help:"Record key: that of the task's other requests, so that this one stays in order behind them." placeholder:"KEY" short:"k"`
	TaskVersion string        `help:"Ignored as stale when it is below the task's version." name:"version" placeholder:"N"`
	Intake      string        `help:"Intake topic, where several are configured." placeholder:"TOPIC"`
	NoWait      bool          `help:"Return when Kafka has the request, without the answer."`
	Timeout     time.Duration `default:"10s" help:"How long to wait for the answer." placeholder:"DURATION"`
}

type cancelCmd struct{ target }

// Help is part of --help.
func (cancelCmd) Help() string {
	return `Prints who won: cancelled (no delivery follows), too_late (it was or will be delivered), not_found, or stale.
Exit code 0 only for cancelled. A task's requests should carry the same key: a cancel with another one may overtake the
schedule that it is about. With --version even such a cancel wins.

Examples:
  notyet cancel -t orders --id 4711 --key 4711
  notyet cancel -t orders --id 4711 --version 3 --json`
}

// Run asks and answers.
func (c *cancelCmd) Run(a *app) error { return c.ask(a, schemas.OpCancel, schemas.StateCancelled) }

type fireCmd struct{ target }

// Help is part of --help.
func (fireCmd) Help() string {
	return `Prints who won: fired, too_late (it was or will be delivered anyway), or not_found. Exit code 0 only for fired.

Example:
  notyet fire -t orders --id 4711 --key 4711`
}

// Run asks and answers.
func (c *fireCmd) Run(a *app) error { return c.ask(a, schemas.OpFire, schemas.StateFired) }

func (c *target) ask(a *app, op schemas.Op, won schemas.State) error {
	cfg, err := a.client(c.settings, c.servers)
	if err != nil {
		return err
	}
	in, err := intake(cfg, c.Intake)
	if err != nil {
		return err
	}
	request := api.Target{Topic: c.Topic, ID: c.ID, Key: c.Key}
	if err := number("--version", c.TaskVersion, &request.Version); err != nil {
		return err
	}
	record, err := request.Record(op, in)
	if err != nil {
		return usageError{err}
	}
	log := newLogger(cfg.Log, a.stderr)
	var results *tail
	if !c.NoWait {
		if results, err = openTail(a.ctx, cfg, log); err != nil {
			return err
		}
		defer results.close()
	}
	done, err := publish(a.ctx, cfg, log, record, c.Timeout)
	if err != nil {
		return err
	}
	if c.NoWait {
		return c.sent(a, done)
	}
	return c.answer(a, results, done, won)
}

func (c *target) sent(a *app, p api.Published) error {
	if c.JSON {
		return a.line(p)
	}
	fmt.Fprintf(a.stdout, "%s of %s for %s is in %s/%d at offset %d\n", p.Op, plain(p.ID), p.Topic, p.Intake, p.Partition, p.Offset)
	return nil
}

func (c *target) answer(a *app, results *tail, p api.Published, won schemas.State) error {
	ctx, cancel := context.WithTimeout(a.ctx, c.Timeout)
	defer cancel()
	answers := []schemas.State{won, schemas.StateTooLate, schemas.StateNotFound, schemas.StateStale, schemas.StateRejected}
	asked := schemas.DefaultID(p.Intake, p.Partition, p.Offset)
	mine := func(e event) bool { return e.Request == asked || e.Request == "" } // a scanner of an older version does not say
	found, err := results.until(ctx, func(e event) bool { return e.about(p.Topic, p.ID) && mine(e) && slices.Contains(answers, e.State) })
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s; the %s is in %s/%d at offset %d and will be answered on %s: is a scanner running?", c.Timeout, p.Op, p.Intake, p.Partition, p.Offset, results.topic)
	}
	if err != nil {
		return err
	}
	if err := a.event(found, c.JSON); err != nil {
		return err
	}
	if found.State != won {
		return errTold
	}
	return nil
}
