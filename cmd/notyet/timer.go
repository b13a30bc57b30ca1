package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/schemas"
)

type timerCmd struct {
	Set     timerSetCmd     `cmd:"" help:"Make a timer, or replace it, and print the answer."`
	List    timerListCmd    `cmd:"" help:"List timers in the order of their topics and ids."`
	Show    timerShowCmd    `aliases:"get" cmd:"" help:"Show one timer with the key, value and headers of its runs."`
	Enable  timerEnableCmd  `cmd:"" help:"Run a disabled timer again, and print the answer."`
	Disable timerDisableCmd `cmd:"" help:"Stop a timer until it is enabled, and print the answer."`
	Delete  timerDeleteCmd  `cmd:"" help:"Delete a timer, and print the answer."`
	Preview timerPreviewCmd `cmd:"" help:"Print the next runs of a definition, without making a timer."`

	RunNow   timerRunCmd      `cmd:"" help:"Make one run now, and print it." name:"run"`
	Audit    timerAuditCmd    `cmd:"" help:"Compare the runs that a timer should have had with those that were made."`
	Backfill timerBackfillCmd `cmd:"" help:"Make the runs of a range that do not exist, and print how many."`
}

type definition struct {
	Cron     string `help:"Cron expression: 5 fields, 6 with seconds in front, or a nickname such as @daily." placeholder:"EXPR" xor:"when"`
	Every    string `help:"Time from one run to the next, at least 1s: 90s, PT30M. Runs are at --from plus a multiple of it." placeholder:"DURATION" xor:"when"`
	Timezone string `help:"IANA time zone of the cron expression. Default UTC. Not with --every." placeholder:"ZONE"`
	From     string `help:"First instant at which a run may be: RFC 3339, Unix milliseconds, or a local time in --timezone. Default now." placeholder:"TIME"`
	Until    string `help:"Last such instant. Default none." placeholder:"TIME"`
}

func (d *definition) api() api.Definition {
	return api.Definition{Cron: d.Cron, Every: d.Every, Timezone: d.Timezone, From: api.TimeText(d.From), Until: api.TimeText(d.Until)}
}

type timerSetCmd struct {
	target
	definition
	carried
	Method  string `help:"With --url: POST (default), PUT, PATCH, DELETE or GET." placeholder:"METHOD"`
	Jitter  string `help:"Each run is due up to this much later." placeholder:"DURATION"`
	Misfire string `help:"What to do about missed runs: deliver the latest (once, default), none (skip) or each (all)." placeholder:"once|skip|all"`
	Overlap string `help:"With --ack report: make no run while an earlier one is unfinished (skip), or make it (allow, default)." placeholder:"allow|skip"`

	delivery
}

func (timerSetCmd) Help() string {
	return `A run is an ordinary task with the id ID@MILLISECONDS. Prints the answer, whose due time is the next run. Exit code 0 only for timer_set.

Examples:
  notyet timer set -t orders --id nightly --cron '30 2 * * *' --timezone Europe/Berlin --value '{"close":true}'
  notyet timer set --url https://shop.example/close --id nightly --cron '30 2 * * *' --value '{"close":true}'
  notyet timer set -t orders --id poll --every 90s --jitter 10s --misfire skip --value poll`
}

func (c *timerSetCmd) Run(a *app) error {
	way, err := a.publishing(c.Settings, c.Servers, c.Intake, c.Topic, c.URL)
	if err != nil {
		return err
	}
	request, err := c.request(a.Stdin)
	if err != nil {
		return err
	}
	if way.service != nil {
		done, err := way.service.SetTimer(a.Ctx, api.Target{Intake: c.Intake, Topic: c.Topic, ID: c.ID}, *request, c.patience())
		return c.answered(a, done, err, schemas.StateTimerSet)
	}
	record, err := request.Record(c.Topic, c.ID, way.in)
	if err != nil {
		return command.UsageError{Err: err}
	}
	return c.publishAndAnswer(a, way.cfg, record, schemas.StateTimerSet)
}

