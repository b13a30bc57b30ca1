package scanner

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/defaults"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
)

// What Kafka did not take is committed with the next, unless the partition is further or gone.
func TestAFailedCommitIsRepeated(t *testing.T) {
	p := newPartitions(zap.NewNop())
	for part := range int32(2) {
		p.sources[partitionKey{"in", part}] = nil
	}
	c := newCommits(p, "", zap.NewNop())
	c.due["in"] = map[int32]kgo.EpochOffset{1: {Offset: 8}}
	c.takeBack(map[string]map[int32]kgo.EpochOffset{"in": {0: {Offset: 5}, 1: {Offset: 5}, 2: {Offset: 5}}})
	require.Equal(t, map[int32]kgo.EpochOffset{0: {Offset: 5}, 1: {Offset: 8}}, c.due["in"])
	p.drop(map[string][]int32{"in": {0}})
	c.forget(map[string][]int32{"in": {0}})
	c.takeBack(map[string]map[int32]kgo.EpochOffset{"in": {0: {Offset: 5}}})
	require.Equal(t, map[int32]kgo.EpochOffset{1: {Offset: 8}}, c.due["in"], "of one that was revoked nothing is committed")
}

// While a database that was set back catches up, Kafka keeps the offset that it has: by that, whoever takes the partition next knows what was
// accepted before.
func TestNoCommitGoesBack(t *testing.T) {
	key, p := partitionKey{"in", 0}, newPartitions(zap.NewNop())
	p.sources[key] = nil
	c := newCommits(p, "shop", zap.NewNop())
	taken := func() int64 {
		t.Helper()
		due, _, _ := c.take()
		at, some := due["in"][0]
		require.True(t, some)
		return at.Offset
	}
	c.claim(key, 500, 1000)
	require.EqualValues(t, 1000, taken(), "the group is claimed all the same")
	c.note(key, intake.Source{Next: 600})
	require.Empty(t, c.due)
	c.note(key, intake.Source{Next: 1000})
	require.EqualValues(t, 1000, taken())
	c.note(key, intake.Source{Next: 1100})
	require.EqualValues(t, 1100, taken())
	c.note(key, intake.Source{Next: 700})
	require.Empty(t, c.due, "it was set back meanwhile")
	c.forget(map[string][]int32{"in": {0}})
	c.claim(key, 0, -1)
	require.Zero(t, taken(), "of another log of that name")
	c.note(key, intake.Source{Next: 5})
	require.EqualValues(t, 5, taken())

	c.claim(key, 500, 1000)
	gone := map[string][]int32{"in": {0}}
	p.drop(gone)
	c.forget(gone)
	c.note(key, intake.Source{Next: 600})
	require.Empty(t, c.due["in"], "it was revoked while its batch was stored")
}

// committed is the group's offset of a partition of the intake, -1: there is none.
func (f *fixture) committed(partition int32) int64 {
	f.Helper()
	offsets, err := kafka.GroupOffsets(f.Context(), f.client, defaults.ScannerGroup, schemas.TopicIntake)
	require.NoError(f, err)
	if c, some := offsets[schemas.TopicIntake][partition]; some {
		return c.At
	}
	return -1
}

// An offset above what there is to store comes down: it would look like a database that was set back, for ever.
func TestAHigherOffsetComesDownAtTheEnd(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{Installation: "shop"})
	f.publish(asksIn("a", 3, 0)...)
	f.eventually("committed", func() bool { return f.committed(0) == 3 })
	s.end()
	set := kadm.Offsets{}
	set.AddOffset(schemas.TopicIntake, 0, 500, -1)
	set.AddOffset(schemas.TopicIntake, 1, 7, -1) // nothing ever was there
	require.NoError(t, kadm.NewClient(f.client).CommitAllOffsets(t.Context(), defaults.ScannerGroup, set))
	s = f.start(f.store, Config{Installation: "shop"})
	f.eventually("it has come down", func() bool { return f.committed(0) == 3 && f.committed(1) == 0 })
	f.publish(asksIn("b", 2, 0)...)
	f.eventually("and goes up again", func() bool { return f.committed(0) == 5 })
	s.end()
}

