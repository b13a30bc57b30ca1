package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/cmd/internal/service"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
)

// arguments are TOPIC ID, in place of --topic and --id.
type arguments struct {
	First  string `arg:"" help:"Target topic, or the origin of HTTP callbacks, in place of --topic. With --topic or --url: the id." name:"target" optional:""`
	Second string `arg:"" help:"The id, in place of --id." name:"name" optional:""`
}

// take gives the arguments to missing flags.
func (n *arguments) take(k *kong.Context, topic, id *string, url string, needed bool) error {
	if err := command.NoneEmpty(k); err != nil {
		return err
	}
	first, second := n.First, n.Second
	if second == "" && *topic+url != "" { // the only argument is the id, if there is one
		first, second = "", first
	}
	twice := first != "" && *topic+url != "" || second != "" && *id != ""
	*topic, *id = *topic+first, *id+second
	_, mistake := schemas.ParseTarget([]byte(first))
	switch {
	case twice || needed && (*topic == "" || *id == ""):
		return errors.New("name target and id once: TOPIC ID, or --topic (-t) and --id")
	case mistake != nil && first != "":
		return fmt.Errorf("target %q %s: %s", mistake.Value, mistake.Problem, mistake.Fix)
	}
	return nil
}

// selected holds the target and the id of what is looked at.
type selected struct {
	arguments
	Topic string `help:"Target topic, or the origin of HTTP callbacks." placeholder:"TOPIC" short:"t"`
	ID    string `help:"Id of the task or timer; of a task whose caller gave none INTAKE/PARTITION/OFFSET." name:"id" placeholder:"ID"`
}

func (s *selected) Validate(k *kong.Context) error { return s.take(k, &s.Topic, &s.ID, "", false) }

// one is selected with both.
type one struct{ selected }

func (o *one) Validate(k *kong.Context) error { return o.take(k, &o.Topic, &o.ID, "", true) }

// ofTarget holds the target of a list.
type ofTarget struct {
	Target string `arg:"" help:"Target topic, or the origin of HTTP callbacks, in place of --topic." name:"target" optional:""`
	Topic  string `help:"Only what is for this target topic." placeholder:"TOPIC" short:"t"`
}

func (o *ofTarget) Validate(k *kong.Context) error {
	if o.Target != "" && o.Topic != "" {
		return errors.New("name the target once: TOPIC, or --topic (-t)")
	}
	return (&arguments{First: o.Target}).take(k, &o.Topic, new(string), "", false)
}

// target holds the flags and arguments of cancel, stop and fire.
type target struct {
	asking
	arguments
	Topic       string        `help:"Target topic, or the origin of an HTTP callback." placeholder:"TOPIC" short:"t" xor:"target"`
	URL         string        `help:"The URL of an HTTP callback, instead of --topic." name:"url" placeholder:"URL" xor:"target"`
	ID          string        `help:"The task's id." name:"id" placeholder:"ID"`
	Key         *string       `help:"Record key. Use the key of the task's other requests to keep their order." placeholder:"KEY" short:"k"`
	TaskVersion string        `help:"The request is ignored as stale if its version is below the task's." name:"version" placeholder:"N"`
	Intake      string        `help:"Intake topic, if several are configured. Default: the one whose target this is, otherwise the first." placeholder:"TOPIC"`
	NoWait      bool          `help:"Return when Kafka has acknowledged the request; do not wait for the answer."`
	Timeout     time.Duration `default:"10s" help:"How long to wait for the answer." placeholder:"DURATION"`
}

func (c *target) Validate(k *kong.Context) error { return c.take(k, &c.Topic, &c.ID, c.URL, false) }