func (c *timerSetCmd) request(stdin io.Reader) (*api.SetTimer, error) {
	out := &api.SetTimer{URL: c.URL, Method: c.Method, Definition: c.api(), Jitter: c.Jitter, Misfire: c.Misfire, Overlap: c.Overlap}
	if err := number("--version", c.TaskVersion, &out.Version); err != nil {
		return nil, err
	}
	var err error
	if out.DeliverySettings, err = c.delivery.request(); err != nil {
		return nil, err
	}
	out.Content, err = c.content(c.Key, stdin)
	return out, err
}

type timerEnableCmd struct{ target }

func (c *timerEnableCmd) Run(a *app) error {
	return c.ask(a, schemas.OpTimerEnable, schemas.StateTimerEnabled)
}

type timerDisableCmd struct{ target }

func (c *timerDisableCmd) Run(a *app) error {
	return c.ask(a, schemas.OpTimerDisable, schemas.StateTimerDisabled)
}

type timerDeleteCmd struct{ target }

func (c *timerDeleteCmd) Run(a *app) error {
	return c.ask(a, schemas.OpTimerDelete, schemas.StateTimerDeleted)
}

type timerPreviewCmd struct {
	command.Settings
	definition
	command.AsJSON
	Count int `default:"10" help:"How many runs to print, 1 to 1000." placeholder:"N" short:"n"`
}

func (timerPreviewCmd) Help() string {
	return `Prints each run in its zone and in UTC, without jitter, and marks those that daylight saving moved to the end of a gap. Needs no server.

Examples:
  notyet timer preview --cron '30 2 * * *' --timezone Europe/Berlin --from 2027-03-26T00:00:00Z -n 4
  notyet timer preview --every 36h --from 2027-01-01T08:00:00Z`
}

func (c *timerPreviewCmd) Run(a *app) error {
	if c.Count < 1 {
		return command.Usage("--count %d: write 1 to %d", c.Count, api.MostPreviewed)
	}
	preview := api.Preview{Definition: c.api(), Count: c.Count}
	found, err := preview.Runs()
	if err != nil {
		return command.UsageError{Err: err}
	}
	if c.JSON {
		return a.JSON(found)
	}
	table(a, "", []any{"IN " + cmp.Or(c.Timezone, "UTC"), "IN UTC", "UNIX MS", ""}, found.Runs, func(r api.Run) []any {
		moved := ""
		if r.Moved {
			moved = "moved by daylight saving"
		}
		return []any{r.Local, time.UnixMilli(r.At).UTC().Format(time.RFC3339Nano), strconv.FormatInt(r.At, 10), moved}
	})
	return nil
}

type timerListCmd struct {
	asking
	ofTarget
	Prefix string `help:"Only timers whose id begins with this text." name:"id-prefix" placeholder:"TEXT"`
	Limit  int    `default:"100" help:"At most this many, 1 to 1000." placeholder:"N" short:"n"`
}

func (timerListCmd) Help() string {
	return whereFrom + `

Examples:
  notyet timer list orders
  notyet timer list --json | jq '.[] | select(.state == "disabled") | .id'`
}

func (c *timerListCmd) Run(a *app) error {
	if c.Limit < 1 || c.Limit > 1000 {
		return command.Usage("--limit %d: write 1 to 1000", c.Limit)
	}
	return show(a, c.asking, func(b *backend) ([]api.Timer, error) {
		return listed(c.Limit, func(room int, cursor string) ([]api.Timer, string, error) {
			page, err := b.Timers(a.Ctx, api.TimerFilter{Topic: c.Topic, IDPrefix: c.Prefix, Limit: room, Cursor: cursor})
			return page.Timers, page.Cursor, err
		})
	}, func(list []api.Timer) {
		table(a, "no timers", []any{"TOPIC", "ID", "STATE", "NEXT", "RUNS", "ZONE"}, list, func(t api.Timer) []any {
			return []any{t.Topic, t.ID, t.State, when(t.Next), rhythm(t), t.Timezone}
		})
	})
}

func rhythm(t api.Timer) string {
	if t.Every != "" {
		return "every " + t.Every
	}
	return t.Cron
}

type timerShowCmd struct{ timerName }

func (timerShowCmd) Help() string {
	return whereFrom + `
Exit code 1 if there is no such timer.

Example:
  notyet timer show orders nightly`
}

