package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/store/look"
)

type getCmd struct {
	asking
	one
}

func (getCmd) Help() string {
	return whereFrom + `
Exit code 1 if there is no such task.

Examples:
  notyet get orders 4711
  notyet get -t orders --id notyet.intake/3/42 --json | jq -r .state`
}

func (c *getCmd) Run(a *app) error {
	return show(a, c.asking, func(b *backend) (api.Task, error) {
		t, err := b.Task(a.Ctx, c.Topic, c.ID)
		if errors.Is(err, look.ErrNotFound) {
			err = fmt.Errorf("%w; a rejected request is in `%s deadletter list --kind rejected`", err, a.Program)
		}
		return t, err
	}, a.task)
}

func (a *app) task(t api.Task) {
	replay := ""
	if t.Replay > 0 {
		replay = strconv.Itoa(t.Replay)
	}
	pairs(a.Stdout, "topic", t.Topic, "id", command.Plain(t.ID), "state", t.State, "due", when(t.Due))
	if t.Next != t.Due {
		pairs(a.Stdout, "next", when(t.Next))
	}
	if t.Why != nil {
		pairs(a.Stdout, "why", command.Plain(t.Why.Detail))
	}
	pairs(a.Stdout, "attempt", strconv.Itoa(t.Attempt), "replay", replay, "version", optional(t.Version), "created", when(t.Created))
	runSettings(a.Stdout, t.Settings)
	for _, e := range t.Events {
		pairs(a.Stdout, "event", eventLine(e))
	}
	for _, e := range t.Changes {
		pairs(a.Stdout, "change", strings.TrimSpace(stamp(e.At)+" "+e.What+" by "+command.Plain(e.Who)+" "+command.Plain(e.User)))
	}
	for _, w := range t.Waiting {
		pairs(a.Stdout, "waiting", strings.TrimSpace(w.Op+" "+w.Request)+", for "+w.For)
	}
	if more := t.Waits - len(t.Waiting); more > 0 {
		pairs(a.Stdout, "waiting", fmt.Sprintf("%d more", more))
	}
	content(a.Stdout, t.Content)
}

func eventLine(e api.TaskEvent) string {
	at := "at a time that is not kept:"
	if e.At != 0 {
		at = stamp(e.At)
	}
	words := []string{at, string(e.State)}
	if e.Attempt > 0 {
		words = append(words, fmt.Sprintf("attempt %d", e.Attempt))
	}
	if e.Reason != "" {
		words = append(words, "("+command.Plain(e.Reason)+")")
	}
	return strings.Join(words, " ")
}

type listCmd struct {
	asking
	ofTarget
	ID      string `help:"The tasks with this id, of all targets and in any state." name:"id" placeholder:"ID"`
	Prefix  string `help:"Only tasks whose id begins with this text." name:"id-prefix" placeholder:"TEXT"`
	Tag     string `help:"Only tasks with this tag, in order of due time." placeholder:"TAG"`
	State   string `help:"Only tasks in this state, such as pending, waiting_retry or dead." placeholder:"STATE"`
	To      string `help:"Only tasks due before this time, in the forms of --from." placeholder:"TIME"`
	From    string `help:"Only tasks due at this time or later: RFC 3339, Unix milliseconds, or a duration from now." placeholder:"TIME"`
	Limit   int    `default:"100" help:"At most this many, 1 to 1000." placeholder:"N" short:"n"`
	Ended   bool   `help:"Tasks that ended last instead of those due next."`
	Content bool   `help:"With --json: with key, value and headers."`
}

func (listCmd) Help() string {
	return whereFrom + `

Examples:
  notyet list orders -n 20
  notyet list --from 24h
  notyet list --id 4711
  notyet list --ended --json | jq '.[] | select(.state == "dead")'`
}

func (c *listCmd) Run(a *app) error {
	if c.Limit < 1 || c.Limit > 1000 {
		return command.Usage("--limit %d: write 1 to 1000", c.Limit)
	}
	from, to, err := span(c.From, c.To, +1)
	if err != nil {
		return err
	}
	f := api.TaskFilter{Topic: c.Topic, ID: c.ID, IDPrefix: c.Prefix, Tag: c.Tag, State: c.State, From: from, To: to, Ended: c.Ended, Content: c.Content}
	return show(a, c.asking, func(b *backend) ([]api.Task, error) {
		return listed(c.Limit, func(room int, cursor string) ([]api.Task, string, error) {
			f.Limit, f.Cursor = room, cursor
			page, err := b.Tasks(a.Ctx, f)
			return page.Tasks, page.Cursor, err
		})
	}, func(tasks []api.Task) {
		table(a, "no tasks", []any{"DUE", "STATE", "TOPIC", "ID", "ATTEMPT"}, tasks, func(t api.Task) []any {
			return []any{when(t.Due), t.State, t.Topic, command.Plain(t.ID), t.Attempt}
		})
	})
}

type forecastCmd struct {
	asking
	ofTarget
	Tag  string        `help:"Only tasks with this tag." placeholder:"TAG"`
	From string        `help:"Start: RFC 3339, Unix milliseconds, or a duration from now. Default now." placeholder:"TIME"`
	To   string        `help:"End, exclusive, in the forms of --from. Default an hour after --from." placeholder:"TIME"`
	Step time.Duration `default:"1m" help:"Length of a step, at least 1s; at most 10080 steps." placeholder:"DURATION"`
}

func (forecastCmd) Help() string {
	return whereFrom + `
Prints how many tasks are due in each step. Steps without tasks are left out.

Examples:
  notyet forecast
  notyet forecast orders --to 24h --step 1h --json | jq '.steps[].count'`
}

func (c *forecastCmd) Run(a *app) error {
	if c.Step < time.Second {
		return command.Usage("--step %s: write 1s or more", c.Step)
	}
	from, to, err := span(c.From, c.To, +1)
	if err != nil {
		return err
	}
	return show(a, c.asking, func(b *backend) (api.Forecast, error) {
		return wholeForecast(a.Ctx, b, api.ForecastFilter{Topic: c.Topic, Tag: c.Tag, From: from.Millis(), To: to.Millis(), Step: c.Step})
	}, func(f api.Forecast) {
		table(a, "no tasks", []any{"FROM", "TASKS"}, f.Steps, func(s api.ForecastStep) []any { return []any{when(s.At), s.Count} })
	})
}

// wholeForecast goes on where there was no time to count all at once. Steps of whole minutes are
// asked for as minutes: a step is counted as a whole, and an hour may be too much for one request.
func wholeForecast(ctx context.Context, b tasks, f api.ForecastFilter) (api.Forecast, error) {
	f.From = cmp.Or(f.From, time.Now().UnixMilli())
	f.To = cmp.Or(f.To, f.From+time.Hour.Milliseconds())
	begin, step := f.From, f.Step.Milliseconds()
	if f.Step%time.Minute == 0 && f.To-f.From <= api.MaxForecastSteps*time.Minute.Milliseconds() {
		f.Step = time.Minute
	}
	whole := api.Forecast{Steps: []api.ForecastStep{}}
	for {
		part, err := b.Forecast(ctx, f)
		if err != nil {
			return api.Forecast{}, err
		}
		whole.Missing = part.Missing
		for _, s := range part.Steps {
			s.At -= (s.At - begin) % step
			if last := len(whole.Steps) - 1; last >= 0 && whole.Steps[last].At == s.At {
				whole.Steps[last].Count += s.Count
				continue
			}
			whole.Steps = append(whole.Steps, s)
		}
		if part.Next <= f.From {
			return whole, nil
		}
		f.From = part.Next
	}
}
