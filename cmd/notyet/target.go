package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/schemas"
)

type targetCmd struct {
	Pause  targetPauseCmd  `cmd:"" help:"Deliver nothing to a target until it is resumed."`
	Resume targetResumeCmd `cmd:"" help:"Deliver to a paused target again; its limits stay."`
	Limit  targetLimitCmd  `cmd:"" help:"Limit what a target gets, or take its limits back."`
	List   targetListCmd   `cmd:"" help:"List the targets that are paused or limited."`
}

// policyOf is the common part of commands that change a target.
type policyOf struct {
	asking
	Target string `arg:"" help:"Target topic, or origin of callbacks such as https://shop.example." name:"target"`
}

const aboutPolicies = `It is in force on all dispatchers within a second, until it is taken back. Meanwhile the target's tasks can be cancelled (those between two attempts: notyet stop), cost the tasks of other targets no lateness, and go on in order of due time.`

type targetPauseCmd struct {
	policyOf
	Until string `help:"End the pause then: RFC 3339, Unix ms, or a duration from now such as 90m. Default: notyet target resume." placeholder:"TIME"`
}

func (targetPauseCmd) Help() string {
	return aboutPolicies + `
What was handed to Kafka before is delivered. notyet-max-lateness is judged when the target is resumed.

Example:
  notyet target pause orders
  notyet target pause orders --until 2h`
}

func (c *targetPauseCmd) Run(a *app) error {
	until, err := instant("--until", c.Until, 1)
	if err != nil {
		return err
	}
	return c.change(a, api.TargetChange{Paused: new(true), Until: until})
}

type targetResumeCmd struct{ policyOf }

func (targetResumeCmd) Help() string {
	return `Its limits stay: take them back with notyet target limit TARGET --rate 0 --max-in-flight 0.

Example:
  notyet target resume orders`
}

func (c *targetResumeCmd) Run(a *app) error { return c.change(a, api.TargetChange{Paused: new(false)}) }

type targetLimitCmd struct {
	policyOf
	Rate        string `help:"Tasks a second of all dispatchers together, such as 100/s or 0.5/s; 0: no limit." placeholder:"N/s"`
	MaxInFlight *int   `help:"Records that are sent and not acknowledged, of all dispatchers together; 0: no limit." placeholder:"N"`
}

func (targetLimitCmd) Help() string {
	return aboutPolicies + `
A limit that is left out stays as it is. Each dispatcher has a share by the slots it owns, and at least one record in flight.

Examples:
  notyet target limit orders --rate 100/s
  notyet target limit orders --max-in-flight 20
  notyet target limit orders --rate 0 --max-in-flight 0`
}

func (c *targetLimitCmd) Run(a *app) error {
	if c.Rate == "" && c.MaxInFlight == nil {
		return command.Usage("give --rate N/s, --max-in-flight N, or both; 0 takes a limit back")
	}
	change := api.TargetChange{MaxInFlight: c.MaxInFlight}
	if c.Rate != "" {
		perSecond, err := parseRate(c.Rate)
		if err != nil {
			return err
		}
		change.Rate = &perSecond
	}
	return c.change(a, change)
}

// parseRate reads N/s, or N alone.
func parseRate(text string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "/s"), 64)
	if err != nil || n < 0 || math.IsInf(n, 0) || math.IsNaN(n) {
		return 0, command.Usage("--rate %q: write tasks a second such as 100/s or 0.5/s, or 0 for no limit", text)
	}
	return n, nil
}

func (c *policyOf) change(a *app, change api.TargetChange) error {
	return show(a, c.asking, func(b *backend) (api.TargetPolicy, error) {
		doubt := c.doubt(a, b)
		now, err := b.ChangeTarget(a.Ctx, c.Target, change)
		if err == nil {
			fmt.Fprint(a.Stderr, doubt)
		}
		return now, err
	}, func(now api.TargetPolicy) {
		a.targets([]api.TargetPolicy{now})
	})
}

// doubt says that no task has the target: its name may have a slip, and the real one goes on.
func (c *policyOf) doubt(a *app, b *backend) string {
	known, err := b.Targets(a.Ctx, api.TargetFilter{Like: c.Target})
	if err != nil || len(known.Targets) > 0 && known.Targets[0].Topic == schemas.TargetName(c.Target) {
		return ""
	}
	meant := ""
	for _, t := range known.Targets {
		meant += " " + command.Plain(t.Topic)
	}
	if meant != "" {
		meant = "; did you mean" + meant + "?"
	}
	return fmt.Sprintf("no task has the target %s%s\n", command.Plain(c.Target), meant)
}

type targetListCmd struct{ asking }

func (targetListCmd) Help() string {
	return whereFrom + `
HELD are tasks that are due and kept back, counted up to 1000. A target that was resumed is listed until all of them have gone.

Example:
  notyet target list --json | jq '.[] | select(.paused)'`
}

func (c *targetListCmd) Run(a *app) error {
	return show(a, c.asking, func(b *backend) ([]api.TargetPolicy, error) {
		all, err := b.Targets(a.Ctx, api.TargetFilter{})
		return all.Targets, err
	}, a.targets)
}

func (a *app) targets(all []api.TargetPolicy) {
	table(a, "no target is paused or limited", []any{"TARGET", "STATE", "RATE", "MAX IN FLIGHT", "HELD", "CHANGED"}, all, func(t api.TargetPolicy) []any {
		state, pace, inFlight, held, since := "open", "-", "-", strconv.Itoa(t.Held), "-"
		if t.Paused && t.Until > 0 {
			state = "paused until " + stamp(t.Until)
		} else if t.Paused {
			state = "paused"
		} else if t.Rate > 0 || t.MaxInFlight > 0 {
			state = "limited"
		}
		if t.Rate > 0 {
			pace = strconv.FormatFloat(t.Rate, 'f', -1, 64) + "/s"
		}
		if t.MaxInFlight > 0 {
			inFlight = strconv.Itoa(t.MaxInFlight)
		}
		if t.Held >= 1000 {
			held = "1000 or more"
		}
		if t.Changed > 0 {
			since = stamp(t.Changed)
		}
		return []any{command.Plain(t.Topic), state, pace, inFlight, held, since}
	})
}