func (c *timerShowCmd) Run(a *app) error {
	return show(a, c.asking, func(b *backend) (api.Timer, error) { return b.Timer(a.Ctx, c.Topic, c.ID) }, a.timer)
}

func (a *app) timer(t api.Timer) {
	pairs(a.Stdout, "topic", t.Topic, "id", t.ID, "state", t.State, "next", when(t.Next), "runs", rhythm(t), "zone", t.Timezone, "from", when(t.From), "until", when(t.Until),
		"jitter", t.Jitter, "misfire", t.Misfire, "overlap", t.Overlap, "version", optional(t.Version), "created", when(t.Created))
	runSettings(a.Stdout, t.Settings)
	content(a.Stdout, t.Content)
}

type timerName struct {
	asking
	one
}

type timerRunCmd struct {
	timerName
	At string `help:"The instant that names the run: RFC 3339, Unix milliseconds, or a duration ago. A command that is repeated with it makes no second run. Default now." placeholder:"TIME"`
}

func (timerRunCmd) Help() string {
	return `Makes one run of the timer, due now, whether the timer is enabled or not. The run is an ordinary task with the id ID@MILLISECONDS, and
exists when the command returns. With notyet-overlap skip it is dropped if an earlier run is unfinished.
` + whereFrom + `
Exit code 1 if there is no such timer.

Examples:
  notyet timer run orders nightly
  notyet timer run orders nightly --at 2027-01-31T01:30:00Z --json`
}

func (c *timerRunCmd) Run(a *app) error {
	at, err := instant("--at", c.At, -1)
	if err != nil {
		return err
	}
	return show(a, c.asking, func(b *backend) (api.TimerRun, error) {
		return b.RunTimer(a.Ctx, c.Topic, c.ID, api.RunTimer{At: at})
	}, func(run api.TimerRun) {
		what := "made"
		if !run.Made {
			what = "was there"
		}
		fmt.Fprintf(a.Stdout, "%s %s of %s\n", what, command.Plain(run.ID), run.Topic)
	})
}

type timerBackfillCmd struct {
	timerName
	From      string `help:"Runs at this instant or later: RFC 3339, Unix milliseconds, or a duration ago." placeholder:"TIME" required:""`
	To        string `help:"Runs before this instant, in the forms of --from. Default now." placeholder:"TIME"`
	DryRun    bool   `help:"Only count, and make nothing."`
	Forgotten bool   `help:"Also make runs of which nobody remembers whether they were made (dispatcher.retention)."`
	inBackground
}

func (timerBackfillCmd) Help() string {
	return `Makes the runs that the timer's expression has in the range and that do not exist, the oldest first. Each is due at once, has the id that it
would have had, and exists once: runs that are pending or have ended are left alone, runs that were dropped are made. What the timer has
still to make itself is left to it. A command that was stopped is finished by the same command.
` + withAsync + `
` + whereFrom + `
Exit code 1 if there is no such timer.

Examples:
  notyet timer backfill orders nightly --from 72h --dry-run
  notyet timer backfill orders nightly --from 2027-01-01T00:00:00Z --to 2027-02-01T00:00:00Z`
}

func (c *timerBackfillCmd) Run(a *app) error {
	from, to, err := span(c.From, c.To, -1)
	if err != nil {
		return err
	}
	r := api.Backfill{From: from, To: to, DryRun: c.DryRun, Forgotten: c.Forgotten}
	if c.Async {
		return a.begin(c.asking, c.DryRun, func(b *backend) (api.Operation, error) { return b.BeginBackfill(a.Ctx, c.Topic, c.ID, r) })
	}
	return show(a, c.asking, func(b *backend) (backfilled, error) {
		done := backfilled{DryRun: c.DryRun}
		for {
			page, err := b.BackfillTimer(a.Ctx, c.Topic, c.ID, r)
			done.Made, done.Existing, done.Coming, done.Forgotten = done.Made+page.Made, done.Existing+page.Existing, done.Coming+page.Coming, done.Forgotten+page.Forgotten
			done.BeforeSet += page.BeforeSet
			if err != nil && done.Made > 0 {
				err = fmt.Errorf("%w (the same command goes on)", err)
			}
			if err != nil || page.Next == 0 {
				return done, err
			}
			r.From = api.At(page.Next)
		}
	}, func(done backfilled) {
		made := "made"
		if c.DryRun {
			made = "would make"
		}
		fmt.Fprintf(a.Stdout, "%s %d, were there %d, still to come %d, forgotten %d\n", made, done.Made, done.Existing, done.Coming, done.Forgotten)
		if done.BeforeSet > 0 {
			fmt.Fprintf(a.Stderr, "%d of them are from before the timer was set: write a later --from to leave these out\n", done.BeforeSet)
		}
		if done.Forgotten > 0 {
			fmt.Fprintln(a.Stderr, "of the forgotten runs nobody remembers whether they were made; --forgotten makes them")
		}
	})
}

