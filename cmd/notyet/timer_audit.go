package main

import (
	"fmt"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/cmd/internal/command"
)

type timerAuditCmd struct {
	timerName
	From string `help:"Runs at this instant or later: RFC 3339, Unix milliseconds, or a duration ago. Default a day before --to." placeholder:"TIME"`
	To   string `help:"Runs before this instant, in the forms of --from. Default now." placeholder:"TIME"`
}

// mostAudited is how many runs the command prints.
const mostAudited = 100_000

func (timerAuditCmd) Help() string {
	return `Prints each run that the timer's expression has in the range, with the state of its task. Without a task the state is coming (the timer has
still to make it), missed (with the reason: misfire, overlap, disabled, dropped), not_expected (before_from, after_until, not_set, disabled) or
unknown (forgotten, replaced, no_trace): nothing says whether it was sent. LATE is a lower bound.
` + whereFrom + `
Exit code 1 if there is no such timer. Missed runs do not change it: see --json.

Examples:
  notyet timer audit orders nightly --from 168h
  notyet timer audit orders nightly --json | jq '.runs[] | select(.state == "missed")'`
}

func (c *timerAuditCmd) Run(a *app) error {
	topic, id, err := c.name()
	if err != nil {
		return err
	}
	f := api.TimerAuditFilter{}
	if f.From, err = instantText("--from", c.From, -1); err != nil {
		return err
	}
	if f.To, err = instantText("--to", c.To, -1); err != nil {
		return err
	}
	return show(a, c.asking, func(b *backend) (api.TimerAudit, error) {
		out := api.TimerAudit{Runs: []api.AuditedRun{}}
		for {
			page, err := b.AuditTimer(a.Ctx, topic, id, f)
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
			f.From = api.TimeText(fmt.Sprint(page.Next))
		}
	}, a.audited)
}

func (a *app) audited(out api.TimerAudit) {
	rows := make([][]any, 0, len(out.Runs))
	for _, r := range out.Runs {
		late := ""
		if r.Late > 0 {
			late = fmt.Sprintf("%d ms", r.Late)
		}
		rows = append(rows, []any{stamp(r.At), r.State, r.Reason, late, command.Plain(r.ID)})
	}
	a.Table([]any{"AT", "STATE", "REASON", "LATE", "ID"}, rows)
	fmt.Fprintf(a.Stdout, "expected %d: made %d (late %d), missed %d, unknown %d, still to come %d\n", out.Expected, out.Made, out.Late, out.Missed, out.Unknown, out.Coming)
}
