package scanner

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/schemas"
)

// askFor makes a request for a task of a target.
func askFor(target, id string, headers ...string) *kgo.Record {
	return record(schemas.TopicIntake, 0, append([]string{schemas.HeaderTopic, target, schemas.HeaderID, id, schemas.HeaderDelay, "1h", schemas.HeaderEvents, "all"}, headers...)...)
}

func fewUnknown(n int) Config {
	return Config{Quotas: map[string]Quota{schemas.TopicIntake: {UnknownTargets: n}}}
}

// outcome waits for the first answers and returns their states by id.
func (f *fixture) outcome(n int) map[string]schemas.State {
	f.Helper()
	out := map[string]schemas.State{}
	for _, e := range f.events(atLeast(n)) {
		out[e.ID] = e.State
	}
	return out
}

// lookUps has the cluster hand over the topics of requests for the metadata of others than its own. An answer that is not nil replaces
// the cluster's.
func (f *fixture) lookUps(answer func(topics []string) error) {
	f.cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		var topics []string
		for _, t := range r.(*kmsg.MetadataRequest).Topics {
			if t.Topic != nil && (len(*t.Topic) < 6 || (*t.Topic)[:6] != "notyet") {
				topics = append(topics, *t.Topic)
			}
		}
		if len(topics) > 0 {
			if err := answer(topics); err != nil {
				return nil, err, true
			}
		}
		return nil, nil, false
	})
}

func TestRequestsBeyondTheQuotaOfUnknownTargets(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.cluster.CreateTopic("orders", 1, nil))
	var asked atomic.Int64
	f.lookUps(func(topics []string) error { asked.Add(int64(len(topics))); return nil })
	s := f.start(f.store, fewUnknown(2))
	f.publish(askFor("no.1", "a"), askFor("orders", "b"), askFor("no.2", "c"), askFor("no.3", "d"), askFor("no.1", "e"),
		askFor("no.3", "f", schemas.HeaderOp, "cancel"), askFor("no.4", "g"))
	require.Equal(t, map[string]schemas.State{"a": "scheduled", "b": "scheduled", "c": "scheduled", "d": "rejected", "e": "scheduled", "f": "rejected", "g": "rejected"}, f.outcome(7))
	require.Equal(t, 3, f.count("SELECT COUNT(*) FROM dead_letters"))
	require.Equal(t, 2, f.count("SELECT COUNT(*) FROM unknown_targets WHERE LENGTH(topic) > 0"))

	before := asked.Load()
	f.publish(askFor("orders", "h"))
	require.Contains(t, f.outcome(8), "h")
	require.Equal(t, before, asked.Load(), "a topic that exists is looked up once")

	require.NoError(t, f.cluster.CreateTopic("no.4", 1, nil))
	f.publish(askFor("no.4", "i"))
	require.Equal(t, schemas.StateScheduled, f.outcome(9)["i"], "a topic that was created")

	s.SetQuotas(map[string]Quota{schemas.TopicIntake: {UnknownTargets: 3}})
	f.publish(askFor("no.3", "j"), askFor("no.5", "k"))
	require.Equal(t, map[string]schemas.State{"j": "scheduled", "k": "rejected"}, pick(f.outcome(11), "j", "k"))

	require.NoError(t, f.cluster.CreateTopic("no.1", 1, nil))
	f.publish(record(schemas.TopicIntake, 0, schemas.HeaderOp, "cancel", schemas.HeaderTopic, "no.2", schemas.HeaderID, "c"))
	require.Equal(t, schemas.StateCancelled, f.outcome(12)["c"])
	s.worker.targets.sweep(t.Context())
	require.Equal(t, 1, f.count("SELECT COUNT(*) FROM unknown_targets WHERE LENGTH(topic) > 0"), "one exists, one has no task any more")
	require.EqualValues(t, -1, f.cluster.LeaderFor("no.5", 0), "no lookup makes a topic")
}

