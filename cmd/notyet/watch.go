package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/schemas"
)

type watchCmd struct {
	asking
	selected
	State     []string `help:"Only events with these states: succeeded, cancelled, dead, rejected, …" placeholder:"STATE,…"`
	FromStart bool     `help:"Start with the oldest event on the topic, not with the next one."`
	UntilEnd  bool     `help:"Print the events that are on the topic now, and exit."`
	Count     *int     `help:"Exit after this many events; exit code 1 if there were fewer." placeholder:"N" short:"n"`

	Timeout time.Duration `help:"Exit after this time." placeholder:"DURATION"`
}

func (watchCmd) Help() string {
	return `Follows the results topic until interrupted, or until --timeout, --until-end or --count ends it. With an address and no broker: what the service remembers of one task. A task's notyet-events setting selects its events there. The default is final
if the caller gave the task an id, otherwise none.

Examples:
  notyet watch
  notyet watch -t orders --state dead,rejected --json | jq -r .reason
  notyet watch --id 4711 --from-start -n 1 --timeout 30s
  notyet watch --state rejected --until-end --json | jq -r .reason`
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
	ctx, cancel := context.WithCancel(a.Ctx)
	defer cancel()
	if c.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	n := 0
	show := func(e event) (more bool, err error) {
		if c.wanted(e) {
			n, err = n+1, a.event(e, c.JSON)
		}
		return err == nil && (c.Count == nil || n < *c.Count), err
	}
	if hasServiceAlone(cfg) {
		ccfg, errConfig := command.APIConfig(cfg, operator())
		if errConfig != nil {
			return errConfig
		}
		err = c.look(ctx, api.NewClient(ccfg), show)
	} else {
		err = c.follow(ctx, cfg, command.NewLogger(cfg.Log, a.Stderr), show)
	}
	switch {
	case a.Ctx.Err() != nil:
		return nil // an interrupt is the normal end
	case err != nil && ctx.Err() == nil:
		return err
	case c.Count != nil && n < *c.Count:
		return fmt.Errorf("%d of %d events came", n, *c.Count)
	}
	return nil
}

// follow calls show with each event until it wants no more, or until ctx ends.
func (c *watchCmd) follow(ctx context.Context, cfg *config.Config, log *zap.Logger, show func(event) (bool, error)) error {
	results, err := openTail(ctx, cfg, log, c.FromStart || c.UntilEnd)
	if err != nil {
		return err
	}
	defer results.close()
	if c.UntilEnd {
		return results.past(ctx, cfg, log, show)
	}
	for {
		e, err := results.next(ctx)
		if err != nil {
			return err
		}
		if more, err := show(e); !more {
			return err
		}
	}
}

func (c *watchCmd) wanted(e event) bool {
	return (c.Topic == "" || e.Topic == schemas.TargetName(c.Topic)) && (c.ID == "" || e.ID == c.ID) && (len(c.State) == 0 || slices.Contains(c.State, string(e.State)))
}

// tail reads the results topic from before the request, so that no answer is missed.
type tail struct {
	client *kgo.Client
	topic  string
	unread []event
}

type event struct {
	schemas.Event
	raw json.RawMessage
}

// refuses reports whether the event ends a request, but not the task.
func (e event) refuses() bool {
	return e.State == schemas.StateRejected || e.State == schemas.StateStale
}

func (e event) ends() bool { return e.State.Final() && !e.refuses() }

// openTail starts at the oldest event of the results topic, or at its present end.
func openTail(ctx context.Context, cfg *config.Config, log *zap.Logger, fromStart bool) (*tail, error) {
	client, err := command.ConnectKafka(ctx, cfg, log, kafka.NewReader) // an answer in an aborted transaction does not count
	if err != nil {
		return nil, err
	}
	t := &tail{client: client, topic: cfg.Results.Topic}
	if err := t.seek(ctx, fromStart); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *tail) seek(ctx context.Context, fromStart bool) error {
	ctx, cancel := context.WithTimeout(ctx, command.DialTimeout)
	defer cancel()
	list := kadm.NewClient(t.client).ListEndOffsets
	if fromStart {
		list = kadm.NewClient(t.client).ListStartOffsets
	}
	offsets, err := list(ctx, t.topic)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil {
		return fmt.Errorf("looking at the results topic %s (`notyet migrate` makes it): %w", t.topic, err)
	}
	from := map[int32]kgo.Offset{}
	offsets.Each(func(o kadm.ListedOffset) { from[o.Partition] = kgo.NewOffset().At(o.Offset) })
	t.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{t.topic: from})
	return nil
}

