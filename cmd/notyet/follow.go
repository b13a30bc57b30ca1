package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
)

// Who knows an address and no broker follows a task by looking at it again and again.
const lookAgain = 300 * time.Millisecond

// hasServiceAlone tells whether an address or a token is set, and no broker.
func hasServiceAlone(cfg *config.Config) bool {
	return !cfg.IsSet("kafka.brokers") && slices.ContainsFunc([]string{"http.addr", "http.token", "http.token-file"}, cfg.IsSet)
}

// through schedules through a service, and with --wait follows the task to its end.
func (c *scheduleCmd) through(a *app, service *api.Client, r api.Schedule) error {
	began, patience := time.Now(), time.Duration(0)
	if c.Wait {
		patience = cmp.Or(c.Timeout, ackTimeout)
	}
	done, err := service.Schedule(a.Ctx, r, patience)
	switch {
	case err != nil:
		return err
	case !c.Wait:
		return c.tell(a, done.Published)
	case done.State == "":
		return fmt.Errorf("no answer within %s: %s is in %s; %s. It goes on: `%s get` tells how far it is", patience, command.Plain(done.ID), done.Request, cmp.Or(done.Awaits, "is a scanner running?"), a.Program)
	}
	answer, err := schemas.DecodeEvent(&kgo.Record{Value: done.JSON})
	if err != nil {
		return err
	}
	e := event{answer, done.JSON}
	if e.refuses() {
		return a.outcome(e, c.JSON, schemas.StateSucceeded)
	}
	if err := a.event(e, c.JSON); err != nil {
		return err
	}
	for {
		t, err := service.Task(a.Ctx, e.Topic, e.ID)
		if err != nil {
			return err
		}
		if end := endOf(&t); end != nil {
			return a.outcome(*end, c.JSON, schemas.StateSucceeded)
		}
		if until := c.until(began, max(t.Due, t.Next, answer.At)); time.Now().After(until) {
			return fmt.Errorf("no end by %s (--timeout): %s is %s, due %s. It goes on: `%s get` tells how far it is", stamp(until.UnixMilli()), command.Plain(t.ID), t.State, stamp(t.Due), a.Program)
		}
		if err := loop.Rest(a.Ctx, lookAgain); err != nil {
			return err
		}
	}
}

// endOf returns the event of a task's end. nil: it has not ended.
func endOf(t *api.Task) *event {
	if !slices.Contains([]string{"delivered", "succeeded", "cancelled", "stopped", "dead"}, t.State) {
		return nil
	}
	for _, x := range slices.Backward(t.Events) {
		if e := remembered(t, x); e.ends() {
			return &e
		}
	}
	return nil
}

// remembered is an event of a task's history.
func remembered(t *api.Task, x api.TaskEvent) event {
	raw, _ := json.Marshal(struct {
		Topic string `json:"topic"`
		ID    string `json:"id"`
		api.TaskEvent
	}{t.Topic, t.ID, x})
	return event{schemas.Event{Topic: t.Topic, ID: t.ID, State: x.State, At: x.At, Due: x.Due, Attempt: x.Attempt, Lateness: schemas.LatenessUnknown, Kind: schemas.Kind(x.Kind), Reason: x.Reason}, raw}
}

// look shows what a service remembers of one task, and then what comes.
func (c *watchCmd) look(ctx context.Context, service *api.Client, show func(event) (bool, error)) error {
	if c.Topic == "" || c.ID == "" {
		return command.Usage("without a broker one task is watched: write TOPIC ID, or set kafka.brokers (NOTYET_KAFKA_BROKERS) for all events")
	}
	type seen struct {
		created, at int64
		state       schemas.State
		attempt     int
	}
	shown := map[seen]bool{}
	for first := true; ; first = false {
		t, err := service.Task(ctx, c.Topic, c.ID)
		if err != nil && !errors.Is(err, look.ErrNotFound) {
			return err
		}
		for _, x := range t.Events {
			one := seen{t.Created, x.At, x.State, x.Attempt}
			if shown[one] {
				continue
			}
			if shown[one] = true; first && !c.FromStart && !c.UntilEnd {
				continue
			}
			if more, err := show(remembered(&t, x)); !more {
				return err
			}
		}
		if c.UntilEnd {
			return nil
		}
		if err := loop.Rest(ctx, lookAgain); err != nil {
			return err
		}
	}
}
