package main

import (
	"context"
	"errors"
	"slices"

	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/schemas"
)

type watchCmd struct {
	asking
	Topic     string   `help:"Only tasks for this target topic." placeholder:"TOPIC" short:"t"`
	ID        string   `help:"Only this task." name:"id" placeholder:"ID"`
	State     []string `help:"Only events with these states: succeeded, cancelled, dead, rejected, …" placeholder:"STATE,…"`
	FromStart bool     `help:"Start with the oldest event on the topic, not with the next one."`
	Count     *int     `help:"Exit after this many events." placeholder:"N" short:"n"`
}

func (watchCmd) Help() string {
	return `Follows the results topic until interrupted. A task's notyet-events setting selects its events there. The default is final
if the caller gave the task an id, otherwise none.

Examples:
  notyet watch
  notyet watch -t orders --state dead,rejected --json | jq -r .reason
  notyet watch --id 4711 --from-start -n 1`
}

func (c *watchCmd) Run(a *app) error {
	for _, s := range c.State {
		if !slices.Contains(schemas.States(), schemas.State(s)) {
			return command.Usage("--state %q is none of %v", s, schemas.States())
		}
	}
	if c.Count != nil && *c.Count < 1 {
		return command.Usage("--count (-n) %d: write 1 or more, or leave it out to follow until interrupted", *c.Count)
	}
	cfg, err := a.Client(c.Settings, c.Servers)
	if err != nil {
		return err
	}
	results, err := openResults(a.Ctx, cfg, command.NewLogger(cfg.Log, a.Stderr), c.FromStart)
	if err != nil {
		return err
	}
	defer results.close()
	for n := 0; c.Count == nil || n < *c.Count; n++ {
		e, err := results.until(a.Ctx, c.wanted)
		if errors.Is(err, context.Canceled) {
			return nil // an interrupt is the normal end
		}
		if err != nil {
			return err
		}
		if err := a.event(e, c.JSON); err != nil {
			return err
		}
	}
	return nil
}

func (c *watchCmd) wanted(e event) bool {
	return (c.Topic == "" || e.Topic == schemas.TargetName(c.Topic)) && (c.ID == "" || e.ID == c.ID) && (len(c.State) == 0 || slices.Contains(c.State, string(e.State)))
}
