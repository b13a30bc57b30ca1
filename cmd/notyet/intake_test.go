package main

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
)

func TestIntakeCommands(t *testing.T) {
	d := startDev(t)
	dsn := "sqlite:" + t.TempDir() + "/notyet.db" // dev's own scanner has another one
	environ := append(d.environ, "NOTYET_MYSQL_DSN="+dsn)
	require.Equal(t, command.ExitDone, notyet(t, environ, "", "migrate").code)
	st, err := store.Open(t.Context(), store.Config{DSN: dsn}, zap.NewNop())
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()
	c := client(t, d.kafka, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for range 5 {
		require.NoError(t, c.ProduceSync(t.Context(), &kgo.Record{Topic: "notyet.intake", Value: []byte("v")}).FirstErr())
	}
	ids, err := kafka.TopicIDs(t.Context(), c, "notyet.intake")
	require.NoError(t, err)
	src, err := intake.New(st).Source(t.Context(), "notyet.intake", ids["notyet.intake"], 0, 2)
	require.NoError(t, err)
	run := func(args ...string) result { return notyet(t, environ, "", append([]string{"intake"}, args...)...) }
	status := func(code int) scanner.Partition {
		r := run("status", "--json")
		require.Equal(t, code, r.code, r.stderr)
		var out struct{ Partitions []scanner.Partition }
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &out))
		at := slices.IndexFunc(out.Partitions, func(p scanner.Partition) bool { return p.Topic == "notyet.intake" && p.Partition == 0 })
		require.NotEqual(t, -1, at)
		return out.Partitions[at]
	}
	require.Equal(t, "ok", status(command.ExitDone).State)
	require.EqualValues(t, 3, status(command.ExitDone).Lag)

	r := run("skip", "notyet.intake", "0", "--at", "1")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "stands at offset 2, not at 1")
	r = run("skip", "notyet.intake", "0", "--at", "2", "--to", "4")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Equal(t, "notyet.intake/0 goes on at offset 4; what was passed has the dead letter of notyet.intake/0/2\n", r.stdout)
	require.EqualValues(t, 4, status(command.ExitDone).Next)
	r = run("restart", "notyet.intake", "0")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "notyet.intake/0 is ok")

	// As of a log that lost what is stored.
	_, err = intake.New(st).Apply(t.Context(), intake.Batch{Advance: []intake.Advance{{Source: src.ID, From: 4, To: 9}}, Gaps: []intake.Gap{{Source: src.ID, From: 4, To: 9}}}, store.At(1))
	require.NoError(t, err)
	require.Equal(t, "diverged", status(command.ExitFailed).State)
	r = run("status")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stdout, "the log lost what is stored from offset 5 on")
	require.Contains(t, r.stdout, "notyet.reports")
	r = run("restart", "notyet.intake", "0", "--json")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	var done scanner.Restarted
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &done))
	require.EqualValues(t, 5, done.From)
	require.EqualValues(t, 9, done.StoredTo)
	require.Equal(t, "ok", status(command.ExitDone).State)
	require.Equal(t, 1, status(command.ExitDone).Restarts)
}
