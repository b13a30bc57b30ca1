package main

import (
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/test/recordtest"
)

// A scanner does not start beside one that has another target for an intake topic: which of them reads a record is chance.
func TestScannersWithOtherTargets(t *testing.T) {
	dsn := "sqlite:" + t.TempDir() + "/notyet.db"
	st, err := store.Open(t.Context(), store.Config{DSN: dsn}, zap.NewNop())
	require.NoError(t, err)
	defer func() { _ = st.Close() }()
	require.NoError(t, st.Migrate(t.Context(), 1))
	open := func(name, topics string) (*service, error) {
		cfg, err := config.Load(config.Sources{Environ: []string{"NOTYET_INDEX_KIND=mysql", "NOTYET_HTTP_ADDR=127.0.0.1:0"}, File: fileWith(t, "notyet.yaml", "intake: {topics: "+topics+"}\n")})
		require.NoError(t, err)
		cfg.MySQL.DSN = dsn
		return openService(t.Context(), cfg, name, zap.NewNop(), io.Discard)
	}
	one, err := open("scanner", "[{topic: orders.later, target: orders}]")
	require.NoError(t, err)
	_, err = open("scanner", "[orders.later]")
	require.ErrorIs(t, err, admin.ErrOtherTarget)
	for name, topics := range map[string]string{"scanner": "[notyet.intake]", "dispatcher": "[orders.later]", "all": "[notyet.intake, {topic: orders.later, target: orders}]"} {
		s, err := open(name, topics)
		require.NoError(t, err, name)
		s.close()
	}
	one.close()
	one, err = open("scanner", "[orders.later]")
	require.NoError(t, err)
	one.close()
}

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
	require.Equal(t, []any{"astray", schemas.StateRejected}, []any{e.ID, e.State})
	require.Equal(t, `notyet-topic "bills" is not the target of this intake topic: leave it out, write orders, or use another intake topic`, e.Reason)

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

// Reconcile reads the intake again with the limits that scanners have.
func TestReconcileDecodesLikeAScanner(t *testing.T) {
	cfg, err := config.Load(config.Sources{Environ: []string{}, File: fileWith(t, "notyet.yaml", "intake:\n  topics: [{topic: orders.later, target: orders}]\n")})
	require.NoError(t, err)
	s := &service{cfg: cfg}
	require.NoError(t, s.takeLimits(cfg))
	for _, headers := range [][]kgo.RecordHeader{
		{{Key: schemas.HeaderDelay, Value: []byte("1h")}},
		{{Key: schemas.HeaderDelay, Value: []byte("1h")}, {Key: schemas.HeaderTopic, Value: []byte("bills")}},
		{{Key: schemas.HeaderDelay, Value: []byte("1h")}, {Key: schemas.HeaderURL, Value: []byte("https://a.example")}},
	} {
		r := &kgo.Record{Topic: "orders.later", Timestamp: time.UnixMilli(1790000000000), Headers: headers}
		first, firstErr := schemas.Decode(r, scannerConfig(cfg, *s.in.Load()).IntakeLimits[r.Topic])
		again, againErr := schemas.Decode(r, scannerConfig(cfg, unguardedIntakes(cfg)).IntakeLimits[r.Topic])
		require.Equal(t, first, again)
		require.Equal(t, firstErr, againErr)
		var rejection *schemas.Rejection
		require.Equal(t, len(headers) > 1, errors.As(firstErr, &rejection))
	}
}
