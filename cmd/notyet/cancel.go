package main

import (
	"fmt"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/schemas"
)

type cancelCmd struct {
	target
	many
}

func (cancelCmd) Help() string {
	return `With --id, prints the answer: cancelled (no delivery follows), too_late (it was or will be delivered: notyet stop ends its attempts), not_found, or stale.
Exit code 0 only for cancelled. Use the same key for all requests about a task. A cancel with another key may arrive
before the schedule request; with --version it takes effect even then.

Without --id, cancels all stored tasks that the filter selects, and prints how many. Those that are being delivered,
or wait for a report or another attempt, are too late; notyet stop ends the attempts of one.
` + whereFrom + ` Asks for confirmation on a terminal.
` + withAsync + `

Examples:
  notyet cancel -t orders --id-prefix customer-17- --dry-run
  notyet cancel -t orders --from 0h --to 24h --yes
  notyet cancel --tag campaign --async
  notyet cancel -t orders --id 4711 --key 4711
  notyet cancel -t orders --id 4711 --version 3 --json
  notyet cancel -t https://shop.example --id 4711`
}

func (c *cancelCmd) Run(a *app) error {
	if c.ID+c.First == "" { // arguments name one task
		return c.cancelMany(a, c.target)
	}
	if err := c.alone(); err != nil {
		return err
	}
	return c.ask(a, schemas.OpCancel, schemas.StateCancelled)
}

type stopCmd struct{ target }

func (stopCmd) Help() string {
	return `Prints the answer: stopped (it waited for a report or a retry: no further delivery follows, and a later report changes nothing),
cancelled (it was not delivered), too_late (its delivery was the last one), not_found, or stale. A task that is being delivered is
answered when the outcome is known. Exit code 0 only for stopped and cancelled.

Example:
  notyet stop -t orders --id 4711 --key 4711`
}

func (c *stopCmd) Run(a *app) error {
	return c.ask(a, schemas.OpStop, schemas.StateStopped, schemas.StateCancelled)
}

type fireCmd struct{ target }

func (fireCmd) Help() string {
	return `Prints the answer: fired (of a task that waits for a retry its next attempt), too_late (it was or will be delivered anyway), or not_found.
Exit code 0 only for fired.

Example:
  notyet fire -t orders --id 4711 --key 4711`
}

func (c *fireCmd) Run(a *app) error { return c.ask(a, schemas.OpFire, schemas.StateFired) }

// many holds the flags of cancel without an id.
type many struct {
	Prefix string `group:"Many" help:"All tasks whose id begins with this text." name:"id-prefix" placeholder:"TEXT"`
	Tag    string `group:"Many" help:"All tasks with this tag." placeholder:"TAG"`
	From   string `group:"Many" help:"All tasks due at this time or later: RFC 3339, Unix milliseconds, or a duration from now." placeholder:"TIME"`
	To     string `group:"Many" help:"All tasks due before this time, in the forms of --from." placeholder:"TIME"`
	All    bool   `group:"Many" help:"Without a filter: really every task."`
	DryRun bool   `group:"Many" help:"Only count what matches."`
	Yes    bool   `group:"Many" help:"Do not ask." short:"y"`
	Async  bool   `group:"Many" help:"Begin an operation, and print its id."`
}

// alone refuses flags without a meaning beside --id.
func (m *many) alone() error {
	if *m != (many{}) {
		return command.Usage("--id stands beside flags that select many tasks: leave it, or --id-prefix, --tag, --from, --to, --all, --dry-run, --yes and --async, out")
	}
	return nil
}

// cancelledMany is the output of cancel without an id.
type cancelledMany struct {
	api.CancelledMany      // of all pages
	DryRun            bool `json:"dry_run,omitempty"`
}

func (m *many) cancelMany(a *app, t target) error {
	if t.Key != nil || t.TaskVersion != "" || t.Intake != "" || t.NoWait {
		return command.Usage("--key, --version, --intake and --no-wait are for one task: add --id, or leave them out")
	}
	if t.URL != "" {
		return command.Usage("--url is for one task: add --id, or name the origin with --topic")
	}
	r := api.CancelMany{Topic: schemas.TargetName(t.Topic), IDPrefix: m.Prefix, Tag: m.Tag, All: m.All}
	var err error
	if r.From, r.To, err = span(m.From, m.To, +1); err != nil {
		return err
	}
	if selects := r.Topic != "" || r.IDPrefix != "" || r.Tag != "" || r.From != (api.Instant{}) || r.To != (api.Instant{}); selects == m.All {
		return command.Usage("which? say --id for one task, --topic, --id-prefix, --tag, --from or --to for many, or --all and none of them")
	}
	if m.Async {
		return a.begin(t.asking, m.DryRun, func(b *backend) (api.Operation, error) {
			if _, err := m.agreed(a, b, r); err != nil {
				return api.Operation{}, err
			}
			return b.BeginCancelMany(a.Ctx, r)
		})
	}
	return show(a, t.asking, func(b *backend) (cancelledMany, error) {
		if done, err := m.agreed(a, b, r); err != nil || m.DryRun {
			return done, err
		}
		return cancelAll(a, b, r, false)
	}, func(done cancelledMany) {
		if m.DryRun {
			fmt.Fprintf(a.Stdout, "would cancel %d\n", done.Matched)
			return
		}
		fmt.Fprintf(a.Stdout, "cancelled %d, too late %d\n", done.Cancelled, done.TooLate)
	})
}

// agreed counts where that is asked for, and asks the person at the terminal.
func (m *many) agreed(a *app, b *backend, r api.CancelMany) (done cancelledMany, err error) {
	if !m.DryRun && (m.Yes || !a.isAttended()) {
		return done, nil
	}
	if done, err = cancelAll(a, b, r, true); err != nil || m.DryRun {
		return done, err
	}
	if done.Matched > 0 && !a.confirm(fmt.Sprintf("Cancel %d tasks?", done.Matched)) {
		return done, command.Usage("nothing was cancelled")
	}
	return done, nil
}

// cancelAll goes on until there is no cursor.
func cancelAll(a *app, b *backend, r api.CancelMany, dryRun bool) (cancelledMany, error) {
	out := cancelledMany{DryRun: dryRun}
	for r.DryRun = dryRun; ; {
		page, err := b.CancelMany(a.Ctx, r)
		out.Cancelled, out.TooLate, out.Matched = out.Cancelled+page.Cancelled, out.TooLate+page.TooLate, out.Matched+page.Matched
		if err != nil {
			return out, fmt.Errorf("%w (%d tasks were cancelled before: the same command goes on)", err, out.Cancelled)
		}
		if r.Cursor = page.Cursor; r.Cursor == "" {
			return out, nil
		}
	}
}
