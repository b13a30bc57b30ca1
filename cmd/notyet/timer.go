package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/timer"
)

type timerCmd struct {
	Set     timerSetCmd     `cmd:"" help:"Make a timer, or replace it, and print the answer."`
	Enable  timerEnableCmd  `cmd:"" help:"Run a disabled timer again, and print the answer."`
	Disable timerDisableCmd `cmd:"" help:"Stop a timer until it is enabled, and print the answer."`
	Delete  timerDeleteCmd  `cmd:"" help:"Delete a timer, and print the answer."`
	Preview timerPreviewCmd `cmd:"" help:"Print the next runs of a definition, without making a timer."`
}

// definition holds the flags that say when a timer runs.
type definition struct {
	Cron     string `help:"Cron expression: 5 fields, 6 with seconds in front, or a nickname such as @daily." placeholder:"EXPR" xor:"when"`
	Every    string `help:"Time from one run to the next, at least 1s: 90s, PT30M. Runs are at --from plus a multiple of it." placeholder:"DURATION" xor:"when"`
	Timezone string `help:"IANA time zone of the cron expression. Default UTC." placeholder:"ZONE"`
	From     string `help:"First instant at which a run may be: RFC 3339, or Unix milliseconds. Default now." placeholder:"TIME"`
	Until    string `help:"Last such instant. Default none." placeholder:"TIME"`
	Jitter   string `help:"Each run is due up to this much later." placeholder:"DURATION"`
	Misfire  string `help:"What to do about missed runs: deliver the latest (once, default), none (skip) or each (all)." placeholder:"once|skip|all"`
}