// backfilled is the output of backfill.
type backfilled struct {
	api.Backfilled      // of all pages
	DryRun         bool `json:"dry_run,omitempty"`
}

type timerAuditCmd struct {
	timerName
	From string `help:"Runs at this instant or later: RFC 3339, Unix milliseconds, or a duration ago. Default a day before --to." placeholder:"TIME"`
	To   string `help:"Runs before this instant, in the forms of --from. Default now." placeholder:"TIME"`

	Limit int `default:"100" help:"List the latest of the runs, at most this many. The sums, and --json, have all." placeholder:"N" short:"n"`
}

// mostAudited is how many runs the command prints.
const mostAudited = 100_000

func (timerAuditCmd) Help() string {
	return `Prints each run that the timer's expression has in the range, with the state of its task. Without a task the state is coming (the timer has
still to make it), missed (with the reason: misfire, overlap, disabled, dropped), not_expected (before_from, after_until, not_set, disabled) or
unknown (forgotten, replaced, no_trace): nothing says whether it was sent. Of a plain delivery nothing says how late it was either.
` + whereFrom + `
Exit code 1 if there is no such timer. Missed runs do not change it: see --json.

Examples:
  notyet timer audit orders nightly --from 168h
  notyet timer audit orders nightly --json | jq '.runs[] | select(.state == "missed")'`
}

func (c *timerAuditCmd) Run(a *app) error {
	from, to, err := span(c.From, c.To, -1)
	if err != nil {
		return err
	}
	if c.Limit < 1 || c.Limit > mostAudited {
		return command.Usage("--limit %d: write 1 to %d", c.Limit, mostAudited)
	}
	f := api.TimerAuditFilter{From: from, To: to}
	return show(a, c.asking, func(b *backend) (api.TimerAudit, error) {
		out := api.TimerAudit{Runs: []api.AuditedRun{}}
		for {
			page, err := b.AuditTimer(a.Ctx, c.Topic, c.ID, f)
			if err != nil {
				return out, err
			}
			out.Add(page)
			if page.Next == 0 {
				return out, nil
			}
			if len(out.Runs) >= mostAudited {
				return out, command.Usage("--from and --to hold more than %d runs: write a shorter range", mostAudited)
			}
			f.From = api.At(page.Next)
		}
	}, func(out api.TimerAudit) { a.audited(out, c.Limit) })
}

// audited lists the latest runs, and sums all.
func (a *app) audited(out api.TimerAudit, most int) {
	listed := out.Runs[max(len(out.Runs)-most, 0):]
	table(a, "", []any{"AT", "STATE", "REASON", "LATE", "ID"}, listed, func(r api.AuditedRun) []any {
		late := ""
		switch {
		case r.NotKnown:
			late = "not known"
		case r.Late > 0:
			late = fmt.Sprintf("at least %d ms", r.Late)
		}
		return []any{stamp(r.At), r.State, r.Reason, late, command.Plain(r.ID)}
	})
	if left := len(out.Runs) - len(listed); left > 0 {
		fmt.Fprintf(a.Stdout, "%d earlier runs are not listed (--limit)\n", left)
	}
	fmt.Fprintf(a.Stdout, "expected %d: made %d (known to be late %d, not known %d), missed %d, unknown %d, still to come %d\n", out.Expected, out.Made, out.Late, out.NotKnown, out.Missed, out.Unknown, out.Coming)
	if out.Replaced > 0 {
		fmt.Fprintf(a.Stdout, "until %s the timer had another definition: runs that only that one had are not listed\n", stamp(out.Replaced))
	}
}
