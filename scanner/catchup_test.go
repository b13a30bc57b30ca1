package scanner

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/recordtest"
)

func TestCatchUp(t *testing.T) {
	f := newFixture(t)
	f.publish(asks("a", 50)...)
	f.publish(record(schemas.TopicReports, 0, schemas.HeaderTopic, "orders", schemas.HeaderID, "a1", schemas.HeaderAttempt, "1", schemas.HeaderStatus, "ok"))
	// At the end of a partition stand a record that was given up and two markers: nothing that could ever be stored.
	tx, err := kafka.New(f.kafka, zap.NewNop(), kgo.TransactionalID("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer tx.Close()
	for id, end := range map[string]kgo.TransactionEndTry{"b": kgo.TryCommit, "c": kgo.TryAbort} {
		require.NoError(t, tx.BeginTransaction())
		require.NoError(t, tx.ProduceSync(t.Context(), ask(id, 1)).FirstErr())
		require.NoError(t, tx.EndTransaction(t.Context(), end))
	}
	var left []int64
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	require.NoError(t, f.scanner(f.store, Config{Read: []string{schemas.TopicIntake}}).CatchUp(ctx, func(n int64) { left = append(left, n) }))
	require.Equal(t, 51, f.count("SELECT COUNT(*) FROM tasks"))
	require.NotEmpty(t, left)
	require.Zero(t, f.count("SELECT COUNT(*) FROM sources WHERE topic = ?", []byte(schemas.TopicReports)), "reports were not to be read")

	require.NoError(t, f.scanner(f.store, Config{Read: []string{schemas.TopicReports}}).CatchUp(ctx, func(int64) {}))
	require.Equal(t, 1, f.count("SELECT next_offset FROM sources WHERE topic = ?", []byte(schemas.TopicReports)))
}

// What a restored database reads again has the same end, in whichever order the topics are read.
func TestCatchUpOfCancels(t *testing.T) {
	f := newFixture(t)
	f.cancelsOf20()
	f.sql("DELETE FROM tasks", "UPDATE sources SET next_offset = 0")
	require.NoError(t, f.scanner(f.store, Config{}).CatchUp(t.Context(), func(int64) {}))
	require.Equal(t, 11, f.ended(task.StateCancelled))
	require.Equal(t, 9, f.ended(task.StateLine))
}

// The last batch of a partition may be one that no client can decode.
func TestCatchUpPassesWhatCannotBeRead(t *testing.T) {
	f := newFixture(t)
	f.publish(ask("a", 0))
	f.publishRaw(0, overlong(recordtest.EncodedAt(ask("bad", 0), 0)))
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	require.NoError(t, f.scanner(f.store, Config{}).CatchUp(ctx, func(int64) {}))
	require.EqualValues(t, 2, f.sourceOf(0).Next)
	require.Equal(t, 1, f.tasks())
	require.Equal(t, 1, f.count("SELECT COUNT(*) FROM dead_letters"))
}

// A scanner that starts on a database older than what the group has stored says so, with counts, before it reads on.
func TestSaysThatTheDatabaseWasSetBack(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(asks("a", 40)...)
	f.events(atLeast(40))
	s.end()
	stored := f.count("SELECT next_offset FROM sources WHERE part = 2 AND topic = ?", []byte(schemas.TopicIntake))
	require.Greater(t, stored, 5)

	core, logs := observer.New(zapcore.WarnLevel)
	run := func() *Scanner {
		s, err := New(Deps{Kafka: f.kafka, Store: f.store, Index: f.index, Metrics: prometheus.NewRegistry(), Log: zap.New(core)}, Config{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		require.NoError(t, s.CatchUp(ctx, func(int64) {}))
		return s
	}
	require.Zero(t, counted(run().worker.metrics.reread))
	require.Zero(t, logs.Len(), "nothing to say on a restart")

	f.sql("DELETE FROM tasks WHERE seq % 281474976710656 >= 5", "UPDATE sources SET next_offset = 5 WHERE part = 2")
	again := run()
	require.Equal(t, stored-5, counted(again.worker.metrics.reread))
	found := logs.FilterMessageSnippet("older than what was stored").All()
	require.Len(t, found, 1)
	fields := found[0].ContextMap()
	require.EqualValues(t, 2, fields["partition"])
	require.EqualValues(t, 5, fields["offset"])
	require.EqualValues(t, stored-5, fields["offsets_again"])
}
