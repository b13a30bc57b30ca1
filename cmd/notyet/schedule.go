package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/schemas"
)

type scheduleCmd struct {
	asking
	arguments
	Topic  string  `help:"Target topic. Not needed for an intake with a target of its own." placeholder:"TOPIC" short:"t" xor:"target"`
	URL    string  `help:"Send an HTTP request to this URL instead of a record to a topic, if the installation makes callbacks." name:"url" placeholder:"URL" xor:"target"`
	Method string  `help:"With --url: POST (default), PUT, PATCH, DELETE or GET." placeholder:"METHOD"`
	ID     string  `help:"Id of the task: 1 to 255 bytes. With an id the task can be cancelled, and repeating the request is harmless." name:"id" placeholder:"ID"`
	At     string  `help:"Due time: RFC 3339, Unix milliseconds, or with --timezone a local time such as 2027-01-31T08:00." placeholder:"TIME" xor:"due"`
	Delay  string  `help:"Due time, counted from when Kafka receives the request: 90s, 36h, PT30M, P400D." placeholder:"DURATION" xor:"due"`
	Zone   string  `help:"IANA time zone of --at." name:"timezone" placeholder:"ZONE"`
	Key    *string `help:"Record key. Requests about one task stay in order if they have the same key." placeholder:"KEY" short:"k"`
	carried

	IfExists    string `help:"What to do if a pending task has this id: replace it (default), keep it, or merge. once also keeps one that has ended." placeholder:"replace|keep|merge|once"`
	Merge       string `help:"With merge: last value (default), sum of the numbers in JSON objects field by field, or append to a JSON array." placeholder:"last|sum|append"`
	MaxWait     string `help:"With merge: limit of the delay after the first request." placeholder:"DURATION"`
	TaskVersion string `help:"The request is ignored if its version is below the task's." name:"version" placeholder:"N"`
	delivery

	Intake  string        `help:"Intake topic, if several are configured. Default: the one whose target this is, otherwise the first." placeholder:"TOPIC"`
	Wait    bool          `help:"Wait until the task has ended. Exit code 0 only if it succeeded. Sets --events all."`
	Timeout time.Duration `help:"Time limit. Default: 10s for Kafka's acknowledgement; with --wait, 30s after the due time or the last event." placeholder:"DURATION"`
}

func (scheduleCmd) Help() string {
	return `Publishes one request to the intake topic, and prints its position. An acknowledged request will be delivered.

Examples:
  notyet schedule orders 4711 --delay 30m --key 4711 --value '{"remind":true}'
  notyet schedule -t orders --at 2027-01-31T08:00:00+01:00 --value-file order.json -H source=shop
  notyet schedule -t orders --at 2027-01-31T08:00 --timezone Europe/Berlin --value hello
  notyet schedule -t mails --id digest-7 --delay 5m --if-exists merge --merge append --max-wait 1h --value '"one more"'
  notyet schedule --url https://shop.example/hooks/4711 --id 4711 --delay 30m --value '{"remind":true}' -H content-type=application/json
  date | notyet schedule -t clock --delay 2s --id now --wait`
}

func (c *scheduleCmd) Validate(k *kong.Context) error {
	return c.take(k, &c.Topic, &c.ID, c.URL, false)
}

func (c *scheduleCmd) Run(a *app) error {
	way, err := a.publishing(c.Settings, c.Servers, c.Intake, c.Topic, c.URL)
	if err != nil {
		return err
	}
	request, err := c.request(a.Stdin)
	if err != nil {
		return err
	}
	if way.service != nil {
		return c.through(a, way.service, *request)
	}
	record, err := request.Record(way.in)
	if err != nil {
		return command.UsageError{Err: err}
	}
	cfg, log := way.cfg, command.NewLogger(way.cfg.Log, a.Stderr)
	var results *tail
	if c.Wait {
		if results, err = openTail(a.Ctx, cfg, log, false); err != nil {
			return err
		}
		defer results.close()
	}
	began := time.Now()
	done, err := publish(a.Ctx, cfg, log, record, cmp.Or(c.Timeout, ackTimeout))
	if err != nil {
		return err
	}
	if err := c.tell(a, done); err != nil || !c.Wait {
		return err
	}
	return c.await(a, results, done, began)
}