func (c *target) ask(a *app, op schemas.Op, won ...schemas.State) error {
	if c.ID == "" {
		return command.Usage("missing flags: write TOPIC ID, or --id, and --topic (-t) or --url")
	}
	way, err := a.publishing(c.Settings, c.Servers, c.Intake, c.Topic, c.URL)
	if err != nil {
		return err
	}
	request := api.Target{Intake: c.Intake, Topic: c.Topic, URL: c.URL, ID: c.ID, Key: c.Key}
	if err := number("--version", c.TaskVersion, &request.Version); err != nil {
		return err
	}
	if way.service != nil {
		done, err := way.service.Ask(a.Ctx, op, request, c.patience())
		return c.answered(a, done, err, won...)
	}
	record, err := request.Record(op, way.in)
	if err != nil {
		return command.UsageError{Err: err}
	}
	return c.publishAndAnswer(a, way.cfg, record, won...)
}

// patience is how long a service is to wait for the answer.
func (c *target) patience() time.Duration {
	if c.NoWait {
		return 0
	}
	return c.Timeout
}

// answered prints what a service answers.
func (c *target) answered(a *app, done api.Answered, err error, won ...schemas.State) error {
	switch {
	case err != nil:
		return err
	case done.State == "" && c.NoWait:
		return c.sent(a, done.Published)
	case done.State == "":
		return c.unanswered(done.Published, "on the results topic", cmp.Or(done.Awaits, "is a scanner running?"))
	}
	e, err := schemas.DecodeEvent(&kgo.Record{Value: done.JSON})
	if err != nil {
		return err
	}
	return a.outcome(event{e, done.JSON}, c.JSON, won...)
}

func (c *target) unanswered(p api.Published, where, why string) error {
	return fmt.Errorf("no answer within %s; the %s is in %s/%d at offset %d and will be answered %s: %s", c.Timeout, p.Op, p.Intake, p.Partition, p.Offset, where, why)
}

// publishAndAnswer sends a request and prints the answer.
func (c *target) publishAndAnswer(a *app, cfg *config.Config, record *kgo.Record, won ...schemas.State) error {
	var err error
	log := command.NewLogger(cfg.Log, a.Stderr)
	var results *tail
	if !c.NoWait {
		if results, err = openTail(a.Ctx, cfg, log, false); err != nil {
			return err
		}
		defer results.close()
	}
	done, err := publish(a.Ctx, cfg, log, record, c.Timeout)
	if err != nil {
		return err
	}
	if c.NoWait {
		return c.sent(a, done)
	}
	return c.answer(a, results, done, won...)
}

func (c *target) sent(a *app, p api.Published) error {
	if c.JSON {
		return a.Line(p)
	}
	fmt.Fprintf(a.Stdout, "%s of %s for %s is in %s/%d at offset %d\n", p.Op, command.Plain(p.ID), p.Topic, p.Intake, p.Partition, p.Offset)
	return nil
}

func (c *target) answer(a *app, results *tail, p api.Published, won ...schemas.State) error {
	ctx, cancel := context.WithTimeout(a.Ctx, c.Timeout)
	defer cancel()
	found, err := results.until(ctx, func(e event) bool { return e.Request == p.Request })
	if errors.Is(err, context.DeadlineExceeded) {
		return c.unanswered(p, "on "+results.topic, c.missing(a, p))
	}
	if err != nil {
		return err
	}
	return a.outcome(found, c.JSON, won...)
}

// missing says why a request has no answer yet.
func (c *target) missing(a *app, p api.Published) string {
	unknown := "it waits for its task, as `" + a.Program + " get` tells, or no scanner is running"
	b, err := a.backend(c.asking)
	if err != nil {
		return unknown
	}
	defer b.close()
	ctx, cancel := context.WithTimeout(a.Ctx, ackTimeout)
	defer cancel()
	t, err := b.Task(ctx, p.Topic, p.ID)
	switch what := t.Awaits(p.Request); {
	case what != "":
		return "it waits for " + what
	case err != nil && !errors.Is(err, look.ErrNotFound):
		return unknown
	}
	return "is a scanner running?"
}