// A partition is revoked amid a commit. The group still knows that it was restarted.
func TestACommitAmidARevocationKeepsTheRestarts(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{Installation: "shop"})
	f.publish(asksIn("a", 3, 0)...)
	f.eventually("committed", func() bool { return f.committed(0) == 3 })
	noted := func() int {
		offsets, err := kafka.GroupOffsets(t.Context(), f.client, defaults.ScannerGroup, schemas.TopicIntake)
		require.NoError(t, err)
		return offsets[schemas.TopicIntake][0].Restarts().N
	}
	key := partitionKey{schemas.TopicIntake, 0}
	s.parts.mu.Lock()
	s.parts.restarts[key] = 2
	s.parts.mu.Unlock()
	f.eventually("noted", func() bool { return noted() == 2 })
	s.worker.commits.claim(key, 3, 3)
	s.parts.drop(map[string][]int32{key.topic: {key.partition}})
	s.worker.commits.commit(t.Context(), s.group)
	require.Equal(t, 2, noted())
	s.worker.commits.forget(map[string][]int32{key.topic: {key.partition}})
	s.end()
}

// The group may refuse a commit of some partitions, as while it shares them anew: they are committed again.
func TestRefusedCommitsAreRepeated(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{Installation: "shop"})
	f.publish(append(asksIn("a", 3, 0), asksIn("b", 2, 1)...)...)
	f.eventually("committed", func() bool { return f.committed(0) == 3 && f.committed(1) == 2 })
	refusal := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Topic: schemas.TopicIntake, Partitions: []int32{0}, Err: kerr.RebalanceInProgress, Count: 1})
	f.publish(append(asksIn("c", 2, 0), asksIn("d", 1, 1)...)...)
	f.eventually("refused", func() bool { return refusal.Hits() == 1 })
	f.eventually("committed in the end", func() bool { return f.committed(0) == 5 && f.committed(1) == 3 })
	s.end()
}

// Only the log's end takes an offset down: until then, dispatchers wait for what the database lacks.
func TestAnOffsetStaysUntilTheEnd(t *testing.T) {
	f := newFixture(t)
	key := partitionKey{schemas.TopicIntake, 0}
	p := newPartitions(zap.NewNop())
	c := newCommits(p, "shop", zap.NewNop())
	stands := func(next int64) { p.sources[key] = &intake.Source{ID: 17, Next: next} }
	lowered := func() bool {
		t.Helper()
		c.lower(t.Context(), f.client)
		due, _, _ := c.take()
		_, some := due[key.topic][key.partition]
		return some
	}
	f.publish(asksIn("a", 30, 0)...)
	stands(5)
	c.claim(key, 5, 40)
	c.take()
	require.False(t, lowered(), "it is not read to its end")
	stands(29)
	require.False(t, lowered())
	p.halted.set(key, halt{})
	stands(30)
	require.False(t, lowered(), "somebody is to decide about its log")
	p.halted.clear(key)
	require.True(t, lowered())
	require.False(t, lowered(), "once")

	stands(5)
	c.claim(key, 5, 100)
	c.take()
	require.False(t, lowered())
	f.publish(asksIn("b", 20, 0)...)
	stands(31)
	require.True(t, lowered(), "more comes all the time, and what was there then is stored")
	require.EqualValues(t, 31, c.told[key])
	f.publish(asksIn("c", 5, 0)...)
	c.claim(key, 31, 100)
	c.take()
	stands(40)
	require.False(t, lowered(), "that end was of another time")
	p.drop(map[string][]int32{key.topic: {0}})
	c.forget(map[string][]int32{key.topic: {0}})
	require.False(t, lowered())
	require.Empty(t, c.ends)
}

// An intake whose quota is used up waits, and only deliveries make room. What was stored before is read again all the same, for no
// dispatcher delivers before.
func TestAFullQuotaDoesNotHoldUpARestoredDatabase(t *testing.T) {
	f := newFixture(t)
	cfg := Config{Installation: "shop", Quotas: map[string]Quota{schemas.TopicIntake: {PendingTasks: 40}}} // 10 for each partition
	s := f.start(f.store, cfg)
	f.publish(asksIn("a", 100, 0)...)
	f.eventually("it waits at its quota", func() bool { return f.tasks() >= 10 && s.poller.pacer.intakes[schemas.TopicIntake].wait() > 0 })
	stored := int64(f.tasks())
	f.eventually("committed", func() bool { return f.committed(0) == stored })
	s.end()
	require.Less(t, stored, int64(100))
	f.sql("DELETE FROM tasks WHERE seq % 281474976710656 >= 2", "UPDATE sources SET next_offset = 2 WHERE next_offset > 2")
	f.publish(asksIn("b", 20, 1)...)
	s = f.start(f.open(), cfg)
	f.eventually("it has caught up", func() bool { return f.count("SELECT MAX(next_offset) FROM sources WHERE part = 0") >= int(stored) })
	require.EqualValues(t, stored, f.committed(0))
	s.end()
}
