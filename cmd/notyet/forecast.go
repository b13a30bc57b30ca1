package main

import (
	"cmp"
	"context"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/cmd/internal/command"
)

type forecastCmd struct {
	asking
	Topic string        `help:"Only tasks for this target topic." placeholder:"TOPIC" short:"t"`
	Tag   string        `help:"Only tasks with this tag." placeholder:"TAG"`
	From  string        `help:"Start: RFC 3339, Unix milliseconds, or a duration from now. Default now." placeholder:"TIME"`
	To    string        `help:"End, exclusive, in the forms of --from. Default an hour after --from." placeholder:"TIME"`
	Step  time.Duration `default:"1m" help:"Length of a step, at least 1s; at most 10080 steps." placeholder:"DURATION"`
}

func (forecastCmd) Help() string {
	return whereFrom + `
Prints how many tasks are due in each step. Steps without tasks are left out.

Examples:
  notyet forecast
  notyet forecast -t orders --to 24h --step 1h --json | jq '.steps[].count'`
}

func (c *forecastCmd) Run(a *app) error {
	if c.Step < time.Second {
		return command.Usage("--step %s: write 1s or more", c.Step)
	}
	from, to, err := dueSpan(c.From, c.To)
	if err != nil {
		return err
	}
	return show(a, c.asking, func(b *backend) (api.Forecast, error) {
		return wholeForecast(a.Ctx, b, api.ForecastFilter{Topic: c.Topic, Tag: c.Tag, From: from, To: to, Step: c.Step})
	}, func(f api.Forecast) {
		table(a, "no tasks", []any{"FROM", "TASKS"}, f.Steps, func(s api.ForecastStep) []any { return []any{when(s.At), s.Count} })
	})
}

// wholeForecast goes on where there was no time to count all at once. It asks for minutes where they make up the steps: a step is
// counted as a whole, and in an hour there may be more than can be counted in time.
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
