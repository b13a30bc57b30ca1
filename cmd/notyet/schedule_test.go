package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/schemas"
)

// The id may have had a task before. Its end may be told late, and the end of this one before the answer to its request.
func TestAWaitTakesNoOthersEnd(t *testing.T) {
	const mine, other = "in/0/7", "in/0/3"
	scheduled := schemas.Event{Topic: "orders", ID: "a", State: schemas.StateScheduled, Request: mine, At: 100, Due: 150}
	end := func(state schemas.State, at, due int64, request string) schemas.Event {
		return schemas.Event{Topic: "orders", ID: "a", State: state, At: at, Due: due, Request: request}
	}
	succeeded := end(schemas.StateSucceeded, 160, 150, "")
	for name, c := range map[string]struct {
		events []schemas.Event
		want   *schemas.Event
	}{
		"end":                                {[]schemas.Event{scheduled, succeeded}, &succeeded},
		"end before the answer":              {[]schemas.Event{succeeded, scheduled}, &succeeded},
		"end in the same millisecond":        {[]schemas.Event{end(schemas.StateSucceeded, 100, 150, ""), scheduled}, new(end(schemas.StateSucceeded, 100, 150, ""))},
		"earlier task, told late":            {[]schemas.Event{scheduled, end(schemas.StateCancelled, 90, 3600, ""), end(schemas.StateSucceeded, 99, 150, ""), succeeded}, &succeeded},
		"earlier task, in the same batch":    {[]schemas.Event{scheduled, end(schemas.StateCancelled, 100, 3600, other), succeeded}, &succeeded},
		"earlier task, before the answer":    {[]schemas.Event{end(schemas.StateDead, 99, 50, ""), scheduled}, nil},
		"another topic":                      {[]schemas.Event{scheduled, {Topic: "bills", ID: "a", State: schemas.StateSucceeded, At: 160}}, nil},
		"another's rejection":                {[]schemas.Event{scheduled, end(schemas.StateRejected, 160, 0, other), end(schemas.StateStale, 160, 150, other), succeeded}, &succeeded},
		"cancelled by another":               {[]schemas.Event{scheduled, end(schemas.StateCancelled, 120, 150, "in/1/9")}, new(end(schemas.StateCancelled, 120, 150, "in/1/9"))},
		"stale":                              {[]schemas.Event{end(schemas.StateStale, 100, 150, mine)}, new(end(schemas.StateStale, 100, 150, mine))},
		"rejected, not even with its topic":  {[]schemas.Event{{ID: mine, State: schemas.StateRejected, Request: mine}}, &schemas.Event{ID: mine, State: schemas.StateRejected, Request: mine}},
		"no answer":                          {[]schemas.Event{succeeded}, nil},
		"the answer twice, and then the end": {[]schemas.Event{scheduled, scheduled, succeeded}, &succeeded},
	} {
		w := awaited{Published: api.Published{Topic: "orders", ID: "a", Request: mine}}
		var got *schemas.Event
		for _, e := range c.events {
			if one := (event{Event: e}); got == nil && w.takes(one) {
				if ended := w.ending(one); ended != nil {
					got = &ended.Event
				}
			}
		}
		require.Equal(t, c.want, got, name)
	}
}

// Delay and max-wait count from the timestamp that the broker writes, and so does the due time that is printed.
func TestScheduleNamesTheDueTimeOfTheDelivery(t *testing.T) {
	brokers := os.Getenv("NOTYET_KAFKA_BROKERS")
	if brokers == "" {
		t.Skip("NOTYET_KAFKA_BROKERS is not set: run scripts/servers up and evaluate scripts/servers env")
	}
	topic := fmt.Sprintf("cmd%x.intake", time.Now().UnixNano())
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(brokers, ",")...), kgo.ConsumeTopics(topic))
	require.NoError(t, err)
	defer client.Close()
	admin, stamps := kadm.NewClient(client), "LogAppendTime"
	_, err = admin.CreateTopic(t.Context(), 1, 1, map[string]*string{"message.timestamp.type": &stamps}, topic)
	require.NoError(t, err)
	defer func() { _, _ = admin.DeleteTopic(t.Context(), topic) }()

	for want, flags := range map[time.Duration][]string{
		time.Hour:   {"--delay", "1h"},
		time.Minute: {"--at", "2100-01-01T00:00:00Z", "--if-exists", "merge", "--max-wait", "1m"},
	} {
		r := notyet(t, []string{"NOTYET_KAFKA_BROKERS=" + brokers, "NOTYET_INTAKE_TOPICS=" + topic, "NOTYET_INTAKE_MAX_DELAY=1000000h", "NOTYET_HTTP_ADDR=127.0.0.1:1"}, "",
			append([]string{"schedule", "-t", "orders", "--id", "a", "--value", "v", "--json"}, flags...)...)
		require.Zero(t, r.code, r.stderr)
		var printed api.Published
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &printed))
		fetches := client.PollRecords(t.Context(), 1)
		require.NoError(t, fetches.Err())
		require.Equal(t, fetches.Records()[0].Timestamp.UnixMilli()+want.Milliseconds(), printed.Due)
	}
}
