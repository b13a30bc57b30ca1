package scanner

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/events"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/outbox"
	"github.com/notyet/notyet/task"
)

// asksAt is a stretch of n requests, the first of them at offset first.
func asksAt(r *reading, first int64, n int) stretch {
	out := stretch{reading: r, from: first, to: first + int64(n)}
	for i := range n {
		rec := ask(fmt.Sprint(first+int64(i)), r.key.partition)
		rec.Offset, rec.Timestamp = first+int64(i), time.Now()
		out.records = append(out.records, rec)
	}
	return out
}

// A batch that leaves out what is not stored cannot be made; a gap that Kafka has left is part of the stretch.
func TestABatchContinuesWhatIsStored(t *testing.T) {
	key := partitionKey{"in", 0}
	decode := func(source int, r *kgo.Record) (task.Change, bool) {
		return task.Change{Seq: task.Seq(source, r.Offset)}, string(r.Value) != "ignored"
	}
	at := func(from int64, offsets ...int64) stretch {
		r := stretch{reading: &reading{key: key}, from: from, to: from}
		for _, o := range offsets {
			r.records, r.to = append(r.records, &kgo.Record{Offset: o}), o+1
		}
		return r
	}
	ignoring := at(10, 10, 11, 12)
	ignoring.records[1].Value = []byte("ignored")
	for name, c := range map[string]struct {
		stretches []stretch
		changes   int
		gaps      []intake.Gap
		next      int64
		gap       bool
	}{
		"continues":                  {stretches: []stretch{at(10, 10, 11), at(12, 12)}, changes: 3, next: 13},
		"partly stored":              {stretches: []stretch{at(5, 8, 9, 10)}, changes: 1, next: 11},
		"all stored":                 {stretches: []stretch{at(5, 8, 9)}, next: 10},
		"Kafka has none there":       {stretches: []stretch{at(10, 13), at(14, 16, 17)}, changes: 3, gaps: []intake.Gap{{Source: 16, From: 10, To: 13}, {Source: 16, From: 14, To: 16}}, next: 18},
		"one that asks for nothing":  {stretches: []stretch{ignoring}, changes: 2, gaps: []intake.Gap{{Source: 16, From: 11, To: 12}}, next: 13},
		"the one before is missing":  {stretches: []stretch{at(12, 12, 13)}, gap: true, next: 10},
		"the one between is missing": {stretches: []stretch{at(10, 10), at(12, 12)}, gap: true, changes: 1, next: 11},
	} {
		t.Run(name, func(t *testing.T) {
			var b intake.Batch
			cov := coverage{src: intake.Source{ID: 16, Next: 10}, first: 10}
			var err error
			for _, r := range c.stretches {
				if err = cov.extend(&b, r, decode); err != nil {
					break
				}
			}
			if c.gap {
				require.ErrorIs(t, err, errGap)
			} else {
				require.NoError(t, err)
			}
			require.Len(t, b.Changes, c.changes)
			require.Equal(t, c.gaps, b.Gaps)
			require.Equal(t, c.next, cov.src.Next)
		})
	}
}

// inMemory is a scanner on a database in this process. Its clients reach nobody.
func inMemory(t *testing.T, cfg Config) (*Scanner, *store.Store) {
	st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + t.TempDir() + "/notyet.db"}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	require.NoError(t, st.Migrate(t.Context(), 4))
	deps := Deps{Store: st, Log: zap.NewNop()}
	s := &Scanner{cfg: cfg.withDefaults(), deps: deps, clock: st.Clock(), parts: newPartitions(deps.Log)}
	s.results, err = events.New(kafka.Config{}, outbox.New(st), events.Config{Topic: s.cfg.Results, Stage: "scanner"}, prometheus.NewRegistry(), zap.NewNop())
	require.NoError(t, err)
	s.build(newMetrics(prometheus.NewRegistry()), newCommits(s.parts, "", deps.Log), nil)
	s.worker.undecided = func(context.Context, func(int64, task.Cancels) bool) error { return nil }
	t.Cleanup(func() { s.results.Close(0) })
	return s, st
}

// stalling is a database whose first answer does not come while anybody waits for it; the later ones come whoever waits.
type stalling struct {
	intake.Intake
	calls atomic.Int32
}

func (d *stalling) Apply(ctx context.Context, b intake.Batch, now func() int64) (intake.Applied, error) {
	if d.calls.Add(1) == 1 {
		<-ctx.Done()
		return intake.Applied{}, ctx.Err()
	}
	return d.Intake.Apply(context.WithoutCancel(ctx), b, now)
}

// A database that stalls until the stopping scanner gives up must not have the later stretch stored without the earlier one.
func TestWhatFollowsAFailedRunIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := inMemory(t, Config{})
		db := &stalling{Intake: intake.New(st)}
		s.worker.applier = db
		key := partitionKey{schemas.TopicIntake, 0}
		src, err := intake.New(st).Source(t.Context(), key.topic, [16]byte{1}, 0, 0)
		require.NoError(t, err)
		s.parts.sources[key] = &src
		s.parts.begun(key, 0)
		r := s.parts.readings[key]
		var stretches []stretch
		for first := int64(0); first < 20; first += 10 {
			next, ok := s.parts.received(asksAt(r, first, 10).records)
			require.True(t, ok)
			stretches = append(stretches, next)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		s.worker.queue.put(ctx, stretches[:1])
		ended := make(chan struct{})
		go func() { s.worker.run(ctx); close(ended) }()
		synctest.Wait()
		require.EqualValues(t, 1, db.calls.Load())
		s.worker.queue.put(ctx, stretches[1:])
		s.worker.queue.close()
		giveUp()
		<-ended
		after, err := intake.New(st).Source(t.Context(), key.topic, [16]byte{1}, 0, 0)
		require.NoError(t, err)
		require.Zero(t, after.Next, "nothing is stored, so nothing may be passed")
		_, ok := s.parts.received(asksAt(r, 20, 1).records)
		require.False(t, ok, "nothing more is taken of it until it is read again")
		require.Equal(t, map[partitionKey]int64{key: 0}, s.parts.again)
	})
}

// A cancel that the database has forgotten waits for a claimed task, whose claim may be older than what was forgotten. A new one is too late.
func TestAForgottenCancelOfAClaimedTaskWaits(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(askFor("orders", "a"), askFor("orders", "b"))
	f.outcome(2)
	f.sql("UPDATE slots SET claimed = 1 << 49")
	f.publish(record(schemas.TopicIntake, 0, schemas.HeaderOp, "cancel", schemas.HeaderTopic, "orders", schemas.HeaderID, "a"))
	require.Equal(t, schemas.StateTooLate, f.outcome(3)["a"])
	s.end()
	f.sql("UPDATE tasks SET state = 0", "UPDATE sources SET next_offset = 2 WHERE topic = CAST('notyet.intake' AS BLOB)")
	f.start(f.store, Config{})
	f.publish(record(schemas.TopicIntake, 0, schemas.HeaderOp, "cancel", schemas.HeaderTopic, "orders", schemas.HeaderID, "b"))
	require.Equal(t, schemas.StateTooLate, f.outcome(4)["b"])
	require.Equal(t, 1, f.count("SELECT COUNT(*) FROM waiting"))
	f.sql("UPDATE slots SET done = claimed")
	f.events(atLeast(5))
	require.Zero(t, f.count("SELECT COUNT(*) FROM waiting"))
}