// The quota holds beside those at which requests wait.
func TestUnknownTargetsBesideOtherQuotas(t *testing.T) {
	for name, q := range map[string]Quota{"requests": {RequestsPerSecond: 1000}, "tasks": {PendingTasks: 1000}, "bytes": {PendingBytes: 1 << 20}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			q.UnknownTargets = 1
			f.start(f.store, Config{Quotas: map[string]Quota{schemas.TopicIntake: q}})
			f.publish(askFor("no.1", "a"), askFor("no.2", "b"), askFor("no.1", "c"))
			require.Equal(t, map[string]schemas.State{"a": "scheduled", "b": "rejected", "c": "scheduled"}, f.outcome(3))
		})
	}
}

func pick(of map[string]schemas.State, ids ...string) map[string]schemas.State {
	out := map[string]schemas.State{}
	for _, id := range ids {
		out[id] = of[id]
	}
	return out
}

// Kafka that does not say whether topics exist, or a user who may not know, has nothing rejected.
func TestNothingIsRejectedForWantOfAnAnswer(t *testing.T) {
	f := newFixture(t)
	refused := errors.New("the broker closes the connection")
	var away atomic.Bool
	away.Store(true)
	f.lookUps(func([]string) error {
		if away.Load() {
			return refused
		}
		return nil
	})
	s := f.start(f.store, fewUnknown(1))
	f.publish(askFor("no.1", "a"), askFor("no.2", "b"), askFor("no.3", "c"))
	for id, state := range f.outcome(3) {
		require.Equal(t, schemas.StateScheduled, state, id)
	}
	require.Zero(t, f.count("SELECT COUNT(*) FROM unknown_targets"))
	away.Store(false)
	f.eventually("Kafka is asked again", func() bool { return len(s.worker.targets.missing(t.Context(), []string{"no.9"})) == 1 })
	f.publish(askFor("no.4", "d"), askFor("no.5", "e"))
	require.Equal(t, map[string]schemas.State{"d": "scheduled", "e": "rejected"}, pick(f.outcome(5), "d", "e"))
}

// What passed before the database was set back passes again.
func TestUnknownTargetsPassAgain(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, fewUnknown(1))
	f.publish(askFor("no.1", "a"), askFor("no.2", "b"))
	require.Equal(t, map[string]schemas.State{"a": "scheduled", "b": "rejected"}, f.outcome(2))
	s.end()
	f.sql("DELETE FROM tasks", "DELETE FROM unknown_targets", "INSERT INTO unknown_targets VALUES (CAST('notyet.intake' AS BLOB), CAST('no.0' AS BLOB))", "UPDATE sources SET next_offset = 0 WHERE topic = CAST('notyet.intake' AS BLOB)")
	f.start(f.store, fewUnknown(1))
	f.publish(askFor("no.3", "c"))
	last := map[string]schemas.State{}
	f.events(func(all []schemas.Event) bool {
		for _, e := range all {
			last[e.ID] = e.State
		}
		return last["c"] != ""
	})
	require.Equal(t, map[string]schemas.State{"a": "scheduled", "b": "scheduled", "c": "rejected"}, last)
}

// Beyond their rate, rejections have no dead letter.
func TestRejectionsOfUnknownTargetsHaveFewLetters(t *testing.T) {
	f := newFixture(t)
	const n = 1000
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = askFor(fmt.Sprint("no.", i), fmt.Sprint(i))
	}
	f.publish(records...)
	s := f.start(f.store, fewUnknown(1))
	require.Len(t, byID(f.events(atLeast(n)), schemas.StateRejected), n-1)
	letters := f.count("SELECT COUNT(*) FROM dead_letters")
	require.GreaterOrEqual(t, letters, lettersPerSecond)
	require.Less(t, letters, n-1)
	require.EqualValues(t, n-1-letters, s.worker.targets.beyond[schemas.TopicIntake].unkept.Load())
}