// carried holds the flags for the delivered content besides the key.
type carried struct {
	Value     *string  `help:"Record value. Without one of these flags it is read from standard input, unless that is a terminal." placeholder:"TEXT" xor:"value"`
	ValueFile string   `help:"Read the value from a file, byte for byte; - is standard input." placeholder:"FILE" type:"path" xor:"value"`
	NullValue bool     `help:"Send Kafka's null as the value." xor:"value"`
	Header    []string `help:"A header of your own, delivered as it is; may be repeated." placeholder:"NAME=VALUE" sep:"none" short:"H"`
}

// content is the key, with the value and the headers of the flags.
func (c *carried) content(key *string, stdin io.Reader) (deadletter.Content, error) {
	headers, err := ownHeaders("--header", c.Header)
	if err != nil {
		return deadletter.Content{}, err
	}
	value, err := c.value(stdin)
	if err != nil {
		return deadletter.Content{}, err
	}
	var bytes []byte
	if key != nil {
		bytes = []byte(*key)
	}
	out := deadletter.NewContent(schemas.Body{Key: bytes, Value: value})
	out.Headers = headers
	return *out, nil
}

func ownHeaders(flag string, given []string) (headers []deadletter.Header, err error) {
	for _, h := range given {
		name, value, ok := strings.Cut(h, "=")
		if !ok {
			return nil, command.Usage("%s without =: write NAME=VALUE", flag) // it may be a secret
		}
		headers = append(headers, deadletter.Header{Key: name, Value: &value})
	}
	return headers, nil
}

func (c *carried) value(stdin io.Reader) ([]byte, error) {
	switch {
	case c.NullValue:
		return nil, nil
	case c.Value != nil:
		return []byte(*c.Value), nil
	case c.ValueFile != "" && c.ValueFile != "-":
		value, err := os.ReadFile(c.ValueFile)
		if err != nil {
			return nil, command.Usage("--value-file: %v", err)
		}
		return append([]byte{}, value...), nil
	case c.ValueFile == "" && command.IsTerminal(stdin):
		return nil, command.Usage("what? say --value, --value-file or --null-value, or pipe the value in")
	}
	value, err := io.ReadAll(stdin)
	if err != nil {
		return nil, fmt.Errorf("reading the value from standard input: %w", err)
	}
	return append([]byte{}, value...), nil // null is another value
}

// delivery holds the flags of a task's delivery. A timer's hold for each run.
type delivery struct {
	Priority    string `help:"Order among tasks that are due at the same time." placeholder:"high|normal|low"`
	Ack         string `help:"What completes a task: Kafka's acknowledgement (none, default) or a consumer's report (report)." placeholder:"none|report"`
	AckTimeout  string `help:"With --ack report: how long to wait for the report, at least 100ms. Default 1m." placeholder:"DURATION"`
	MaxAttempts string `help:"Maximum number of deliveries of a task, at most 10000. Default 16." placeholder:"N"`
	Backoff     string `help:"Pause between attempts: fixed:5s, steps:5s,5m,30m,2h, or exponential:1s:10m, the default." placeholder:"KIND:…"`
	MaxLateness string `help:"If a task would be later than this, make it a dead letter instead." placeholder:"DURATION"`
	Tag         string `help:"Up to 4 tags with commas between, to select the task by one of them." placeholder:"TAG,…"`
	Events      string `help:"Which events go to the results topic." placeholder:"none|final|all"`
}

func (d *delivery) request() (api.DeliverySettings, error) {
	out := api.DeliverySettings{Priority: d.Priority, Ack: d.Ack, AckTimeout: d.AckTimeout, Backoff: d.Backoff, MaxLateness: d.MaxLateness, Tag: d.Tag, Events: d.Events}
	err := number("--max-attempts", d.MaxAttempts, &out.MaxAttempts)
	return out, err
}

func number(flag, text string, into **int64) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return command.Usage("%s %q: write a whole number", flag, text)
	}
	*into = &n
	return nil
}

// way is how a request goes: to the intake topic, or through a service where only that is known.
type way struct {
	cfg     *config.Config
	in      api.Intake
	service *api.Client
}

