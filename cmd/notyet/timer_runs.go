package main

import (
	"fmt"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/cmd/internal/command"
)

// timerName names a timer, by arguments or by the flags that the other commands about timers have.
type timerName struct {
	asking
	Target  string `arg:"" help:"Target topic of the timer, or the origin of its callbacks." name:"target" optional:""`
	TimerID string `arg:"" help:"The timer's id." name:"timer" optional:""`
	Topic   string `help:"The target, instead of the argument." placeholder:"TOPIC" short:"t"`
	ID      string `help:"The timer's id, instead of the argument." name:"id" placeholder:"ID"`
}

// name returns what the arguments or the flags say.
func (n *timerName) name() (topic, id string, err error) {
	arguments := []string{n.Target, n.TimerID}
	if n.Topic != "" && n.TimerID == "" { // the only argument is the id, if there is one
		arguments = []string{"", n.Target}
	}
	pick := func(argument, flag, what string) string {
		if err == nil && (argument == "") == (flag == "") {
			err = command.Usage("name the timer's %s once: TARGET ID, or --topic and --id", what)
		}
		return argument + flag
	}
	topic, id = pick(arguments[0], n.Topic, "target"), pick(arguments[1], n.ID, "id")
	return topic, id, err
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
	topic, id, err := c.name()
	if err != nil {
		return err
	}
	at, err := instantText("--at", c.At, -1)
	if err != nil {
		return err
	}
	return show(a, c.asking, func(b *backend) (api.TimerRun, error) {
		return b.RunTimer(a.Ctx, topic, id, api.RunTimer{At: at})
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
}

func (timerBackfillCmd) Help() string {
	return `Makes the runs that the timer's expression has in the range and that do not exist, the oldest first. Each is due at once, has the id that it
would have had, and exists once: runs that are pending or have ended are left alone, runs that were dropped are made. What the timer has
still to make itself is left to it. A command that was stopped is finished by the same command.
` + whereFrom + `
Exit code 1 if there is no such timer.

Examples:
  notyet timer backfill orders nightly --from 72h --dry-run
  notyet timer backfill orders nightly --from 2027-01-01T00:00:00Z --to 2027-02-01T00:00:00Z`
}

func (c *timerBackfillCmd) Run(a *app) error {
	topic, id, err := c.name()
	if err != nil {
		return err
	}
	r := api.Backfill{DryRun: c.DryRun, Forgotten: c.Forgotten}
	if r.From, err = instantText("--from", c.From, -1); err != nil {
		return err
	}
	if r.To, err = instantText("--to", c.To, -1); err != nil {
		return err
	}
	return show(a, c.asking, func(b *backend) (backfilled, error) {
		done := backfilled{DryRun: c.DryRun}
		for {
			page, err := b.BackfillTimer(a.Ctx, topic, id, r)
			done.Made, done.Existing, done.Coming, done.Forgotten = done.Made+page.Made, done.Existing+page.Existing, done.Coming+page.Coming, done.Forgotten+page.Forgotten
			if err != nil && done.Made > 0 {
				err = fmt.Errorf("%w (the same command goes on)", err)
			}
			if err != nil || page.Next == 0 {
				return done, err
			}
			r.From = api.TimeText(fmt.Sprint(page.Next))
		}
	}, func(done backfilled) {
		made := "made"
		if c.DryRun {
			made = "would make"
		}
		fmt.Fprintf(a.Stdout, "%s %d, were there %d, still to come %d, forgotten %d\n", made, done.Made, done.Existing, done.Coming, done.Forgotten)
		if done.Forgotten > 0 {
			fmt.Fprintln(a.Stderr, "of the forgotten runs nobody remembers whether they were made; --forgotten makes them")
		}
	})
}

// backfilled is what backfill prints.
type backfilled struct {
	Made      int  `json:"made"`
	Existing  int  `json:"existing"`
	Coming    int  `json:"coming"`
	Forgotten int  `json:"forgotten"`
	DryRun    bool `json:"dry_run,omitempty"`
}