func (c *scheduleCmd) request(stdin io.Reader) (*api.Schedule, error) {
	if c.At == "" && c.Delay == "" {
		return nil, command.Usage("when? say --at or --delay")
	}
	r := &api.Schedule{Intake: c.Intake, Topic: c.Topic, URL: c.URL, Method: c.Method, ID: c.ID, At: api.TimeText(c.At), Timezone: c.Zone, Delay: c.Delay, IfExists: c.IfExists, Merge: c.Merge, MaxWait: c.MaxWait}
	if err := number("--version", c.TaskVersion, &r.Version); err != nil {
		return nil, err
	}
	var err error
	if r.DeliverySettings, err = c.delivery.request(); err != nil {
		return nil, err
	}
	if c.Wait && r.AwaitAnswer() != nil {
		return nil, command.Usage("--wait needs --events all: leave --events out")
	}
	r.Content, err = c.content(c.Key, stdin)
	return r, err
}

func (c *scheduleCmd) tell(a *app, p api.Published) error {
	if c.JSON {
		return a.Line(p)
	}
	format := "scheduled %s for %s, due %s; %s/%d offset %d\n"
	switch c.IfExists {
	case "once":
		format = "asked for %s for %s, due %s unless one of this id is known and keeps its own time; %s/%d offset %d\n"
	case "keep":
		format = "asked for %s for %s, due %s unless one of this id is pending and keeps its own time; %s/%d offset %d\n"
	}
	fmt.Fprintf(a.Stdout, format, command.Plain(p.ID), p.Topic, when(p.Due), p.Intake, p.Partition, p.Offset)
	return nil
}

const (
	ackTimeout = 10 * time.Second // for Kafka's acknowledgement
	endTimeout = 30 * time.Second // for the event of a task that should have been delivered
)

// await prints the final event. An earlier event about the task says when the task is really due:
// another request may have moved it, or the task already existed and was kept.
func (c *scheduleCmd) await(a *app, results *tail, p api.Published, began time.Time) error {
	until := c.until(began, p.Due)
	known := "nothing was heard of it"
	for w := (awaited{Published: p}); ; {
		ctx, cancel := context.WithDeadline(a.Ctx, until)
		found, err := results.until(ctx, w.takes)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("no end by %s (--timeout): %s is in %s/%d at offset %d, due %s; %s. It goes on: `%s get` tells how far it is",
				stamp(until.UnixMilli()), command.Plain(p.ID), p.Intake, p.Partition, p.Offset, stamp(p.Due), known, a.Program)
		}
		if err != nil {
			return err
		}
		if end := w.ending(found); end != nil {
			return a.outcome(*end, c.JSON, schemas.StateSucceeded)
		}
		known = "last heard: " + eventText(found.Event)
		p.Due = cmp.Or(found.Due, p.Due)
		until = c.until(began, max(p.Due, found.At))
	}
}

// awaited tells which events are about the task made, found or changed by a request. The id may
// have been used before, and ends of earlier tasks may be told late.
type awaited struct {
	api.Published
	answer *event  // to the request; nil: it has not come
	before []event // ends that came before the answer: deliveries are told by another process
}

// takes reports whether an event says something about the task.
func (w *awaited) takes(e event) bool {
	switch {
	case e.Request == w.Request:
		return true
	case e.ID != w.ID || e.Topic != w.Topic:
		return false
	case w.answer != nil:
		return w.follows(e)
	case e.ends():
		w.before = append(w.before, e)
	}
	return false
}

// follows reports whether an event comes after the answer. Both times are the database's.
func (w *awaited) follows(e event) bool {
	return e.At > w.answer.At || e.At == w.answer.At && e.Due == w.answer.Due
}

func (w *awaited) ending(e event) *event {
	first := w.answer == nil
	if first {
		w.answer = &e
	}
	if e.ends() || e.Request == w.Request && e.refuses() {
		return &e
	}
	if i := slices.IndexFunc(w.before, w.follows); first && i >= 0 {
		return &w.before[i]
	}
	return nil
}

// until returns when to give up waiting for an event expected at next.
func (c *scheduleCmd) until(began time.Time, next int64) time.Time {
	if c.Timeout > 0 {
		return began.Add(c.Timeout)
	}
	return time.UnixMilli(next).Add(endTimeout)
}
