package schemas

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// update writes today's results into the golden files. The contract only grows: a changed line
// there is a breaking change.
var update = flag.Bool("update", false, "rewrite the golden files")

// goldenRecord is a Kafka record in JSON; null and "" stay apart.
type goldenRecord struct {
	Topic     string      `json:"topic,omitempty"`
	Partition int32       `json:"partition,omitempty"`
	Offset    int64       `json:"offset,omitempty"`
	Timestamp int64       `json:"timestamp,omitempty"`
	Key       *string     `json:"key"`
	Value     *string     `json:"value"`
	Headers   [][]*string `json:"headers"`
}

func (g goldenRecord) record() *kgo.Record {
	r := &kgo.Record{
		Topic: g.Topic, Partition: g.Partition, Offset: g.Offset, Timestamp: time.UnixMilli(g.Timestamp),
		Key: textBytes(g.Key), Value: textBytes(g.Value),
	}
	for _, h := range g.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: *h[0], Value: textBytes(h[1])})
	}
	return r
}

func golden(r *kgo.Record) goldenRecord {
	g := goldenRecord{Topic: r.Topic, Key: bytesText(r.Key), Value: bytesText(r.Value), Headers: [][]*string{}}
	for _, h := range r.Headers {
		g.Headers = append(g.Headers, []*string{&h.Key, bytesText(h.Value)})
	}
	return g
}

func textBytes(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}