func (d *definition) headers() []kgo.RecordHeader {
	var out []kgo.RecordHeader
	for _, h := range [][2]string{
		{schemas.HeaderCron, d.Cron}, {schemas.HeaderEvery, d.Every}, {schemas.HeaderTimezone, d.Timezone}, {schemas.HeaderFrom, d.From},
		{schemas.HeaderUntil, d.Until}, {schemas.HeaderJitter, d.Jitter}, {schemas.HeaderMisfire, d.Misfire},
	} {
		if h[1] != "" {
			out = append(out, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
		}
	}
	return out
}

// decode reads a request about a timer as a scanner does, and checks what its definition means.
func (d *definition) decode(r *kgo.Record, limits schemas.Limits) (timer.Schedule, error) {
	check := *r
	check.Timestamp = time.Now()
	request, err := schemas.Decode(&check, limits)
	if err != nil {
		return timer.Schedule{}, usageError{err}
	}
	t := request.Timer
	def := timer.Definition{Cron: t.Cron, Every: t.Every, Zone: t.Timezone, From: request.Accepted, Jitter: t.Jitter, Misfire: timer.Misfire(t.Misfire.String())}
	if t.From != nil {
		def.From = *t.From
	}
	if t.Until != nil {
		def.Until = *t.Until
	}
	s, err := timer.New(def)
	if err != nil {
		return s, usage("--%w", err)
	}
	return s, nil
}

type timerSetCmd struct {
	target
	definition
	Value     *string  `help:"Record value of each run." placeholder:"TEXT" xor:"value"`
	ValueFile string   `help:"Read the value from a file, byte for byte." placeholder:"FILE" type:"path" xor:"value"`
	Header    []string `help:"A header of your own, delivered as it is; may be repeated." placeholder:"NAME=VALUE" sep:"none" short:"H"`

	Priority    string `help:"Order among tasks that are due at the same time." placeholder:"high|normal|low"`
	Ack         string `help:"What completes a run: Kafka's acknowledgement (none, default) or a consumer's report (report)." placeholder:"none|report"`
	AckTimeout  string `help:"With --ack report: how long to wait for the report. Default 1m." placeholder:"DURATION"`
	MaxAttempts string `help:"Maximum number of deliveries of a run. Default 16." placeholder:"N"`
	Overlap     string `help:"With --ack report: make no run while an earlier one is unfinished (skip), or make it (allow, default)." placeholder:"allow|skip"`
	Backoff     string `help:"Pause between attempts. Default exponential:1s:10m." placeholder:"KIND:…"`
	MaxLateness string `help:"If a run would be later than this, make it a dead letter instead." placeholder:"DURATION"`
	Events      string `help:"Which events of runs go to the results topic." placeholder:"none|final|all"`
}

// Help is part of --help.
func (timerSetCmd) Help() string {
	return `A run is an ordinary task with the id ID@MILLISECONDS. Prints the answer, whose due time is the next run. Exit code 0 only for timer_set.

Examples:
  notyet timer set -t orders --id nightly --cron '30 2 * * *' --timezone Europe/Berlin --value '{"close":true}'
  notyet timer set -t orders --id poll --every 90s --jitter 10s --misfire skip --value poll`
}

// Run sets the timer, and prints the answer.
func (c *timerSetCmd) Run(a *app) error {
	cfg, err := a.client(c.settings, c.servers)
	if err != nil {
		return err
	}
	in, err := intake(cfg, c.Intake)
	if err != nil {
		return err
	}
	record, err := c.record(in)
	if err != nil {
		return err
	}
	if _, err := c.decode(record, in.Limits); err != nil {
		return err
	}
	return c.publishAndAnswer(a, cfg, record, schemas.StateTimerSet)
}

func (c *timerSetCmd) record(in api.Intake) (*kgo.Record, error) {
	r := &kgo.Record{Topic: in.Topic}
	if c.Key != nil {
		r.Key = []byte(*c.Key)
	}
	if c.Value != nil {
		r.Value = []byte(*c.Value)
	}
	if c.ValueFile != "" {
		var err error
		if r.Value, err = os.ReadFile(c.ValueFile); err != nil {
			return nil, usageError{err}
		}
	}
	for _, h := range [][2]string{
		{schemas.HeaderOp, schemas.OpTimer.String()}, {schemas.HeaderTopic, c.Topic}, {schemas.HeaderID, c.ID}, {schemas.HeaderVersion, c.TaskVersion},
		{schemas.HeaderPriority, c.Priority}, {schemas.HeaderAck, c.Ack}, {schemas.HeaderAckTimeout, c.AckTimeout}, {schemas.HeaderMaxAttempts, c.MaxAttempts},
		{schemas.HeaderBackoff, c.Backoff}, {schemas.HeaderMaxLateness, c.MaxLateness}, {schemas.HeaderEvents, c.Events}, {schemas.HeaderOverlap, c.Overlap},
	} {
		if h[1] != "" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
		}
	}
	r.Headers = append(r.Headers, c.headers()...)
	for _, h := range c.Header {
		name, value, found := strings.Cut(h, "=")
		if !found || name == "" {
			return nil, usage("--header %q: write NAME=VALUE", h)
		}
		if strings.HasPrefix(strings.ToLower(name), schemas.Prefix) {
			return nil, usage("--header %q: names that start with %s are flags of their own", h, schemas.Prefix)
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return r, nil
}

type timerEnableCmd struct{ target }

// Run enables a timer, and prints the answer.
func (c *timerEnableCmd) Run(a *app) error {
	return c.ask(a, schemas.OpTimerEnable, schemas.StateTimerEnabled)
}

type timerDisableCmd struct{ target }

// Run disables a timer, and prints the answer.
func (c *timerDisableCmd) Run(a *app) error {
	return c.ask(a, schemas.OpTimerDisable, schemas.StateTimerDisabled)
}

type timerDeleteCmd struct{ target }

// Run deletes a timer, and prints the answer.
func (c *timerDeleteCmd) Run(a *app) error {
	return c.ask(a, schemas.OpTimerDelete, schemas.StateTimerDeleted)
}

type timerPreviewCmd struct {
	definition
	asJSON
	Count int `default:"10" help:"How many runs to print, 1 to 1000." placeholder:"N" short:"n"`
}

// Help is part of --help.
func (timerPreviewCmd) Help() string {
	return `Prints each run in its zone and in UTC, without jitter, and marks those that daylight saving moved to the end of a gap. Needs no server.

Examples:
  notyet timer preview --cron '30 2 * * *' --timezone Europe/Berlin --from 2027-03-26T00:00:00Z -n 4
  notyet timer preview --every 36h --from 2027-01-01T08:00:00Z`
}

type previewed struct {
	At      int64  `json:"at"`
	Local   string `json:"local"`
	Shifted bool   `json:"shifted,omitempty"`
}

// Run prints the runs.
func (c *timerPreviewCmd) Run(a *app) error {
	if c.Count < 1 || c.Count > 1000 {
		return usage("--count %d: write 1 to 1000", c.Count)
	}
	record := &kgo.Record{Topic: schemas.TopicIntake, Headers: append(c.headers(),
		kgo.RecordHeader{Key: schemas.HeaderOp, Value: []byte(schemas.OpTimer.String())},
		kgo.RecordHeader{Key: schemas.HeaderTopic, Value: []byte("preview")}, kgo.RecordHeader{Key: schemas.HeaderID, Value: []byte("preview")})}
	s, err := c.decode(record, schemas.Limits{})
	if err != nil {
		return err
	}
	zone, err := time.LoadLocation(s.Definition().Zone)
	if err != nil {
		return err
	}
	runs := []previewed{}
	for run, ok := s.Next(s.Definition().From - 1); ok && len(runs) < c.Count; run, ok = s.Next(run) {
		runs = append(runs, previewed{At: run, Local: time.UnixMilli(run).In(zone).Format(time.RFC3339), Shifted: s.Shifted(run)})
	}
	if c.JSON {
		return a.json(map[string]any{"runs": runs})
	}
	rows := make([][]any, 0, len(runs))
	for _, r := range runs {
		moved := ""
		if r.Shifted {
			moved = "moved by daylight saving"
		}
		rows = append(rows, []any{r.Local, time.UnixMilli(r.At).UTC().Format(time.RFC3339), r.At, moved})
	}
	a.table([]any{strings.ToUpper(fmt.Sprint(zone)), "UTC", "MS", ""}, rows)
	return nil
}
