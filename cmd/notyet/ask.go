package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/schemas"
)

// target holds the flags and arguments of cancel and fire.
type target struct {
	asking
	Topic       string        `help:"Target topic, or the origin of an HTTP callback." placeholder:"TOPIC" short:"t" xor:"target"`
	URL         string        `help:"The URL of an HTTP callback, instead of --topic." name:"url" placeholder:"URL" xor:"target"`
	ID          string        `help:"The task's id." name:"id" placeholder:"ID"`
	Key         *string       `help:"Record key. Use the key of the task's other requests to keep their order." placeholder:"KEY" short:"k"`
	TaskVersion string        `help:"The request is ignored as stale if its version is below the task's." name:"version" placeholder:"N"`
	Intake      string        `help:"Intake topic, if several are configured. Default: the one whose target this is, otherwise the first." placeholder:"TOPIC"`
	NoWait      bool          `help:"Return when Kafka has acknowledged the request; do not wait for the answer."`
	Timeout     time.Duration `default:"10s" help:"How long to wait for the answer." placeholder:"DURATION"`
}

type cancelCmd struct {
	target
	many
}

func (cancelCmd) Help() string {
	return `With --id, prints the answer: cancelled (no delivery follows), too_late (it was or will be delivered), not_found, or stale.
Exit code 0 only for cancelled. Use the same key for all requests about a task. A cancel with another key may arrive
before the schedule request; with --version it takes effect even then.

Without --id, cancels all stored tasks that the filter selects, and prints how many. Those that are being delivered are too late.
` + whereFrom + ` Asks for confirmation on a terminal.

Examples:
  notyet cancel -t orders --id-prefix customer-17- --dry-run
  notyet cancel -t orders --from 0h --to 24h --yes
  notyet cancel -t orders --id 4711 --key 4711
  notyet cancel -t orders --id 4711 --version 3 --json
  notyet cancel -t https://shop.example --id 4711`
}

func (c *cancelCmd) Run(a *app) error {
	if c.ID == "" {
		return c.cancelMany(a, c.target)
	}
	if err := c.alone(); err != nil {
		return err
	}
	return c.ask(a, schemas.OpCancel, schemas.StateCancelled)
}

type fireCmd struct{ target }

func (fireCmd) Help() string {
	return `Prints the answer: fired, too_late (it was or will be delivered anyway), or not_found. Exit code 0 only for fired.

Example:
  notyet fire -t orders --id 4711 --key 4711`
}

func (c *fireCmd) Run(a *app) error { return c.ask(a, schemas.OpFire, schemas.StateFired) }

func (c *target) ask(a *app, op schemas.Op, won schemas.State) error {
	if c.ID == "" {
		return command.Usage("missing flags: write --id, and --topic (-t) or --url")
	}
	cfg, in, err := a.publishing(c.Settings, c.Servers, c.Intake, c.Topic, c.URL)
	if err != nil {
		return err
	}
	request := api.Target{Topic: c.Topic, URL: c.URL, ID: c.ID, Key: c.Key}
	if err := number("--version", c.TaskVersion, &request.Version); err != nil {
		return err
	}
	record, err := request.Record(op, in)
	if err != nil {
		return command.UsageError{Err: err}
	}
	return c.publishAndAnswer(a, cfg, record, won)
}

// publishAndAnswer sends a request and prints its answer.
func (c *target) publishAndAnswer(a *app, cfg *config.Config, record *kgo.Record, won schemas.State) error {
	var err error
	log := command.NewLogger(cfg.Log, a.Stderr)
	var results *tail
	if !c.NoWait {
		if results, err = openTail(a.Ctx, cfg, log); err != nil {
			return err
		}
		defer results.close()
	}
	done, err := publish(a.Ctx, cfg, log, record, c.Timeout)
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
		return a.Line(p)
	}
	fmt.Fprintf(a.Stdout, "%s of %s for %s is in %s/%d at offset %d\n", p.Op, command.Plain(p.ID), p.Topic, p.Intake, p.Partition, p.Offset)
	return nil
}

func (c *target) answer(a *app, results *tail, p api.Published, won schemas.State) error {
	ctx, cancel := context.WithTimeout(a.Ctx, c.Timeout)
	defer cancel()
	answers := []schemas.State{won, schemas.StateTooLate, schemas.StateNotFound, schemas.StateStale, schemas.StateRejected}
	asked := schemas.DefaultID(p.Intake, p.Partition, p.Offset)
	mine := func(e event) bool { return e.Request == asked || e.Request == "" } // older scanners do not name the request
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
		return command.ErrReported
	}
	return nil
}