func bytesText(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

// goldenFile reads cases, lets each fill in its outcome, and compares with (or rewrites) the file.
func goldenFile[C any](t *testing.T, name string, run func(*testing.T, *C)) {
	t.Helper()
	path := filepath.Join("testdata", name)
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	var cases []*C
	require.NoError(t, json.Unmarshal(want, &cases))
	require.NotEmpty(t, cases)
	for _, c := range cases {
		run(t, c)
	}
	got := indent(t, cases)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	require.Equal(t, string(want), string(got))
}

func indent(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	return append(b, '\n')
}

type requestCase struct {
	Name      string           `json:"name"`
	Target    string           `json:"target,omitempty"` // the intake's own
	Record    goldenRecord     `json:"record"`
	Request   *goldenRequest   `json:"request,omitempty"`
	Rejection *goldenRejection `json:"rejection,omitempty"`
	// InSchema tells for a rejection whether the AsyncAPI document finds the mistake too.
	InSchema bool `json:"in_schema,omitempty"`
}

type goldenRejection struct{ ID, Topic, Reason string }

type goldenRequest struct {
	Op, Topic, URL, ID     string
	Method                 string `json:",omitempty"`
	GivenID                bool
	Due, Accepted, Version int64
	Settings               goldenSettings
	Key, Value             *string
	Headers                [][]*string
	Timer                  *goldenTimer `json:",omitempty"`
}

type goldenTimer struct {
	Cron     string `json:",omitempty"`
	Every    string `json:",omitempty"`
	Timezone string
	From     *int64 `json:",omitempty"`
	Until    *int64 `json:",omitempty"`
	Jitter   string `json:",omitempty"`
	Misfire  string
	Overlap  string `json:",omitempty"`
}

func goldenTimerOf(t Timer) *goldenTimer {
	g := &goldenTimer{Cron: t.Cron, Timezone: t.Timezone, From: t.From, Until: t.Until, Misfire: t.Misfire.String()}
	if t.Every != 0 {
		g.Every = t.Every.String()
	}
	if t.Jitter != 0 {
		g.Jitter = t.Jitter.String()
	}
	if t.Overlap != OverlapAllow {
		g.Overlap = t.Overlap.String()
	}
	return g
}

type goldenSettings struct {
	Priority, Ack, AckTimeout, Backoff, MaxLateness, Events, MaxWait, IfExists, Merge string
	Tag                                                                               string `json:",omitempty"`
	MaxAttempts                                                                       int
}

func goldenOf(r Request) *goldenRequest {
	business := golden(&kgo.Record{Headers: r.Headers})
	g := &goldenRequest{
		Op: r.Op.String(), Topic: r.Topic, URL: r.Settings.Callback.URL, ID: r.ID, GivenID: r.GivenID,
		Due: r.Due, Accepted: r.Accepted, Version: r.Version, Settings: goldenSettingsOf(r.Settings),
		Key: bytesText(r.Key), Value: bytesText(r.Value), Headers: business.Headers,
	}
	g.Method = r.Settings.Callback.Method
	if r.Op == OpTimer {
		g.Timer = goldenTimerOf(r.Timer)
	}
	return g
}

func goldenSettingsOf(s Settings) goldenSettings {
	return goldenSettings{
		Priority: s.Priority.String(), Ack: s.Ack.String(), AckTimeout: s.AckTimeout.String(), Backoff: s.Backoff.String(),
		MaxLateness: s.MaxLateness.String(), Events: s.Events.String(), MaxWait: s.MaxWait.String(),
		IfExists: s.IfExists.String(), Merge: s.Merge.String(), Tag: s.Tag, MaxAttempts: s.MaxAttempts,
	}
}

func TestGoldenRequests(t *testing.T) {
	addressed, forTarget := document(t).compile(t, "addressedRequestHeaders"), document(t).compile(t, "targetRequestHeaders")
	goldenFile(t, "requests.json", func(t *testing.T, c *requestCase) {
		c.Request, c.Rejection = nil, nil
		schema := addressed
		if c.Target != "" {
			schema = forTarget
		}
		valid := schema.Validate(headerObject(c.Record.record())) == nil
		req, err := Decode(c.Record.record(), Limits{Target: c.Target})
		if err == nil {
			require.True(t, valid, "%s: accepted by the code, refused by the document", c.Name)
			c.Request = goldenOf(req)
			return
		}
		require.Equal(t, c.InSchema, !valid, c.Name)
		rej := err.(*Rejection)
		c.Rejection = &goldenRejection{rej.ID, rej.Topic, rej.Error()}
	})
}

type bodyCase struct {
	Name     string         `json:"name"`
	Record   goldenRecord   `json:"record"`   // key, value and headers of the task
	Settings []string       `json:"settings"` // as headers: name, value, name, value …
	Hex      string         `json:"hex"`
	Decoded  goldenSettings `json:"decoded"`
}

// TestGoldenBodies pins the bytes that stores keep: those of yesterday must be readable tomorrow.
func TestGoldenBodies(t *testing.T) {
	goldenFile(t, "bodies.json", func(t *testing.T, c *bodyCase) {
		r, s := c.Record.record(), DefaultSettings()
		for i := 0; i < len(c.Settings); i += 2 {
			require.Nil(t, s.set(lookup(c.Settings[i]), []byte(c.Settings[i+1])))
		}
		if c.Hex == "" { // not even -update changes the bytes of a case that stands
			c.Hex = hex.EncodeToString(EncodeBody(nil, r.Key, r.Value, r.Headers, s))
		}
		stored, err := hex.DecodeString(c.Hex)
		require.NoError(t, err)
		body, err := DecodeBody(stored)
		require.NoError(t, err, c.Name)
		require.Equal(t, Body{r.Key, r.Value, r.Headers, s}, body, c.Name)
		require.Equal(t, stored, EncodeBody(nil, r.Key, r.Value, r.Headers, s), c.Name)
		c.Decoded = goldenSettingsOf(body.Settings)
	})
}

type deliveryCase struct {
	Name     string       `json:"name"`
	Before   goldenRecord `json:"before"`
	Delivery Delivery     `json:"delivery"`
	After    goldenRecord `json:"after"`
}

func TestGoldenDeliveries(t *testing.T) {
	schema := document(t).compile(t, "deliveryHeaders")
	goldenFile(t, "deliveries.json", func(t *testing.T, c *deliveryCase) {
		r := c.Before.record()
		business := r.Headers
		r.Headers = AppendDelivery(r.Headers, c.Delivery)
		c.After = golden(r)
		require.NoError(t, schema.Validate(headerObject(r)), c.Name)

		d, rest, err := ParseDelivery(r)
		require.NoError(t, err, c.Name)
		require.Equal(t, c.Delivery, d, c.Name)
		require.Equal(t, business, rest, c.Name)
	})
}

type reportCase struct {
	Name   string       `json:"name"`
	Record goldenRecord `json:"record"`
	Report *struct {
		Topic, ID, Status, Error string
		Delivery                 string `json:",omitempty"`
		Attempt                  int
		RetryAfterMS             int64
	} `json:"report,omitempty"`
	Problem  string `json:"problem,omitempty"`
	InSchema bool   `json:"in_schema,omitempty"`
}

func TestGoldenReports(t *testing.T) {
	schema := document(t).compile(t, "reportHeaders")
	goldenFile(t, "reports.json", func(t *testing.T, c *reportCase) {
		rec := c.Record.record()
		valid := schema.Validate(headerObject(rec)) == nil
		r, err := DecodeReport(rec)
		if err != nil {
			require.Equal(t, c.InSchema, !valid, c.Name)
			c.Report, c.Problem = nil, err.Error()
			return
		}
		require.True(t, valid, c.Name)
		if c.Report == nil {
			require.NoError(t, json.Unmarshal([]byte("{}"), &c.Report))
		}
		c.Report.Topic, c.Report.ID, c.Report.Status, c.Report.Error = r.Topic, r.ID, r.Status.String(), r.Error
		c.Report.Delivery = r.Delivery
		c.Report.Attempt, c.Report.RetryAfterMS = r.Attempt, r.RetryAfter.Milliseconds()
		if r.RetryAfter == NoRetryAfter {
			c.Report.RetryAfterMS = -1
		}
		again, err := DecodeReport(EncodeReport(TopicReports, r))
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}

type eventCase struct {
	Event  Event        `json:"event"`
	Record goldenRecord `json:"record"`
}

func TestGoldenEvents(t *testing.T) {
	value, headers := document(t).compile(t, "event"), document(t).compile(t, "eventHeaders")
	covered := map[State]bool{}
	goldenFile(t, "events.json", func(t *testing.T, c *eventCase) {
		r := EncodeEvent(TopicResults, c.Event)
		c.Record = golden(r)
		covered[c.Event.State] = true

		var v any
		require.NoError(t, json.Unmarshal(r.Value, &v))
		require.NoError(t, value.Validate(v), string(r.Value))
		require.NoError(t, headers.Validate(headerObject(r)))
		e, err := DecodeEvent(r)
		require.NoError(t, err)
		require.Equal(t, c.Event, e)
		require.Equal(t, c.Event.State == StateDead || c.Event.State == StateRejected, e.Kind != "", "dead and rejected say why")
	})
	require.Len(t, covered, len(States()), "every state has a golden event")
}