// publishing returns the way of a command's request: through the service where an address or a
// token is set and no broker, otherwise to the intake topic with the given name, or the one for the
// target. A request without a target needs an intake with one.
func (a *app) publishing(s command.Settings, more command.Servers, name, topic, url string) (way, error) {
	cfg, err := a.Client(s, more)
	if err != nil {
		return way{}, err
	}
	if hasServiceAlone(cfg) {
		ccfg, err := command.APIConfig(cfg, operator())
		return way{cfg: cfg, service: api.NewClient(ccfg)}, err
	}
	if _, err := command.Intake(cfg, name); err != nil {
		return way{}, err
	}
	in, _ := api.Pick(service.Intakes(cfg), name, topic)
	if topic == "" && url == "" && in.Limits.Target == "" {
		return way{}, command.Usage("missing flags: write --topic (-t) or --url, or --intake with an intake topic that has a target of its own")
	}
	return way{cfg: cfg, in: in}, nil
}

func publish(ctx context.Context, cfg *config.Config, log *zap.Logger, r *kgo.Record, timeout time.Duration) (api.Published, error) {
	client, err := service.Publisher(ctx, cfg, log)
	if err != nil {
		return api.Published{}, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := note(ctx, cfg, log, r); err != nil {
		return api.Published{}, err
	}
	done, err := api.NewPublisher(client, client).Publish(ctx, r)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		err = fmt.Errorf("the intake topic %s does not exist: run `notyet migrate`, or name the right one in intake.topics", r.Topic)
	}
	if err != nil || !slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == schemas.HeaderDelay || h.Key == schemas.HeaderMaxWait }) {
		return done, err
	}
	if due, err := dueInIntake(ctx, client, r); err != nil {
		log.Warn("the due time is an estimate by this machine's clock: the record's timestamp, from which delay and max-wait count, cannot be read", zap.Error(err))
	} else {
		done.Due = due
	}
	return done, nil
}

// readBackTimeout limits the reading of an acknowledged request's due time.
const readBackTimeout = 3 * time.Second

// dueInIntake reads a published record again for its due time: the acknowledgement does not tell
// the client a timestamp written by the broker.
func dueInIntake(ctx context.Context, client *kgo.Client, r *kgo.Record) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, readBackTimeout)
	defer cancel()
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: {r.Partition: kgo.NewOffset().At(r.Offset)}})
	fetches := client.PollRecords(ctx, 1)
	if err := fetches.Err(); err != nil {
		return 0, err
	}
	stored := fetches.Records()[0]
	if stored.Offset != r.Offset {
		return 0, fmt.Errorf("%s/%d has no record at offset %d any more", r.Topic, r.Partition, r.Offset)
	}
	again, err := api.ReadPublished(stored)
	return again.Due, err
}

// noteTimeout limits the wait for a service to note a request.
const noteTimeout = 3 * time.Second

// note writes a request into the audit log before the publishing: into the database with a set DSN,
// otherwise through the service at http.addr. Without either the command goes on, with a message,
// because it needs only Kafka.
func note(ctx context.Context, cfg *config.Config, log *zap.Logger, r *kgo.Record) error {
	e, err := api.Requested(r)
	if err != nil {
		return err
	}
	if cfg.MySQL.DSN != "" {
		st, err := service.OpenStore(ctx, cfg, zap.NewNop())
		if err != nil {
			return fmt.Errorf("noting the request in the audit log, so it was not sent: %w", err)
		}
		defer func() { _ = st.Close() }()
		e.Actor, _ = admin.ActorFrom(ctx)
		if err := admin.New(st).Audit(ctx, []admin.AuditEntry{e}); err != nil {
			return fmt.Errorf("%w; nothing was sent", err)
		}
		return nil
	}
	ccfg, err := command.APIConfig(cfg, operator())
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, noteTimeout)
		defer cancel()
		err = api.NewClient(ccfg).Note(ctx, api.Noted{What: e.What, Topic: e.Topic, Task: strings.ToValidUTF8(e.TaskID, "\uFFFD")})
	}
	if err != nil {
		log.Error("this request is not in the audit log: set mysql.dsn, or http.addr to a service", zap.Error(err))
	}
	return nil
}
