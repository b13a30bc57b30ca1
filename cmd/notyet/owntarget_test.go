package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/recordtest"
)

// On an intake with a target of its own, a record that says only when is delivered to that target, by the scanner
// as by the command line, and one for another target is rejected with the fix.
func TestAnIntakeWithATargetOfItsOwn(t *testing.T) {
	file := fileWith(t, "notyet.yaml", "intake:\n  topics: [notyet.intake, {topic: orders.later, target: orders}]\n")
	d := startDev(t, "--config", file)
	require.Contains(t, d.out.String(), "-t orders.later -H notyet-topic=orders", "what dev suggests works")
	d.environ = append(d.environ, "NOTYET_CONFIG="+file)
	producer := client(t, d.kafka)
	send := func(headers ...string) {
		r := &kgo.Record{Topic: "orders.later", Key: []byte("k"), Value: []byte("v"), Headers: recordtest.Headers(headers...)}
		require.NoError(t, producer.ProduceSync(t.Context(), r).FirstErr())
	}
	send(schemas.HeaderDelay, "0s")
	require.Equal(t, "v", string(first(t, d.kafka, "orders").Value))

	send(schemas.HeaderTopic, "bills", schemas.HeaderID, "astray", schemas.HeaderDelay, "0s")
	e, err := schemas.DecodeEvent(first(t, d.kafka, schemas.TopicResults))
	require.NoError(t, err)
	require.Equal(t, []any{e.Request, "", schemas.StateRejected}, []any{e.ID, e.Topic, e.State})
	require.Equal(t, `notyet-topic "bills" is not the target of this intake topic: leave it out, write orders, or use another intake topic (the request names the id "astray")`, e.Reason)

	for _, named := range [][]string{{"-t", "orders"}, {"--intake", "orders.later"}} {
		for _, args := range [][]string{
			{"schedule", "--id", "x", "--delay", "1h", "--key", "k", "--value", "v", "--json"}, {"fire", "--id", "x", "--no-wait", "--json"}, {"timer", "set", "--id", "x", "--every", "1h", "--value", "v", "--no-wait", "--json"},
		} {
			r := d.cmd(t, append(args, named...)...)
			require.Equal(t, command.ExitDone, r.code, r.stderr)
			var sent struct{ Topic, Intake string }
			require.NoError(t, json.Unmarshal([]byte(r.stdout), &sent))
			require.Equal(t, "orders", sent.Topic)
			require.Equal(t, "orders.later", sent.Intake, "%v", args)
		}
	}
	require.Equal(t, command.ExitUsage, d.cmd(t, "schedule", "--delay", "1h", "--value", "v").code, "the first intake has no target")
	require.Equal(t, command.ExitUsage, d.cmd(t, "cancel", "--id", "x", "-t", "bills", "--intake", "orders.later").code)

	send(schemas.HeaderOp, "schedule", schemas.HeaderID, "y", schemas.HeaderDelay, "1h", schemas.HeaderEvents, "all")
	send(schemas.HeaderOp, "cancel", schemas.HeaderID, "y")
	require.Eventually(t, func() bool {
		r := d.cmd(t, "get", "-t", "orders", "--id", "y", "--json")
		var task struct{ State string }
		return r.code == command.ExitDone && json.Unmarshal([]byte(r.stdout), &task) == nil && task.State == "cancelled"
	}, time.Minute, 10*time.Millisecond)
}
