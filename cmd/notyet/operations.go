package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
)

type operationsCmd struct {
	List operationsListCmd `cmd:"" help:"List operations, the latest first."`
	Show operationsShowCmd `aliases:"get" cmd:"" help:"Show how far an operation has come, and what it has done."`
	Stop operationsStopCmd `cmd:"" help:"Stop an operation; what is done stays."`
}

type operationsListCmd struct {
	asking
	Limit int `default:"100" help:"At most this many, 1 to 1000." placeholder:"N" short:"n"`
}

func (operationsListCmd) Help() string {
	return whereFrom + `
An operation is a change of many that was asked for with --async, ?async=true or in the console. A running one with a
reason in WHY tries again.

Examples:
  notyet operations list
  notyet operations list --json | jq '.[] | select(.state == "running") | .id'`
}

// operationsPage is the largest page of operations.
const operationsPage = 100

func (c *operationsListCmd) Run(a *app) error {
	if c.Limit < 1 || c.Limit > 1000 {
		return command.Usage("--limit %d: write 1 to 1000", c.Limit)
	}
	return show(a, c.asking, func(b *backend) ([]api.Operation, error) {
		return listed(c.Limit, func(room int, cursor string) ([]api.Operation, string, error) {
			page, err := b.Operations(a.Ctx, min(room, operationsPage), cursor)
			return page.Operations, page.Cursor, err
		})
	}, func(list []api.Operation) {
		table(a, "no operations", []any{"ID", "WHAT", "STATE", "DONE", "TOPIC", "TIMER", "WHO", "ASKED", "WHY"}, list, func(o api.Operation) []any {
			return []any{o.ID, o.What, o.State, doneOf(o), command.Plain(o.Topic), command.Plain(o.Timer), command.Plain(o.Who), when(o.At), shortened(command.Plain(o.Why), 80)}
		})
	})
}

func doneOf(o api.Operation) string {
	if o.Total == 0 && (o.Done > 0 || o.State != "done") {
		return fmt.Sprint(o.Done)
	}
	return fmt.Sprintf("%d of %d", o.Done, o.Total)
}

// oneOperation names an operation.
type oneOperation struct {
	asking
	ID int64 `arg:"" help:"Id of the operation, as list shows it."`
}

type operationsShowCmd struct{ oneOperation }

func (operationsShowCmd) Help() string {
	return whereFrom + `
Exit code 1 if there is no such operation. The last hundred that have ended are kept.

Examples:
  notyet operations show 17
  notyet operations show 17 --json | jq .result`
}

func (c *operationsShowCmd) Run(a *app) error {
	return show(a, c.asking, func(b *backend) (api.Operation, error) { return b.Operation(a.Ctx, c.ID) }, a.operation)
}

func (a *app) operation(o api.Operation) {
	pairs(a.Stdout, "operation", fmt.Sprint(o.ID), "what", o.What, "state", o.State, "done", doneOf(o), "result", resultOf(o), "topic", o.Topic, "timer", o.Timer,
		"request", string(o.Request), "who", o.Who, "asked", when(o.At), "last step", when(o.Changed), "why", o.Why)
	skips := o.Skips()
	for _, reason := range slices.Sorted(maps.Keys(skips)) {
		pairs(a.Stdout, "skipped", fmt.Sprintf("%d: %s", skips[reason], reason))
	}
}

// resultOf is a result's numbers.
func resultOf(o api.Operation) string {
	var parts []string
	for _, f := range o.Figures() {
		parts = append(parts, fmt.Sprintf("%s %d", f.Name, f.N))
	}
	return strings.Join(parts, ", ")
}

type operationsStopCmd struct{ oneOperation }

func (operationsStopCmd) Help() string {
	return whereFrom + `
Prints how far it had come. Exit code 1 if there is no such operation, or if it has ended.

Example:
  notyet operations stop 17`
}

func (c *operationsStopCmd) Run(a *app) error {
	return show(a, c.asking, func(b *backend) (api.Operation, error) { return b.StopOperation(a.Ctx, c.ID) }, a.operation)
}

// inBackground lets a change of many be an operation.
type inBackground struct {
	Async bool `help:"Begin an operation, and print its id."`
}

// withAsync explains the flag.
const withAsync = `With --async the services make the change by themselves, and go on after a restart: see notyet operations.`

// begin prints the operation that a command begins.
func (a *app) begin(c asking, dryRun bool, begin func(*backend) (api.Operation, error)) error {
	if dryRun {
		return command.Usage("--dry-run changes nothing, so no operation is needed: leave it or --async out")
	}
	return show(a, c, begin, func(o api.Operation) {
		fmt.Fprintf(a.Stdout, "operation %d goes on by itself: `%s operations show %d` tells how far it is\n", o.ID, a.Program, o.ID)
	})
}