// past shows what the topic has at present.
func (t *tail) past(ctx context.Context, cfg *config.Config, log *zap.Logger, show func(event) (bool, error)) error {
	from, errFrom := kafka.Starts(ctx, t.client, t.topic)
	to, errTo := kafka.Ends(ctx, t.client, t.topic)
	kcfg, err := command.KafkaConfig(cfg, log)
	if err := errors.Join(errFrom, errTo, err); err != nil {
		return err
	}
	scanned := kafka.Scan(ctx, kcfg, from, to, log, func(r *kgo.Record) (more bool) {
		e, bad := schemas.DecodeEvent(r)
		if bad != nil {
			return true
		}
		more, err = show(event{Event: e, raw: r.Value})
		return more
	})
	return errors.Join(scanned, err)
}

func (t *tail) close() { t.client.Close() }

// next waits for one event and skips other records.
func (t *tail) next(ctx context.Context) (event, error) {
	for len(t.unread) == 0 {
		fetches := t.client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return event{}, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if e, err := schemas.DecodeEvent(r); err == nil {
				t.unread = append(t.unread, event{Event: e, raw: r.Value})
			}
		})
		if len(t.unread) == 0 {
			if err := t.failed(ctx, fetches); err != nil {
				return event{}, err
			}
		}
	}
	e := t.unread[0]
	t.unread = t.unread[1:]
	return e, nil
}

// failed returns the final error of a poll without events, and pauses after any other.
func (t *tail) failed(ctx context.Context, fetches kgo.Fetches) error {
	failed := fetches.Errors()
	for _, f := range failed {
		if e, ok := errors.AsType[*kerr.Error](f.Err); ok && !e.Retriable && e != kerr.UnknownServerError {
			return fmt.Errorf("reading the results topic %s: %w", t.topic, e)
		}
	}
	if len(failed) > 0 {
		loop.Rest(ctx, 100*time.Millisecond)
	}
	return nil
}

func (t *tail) until(ctx context.Context, wanted func(event) bool) (event, error) {
	for {
		e, err := t.next(ctx)
		if err != nil || wanted(e) {
			return e, err
		}
	}
}

// outcome prints the final event of a request or task, and fails unless its state is wanted.
func (a *app) outcome(e event, asJSON bool, wanted ...schemas.State) error {
	if err := a.event(e, asJSON); err != nil {
		return err
	}
	if !slices.Contains(wanted, e.State) {
		return command.ErrReported
	}
	return nil
}

func (a *app) event(e event, asJSON bool) error {
	if asJSON {
		return a.Line(e.raw)
	}
	fmt.Fprintln(a.Stdout, eventText(e.Event))
	return nil
}

func eventText(e schemas.Event) string {
	at := stamp(e.At)
	if e.At == 0 {
		at = "time not kept"
	}
	words := []string{at, fmt.Sprintf("%-10s", command.Plain(string(e.State))), command.Plain(e.Topic), command.Plain(e.ID)}
	if e.Attempt > 0 {
		words = append(words, fmt.Sprintf("attempt %d", e.Attempt))
		if e.KnowsLateness() {
			words[len(words)-1] += fmt.Sprintf(", %d ms late", e.Lateness)
		}
	}
	if slices.Contains([]schemas.State{schemas.StateScheduled, schemas.StateMerged, schemas.StateKept}, e.State) {
		words = append(words, "due "+stamp(e.Due))
	}
	if e.Due > 0 && (e.State == schemas.StateTimerSet || e.State == schemas.StateTimerEnabled) {
		words = append(words, "next run "+when(e.Due))
	}
	if e.Reason != "" {
		words = append(words, "("+command.Plain(e.Reason)+")")
	}
	return strings.Join(words, " ")
}
