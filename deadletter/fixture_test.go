package deadletter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// fixture is a migrated database with one source of requests, and ways to make its tasks dead.
type fixture struct {
	*store.Store
	t      *testing.T
	source intake.Source
	next   int64
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureOn(t, "sqlite:"+t.TempDir()+"/notyet.db")
}

func newFixtureOn(t *testing.T, dsn string) *fixture {
	t.Helper()
	ctx := t.Context()
	st, err := store.Open(ctx, store.Config{DSN: dsn}, zaptest.NewLogger(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	require.NoError(t, st.Migrate(ctx, 1))
	source, err := intake.New(st).Source(ctx, "notyet.intake", [16]byte{1}, 0, 0)
	require.NoError(t, err)
	return &fixture{Store: st, t: t, source: source}
}

func (g *fixture) apply(changes ...task.Change) {
	g.t.Helper()
	for i := range changes {
		changes[i].Seq = task.Seq(g.source.ID, g.next+int64(i))
		if changes[i].Rejected != nil {
			changes[i].Rejected.Seq = changes[i].Seq
		}
	}
	to := g.next + int64(len(changes))
	_, err := intake.New(g).Apply(g.t.Context(), intake.Batch{Advance: []intake.Advance{{Source: g.source.ID, From: g.next, To: to}}, Changes: changes}, store.At(time.Now().UnixMilli()))
	require.NoError(g.t, err)
	g.next = to
}

// schedule makes a task that is due in an hour.
func (g *fixture) schedule(topic, id string, value []byte) {
	g.t.Helper()
	now := time.Now().UnixMilli()
	g.apply(task.Change{Request: &schemas.Request{
		Topic: topic, ID: id, GivenID: true, Due: now + 3_600_000, Accepted: now, Version: schemas.NoVersion, Key: []byte("key"), Value: value,
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{0xff}}, {Key: "h", Value: nil}}, Settings: schemas.DefaultSettings(),
	}})
}

// kill makes a dead task with a letter.
func (g *fixture) kill(topic, id, reason string, value []byte) {
	g.t.Helper()
	ctx := g.t.Context()
	g.apply(task.Change{Request: &schemas.Request{
		Topic: topic, ID: id, GivenID: true, Due: time.Now().UnixMilli(), Accepted: time.Now().UnixMilli(), Version: schemas.NoVersion, Key: []byte("key"), Value: value,
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{0xff}}, {Key: "h", Value: nil}}, Settings: schemas.DefaultSettings(),
	}})
	scheduled, err := look.New(g.Store).Get(ctx, topic, id)
	require.NoError(g.t, err)
	slots, err := g.Slots(ctx)
	require.NoError(g.t, err)
	epoch := slots[0].Epoch + 1
	_, err = intake.New(g).Line().Acquire(ctx, []int{0}, epoch, "me")
	require.NoError(g.t, err)
	_, pos, err := intake.New(g).Line().Next(ctx, []int{0})
	require.NoError(g.t, err)
	require.Len(g.t, pos, 1)
	require.NoError(g.t, intake.New(g).Line().Claim(ctx, 0, []int{0}, []int64{0}, epoch, pos[0].Pos))
	seq := task.Seq(g.source.ID, g.next-1)
	now := time.Now().UnixMilli()
	_, err = intake.New(g).Line().Settle(ctx, []line.Done{{Slot: 0, Epoch: epoch, From: slots[0].Done, To: pos[0].Pos}}, []line.Transition{{
		Seq: seq, Slot: 0, Epoch: epoch, State: task.StateDead, Attempt: 1,
		Dead: &task.DeadLetter{Seq: seq, Kind: schemas.KindDead, Topic: topic, TaskID: id, Due: scheduled.Due, Attempt: 1, Reason: reason, DiedAt: now, Body: scheduled.Body},
	}}, store.At(now))
	require.NoError(g.t, err)
}

// reject makes a letter of a rejected request.
func (g *fixture) reject(id string) {
	g.t.Helper()
	record := &kgo.Record{Key: []byte("k"), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "notyet-topc", Value: []byte("orders")}}}
	g.apply(task.Change{Rejected: &task.DeadLetter{Kind: schemas.KindRejected, TaskID: id, Reason: "notyet-topc is not a header", Body: schemas.EncodeRejected(record)}})
}

func (g *fixture) local(ix Index) *Local {
	return NewLocal(g.Store, ix, "test", zaptest.NewLogger(g.t))
}
