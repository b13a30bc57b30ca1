package scanner

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/test/lettertest"
)

func (f *fixture) operator() *Operator {
	return &Operator{Kafka: f.client, Store: f.store, Topics: []string{schemas.TopicIntake, schemas.TopicReports}, Group: copyGroup, Name: "ann@host"}
}

func (f *fixture) asAnn() context.Context {
	return admin.WithActor(f.Context(), admin.Actor{Who: "ann@host", Via: admin.ViaCLI})
}

// audited wants one entry in the audit log.
func (f *fixture) audited(what string, count int64) {
	f.Helper()
	page, err := look.New(f.store).ListAudit(f.Context(), look.AuditFilter{})
	require.NoError(f, err)
	require.Len(f, page.Entries, 1)
	e := page.Entries[0]
	require.Equal(f, []any{"ann@host", what, count}, []any{e.Who, e.What, e.Count})
	require.Contains(f, e.Detail, schemas.TopicIntake)
}

// stands answers what an operator sees of a partition of the intake.
func (f *fixture) stands(partition int32) Partition {
	f.Helper()
	all, err := f.operator().Partitions(f.Context())
	require.NoError(f, err)
	require.Len(f, all, 2*intakeParts)
	p := all[partition]
	require.Equal(f, schemas.TopicIntake, p.Topic)
	require.Equal(f, partition, p.Partition)
	p.source, p.topicID = intake.Source{}, [16]byte{}
	return p
}

func TestAnOperatorSeesWherePartitionsStand(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	for part := range int32(3) {
		f.publish(asksIn("a", 6, part)...)
		f.eventually("stored", func() bool { return f.sourceOf(part).Next == 6 })
	}
	s.end()
	f.publish(asksIn("b", 2, 0)...)
	f.loseRecords(1, 9)
	f.publish(asksIn("b", 2, 2)...)
	require.NoError(t, f.cluster.DeleteRecords(schemas.TopicIntake, 2, 7))

	require.Equal(t, Partition{Topic: schemas.TopicIntake, State: StateOK, Next: 6, End: 8, Lag: 2}, f.stands(0))
	six := int64(6)
	require.Equal(t, Partition{
		Topic: schemas.TopicIntake, Partition: 1, State: StateDiverged, Next: 9, End: 6, SameUpTo: &six,
		Detail: "the log lost what is stored from offset 6 on: nothing more is read of it",
	}, f.stands(1))
	require.Equal(t, Partition{
		Topic: schemas.TopicIntake, Partition: 2, State: StateExpired, Next: 6, Start: 7, End: 8, Lag: 2,
		Detail: "1 offsets were deleted before they were stored",
	}, f.stands(2))
	require.Equal(t, Partition{Topic: schemas.TopicIntake, Partition: 3, State: StateNew, Next: -1}, f.stands(3))

	f.sql("UPDATE sources SET epoch = 7 WHERE part = 0")
	require.Equal(t, StateUnsure, f.stands(0).State)
	f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.GroupAuthorizationFailed, Count: -1})
	require.Equal(t, StateUnsure, f.stands(0).State, "also for who may not see the group")
	require.NoError(t, f.cluster.DeleteTopic(schemas.TopicIntake))
	all, err := f.operator().Partitions(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 3+intakeParts, "those of the intake that are stored, and all of the reports")
	require.Equal(t, StateMissing, all[0].State)
	_, err = f.operator().Restart(t.Context(), schemas.TopicIntake, 0, nil)
	require.ErrorIs(t, err, ErrRefused)
	_, err = f.operator().Skip(t.Context(), schemas.TopicIntake, 0, 6, 7)
	require.ErrorIs(t, err, ErrRefused)
}

func TestAnOperatorRestartsAPartition(t *testing.T) {
	f := newFixture(t)
	first := f.start(f.store, Config{})
	f.publish(asksIn("a", 6, 0)...)
	f.publish(asksIn("z", 1, 1)...)
	f.eventually("stored", func() bool { return f.sourceOf(0).Next == 6 && f.sourceOf(1).Next == 1 })
	first.end()
	f.loseRecords(0, 10)
	f.elect(0)
	f.publish(asksIn("b", 8, 0)...)
	s := f.start(f.open(), Config{})
	f.eventually("it says so", func() bool { return s.Ready(t.Context()) != nil })

	op := f.operator()
	outside, inside := int64(15), int64(14)
	for name, refused := range map[string]func() error{
		"a partition that is fine":    func() error { _, err := op.Restart(t.Context(), schemas.TopicIntake, 1, nil); return err },
		"one that does not exist":     func() error { _, err := op.Restart(t.Context(), schemas.TopicIntake, 99, nil); return err },
		"a topic that is no intake":   func() error { _, err := op.Restart(t.Context(), "orders", 0, nil); return err },
		"an offset beyond the log":    func() error { _, err := op.Restart(t.Context(), schemas.TopicIntake, 0, &outside); return err },
		"passing what is not the log": func() error { _, err := op.Skip(t.Context(), schemas.TopicIntake, 0, 10, 11); return err },
	} {
		require.ErrorIs(t, refused(), ErrRefused, name)
	}
	require.Equal(t, 7, f.tasks(), "nothing has happened")

	done, err := op.Restart(f.asAnn(), schemas.TopicIntake, 0, nil)
	require.NoError(t, err)
	require.EqualValues(t, 6, done.From)
	require.EqualValues(t, 10, done.StoredTo)
	require.NotEqual(t, done.OldSource, done.NewSource)
	f.audited("intake restart", 1)
	_, err = op.Restart(t.Context(), schemas.TopicIntake, 0, nil)
	require.ErrorIs(t, err, ErrRefused, "a second time")
	f.eventually("the new records are stored", func() bool { return f.tasks() == 7+8 })
	f.eventually("it is ready", func() bool { return s.Ready(t.Context()) == nil })
	require.Equal(t, Partition{Topic: schemas.TopicIntake, State: StateOK, Next: 14, End: 14, Restarts: 1}, f.stands(0))

	// From where he says, when Kafka cannot.
	f.sql("UPDATE sources SET epoch = 7 WHERE part = 0 AND retired_at = 0")
	_, err = op.Restart(t.Context(), schemas.TopicIntake, 0, nil)
	require.ErrorContains(t, err, "say from which offset")
	_, err = op.Restart(t.Context(), schemas.TopicIntake, 0, &inside)
	require.NoError(t, err)
	f.publish(asksIn("c", 2, 0)...)
	f.eventually("stored", func() bool { return f.tasks() == 7+8+2 })
}

// full is a database that cannot store a batch which begins at one offset, whatever that is about.
type full struct {
	intake.Intake
	at int64
}

func (d full) Apply(ctx context.Context, b intake.Batch, now func() int64) (intake.Applied, error) {
	known, err := d.Sources(ctx)
	if err != nil {
		return intake.Applied{}, err
	}
	for _, src := range known {
		if src.ID == b.Advance[0].Source && src.Next == d.at && b.Advance[0].From == d.at {
			return intake.Applied{}, errors.New("no room in a table that only this record needs")
		}
	}
	return d.Intake.Apply(ctx, b, now)
}

// A record on which a partition stands is passed while the scanner still tries to store it. What was passed is on record.
func TestAnOperatorPassesARecord(t *testing.T) {
	f := newFixture(t)
	s := f.scanner(f.store, Config{})
	s.worker.applier = full{intake.New(f.store), 2}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	defer func() { stop(); require.NoError(t, <-ran) }()
	f.publish(asksIn("a", 2, 0)...)
	f.eventually("stored", func() bool { return f.sourceOf(0).Next == 2 })
	f.publish(asksIn("b", 3, 0)...)
	f.eventually("it stands", func() bool { return counted(s.worker.metrics.storeErrors) > 0 })

	s.worker.standing.each(func(partitionKey, tried, time.Duration) { t.Error("a minute has not passed") })
	s.watcher.noteStanding(t.Context(), map[partitionKey]tried{{schemas.TopicIntake, 0}: {offset: 2, err: errors.New("no room")}})
	require.Equal(t, Partition{Topic: schemas.TopicIntake, State: StateStands, Detail: "no room", Next: 2, End: 5, Lag: 3}, f.stands(0))

	op := f.operator()
	for name, c := range map[string]struct{ at, to int64 }{"not where it stands": {1, 2}, "further on": {3, 4}, "nothing": {2, 2}, "back": {2, 1}, "beyond the log": {2, 6}} {
		_, err := op.Skip(t.Context(), schemas.TopicIntake, 0, c.at, c.to)
		require.ErrorIs(t, err, ErrRefused, name)
	}
	done, err := op.Skip(f.asAnn(), schemas.TopicIntake, 0, 2, 3)
	require.NoError(t, err)
	f.audited("intake skip", 1)
	require.Equal(t, Skipped{Topic: schemas.TopicIntake, From: 2, To: 3, ID: "notyet.intake/0/2", Left: 2}, done)
	_, err = op.Skip(t.Context(), schemas.TopicIntake, 0, 2, 3)
	require.ErrorIs(t, err, ErrRefused, "a second time")
	f.eventually("the scanner goes on behind it", func() bool { return f.sourceOf(0).Next == 5 })
	require.Equal(t, Partition{Topic: schemas.TopicIntake, State: StateOK, Next: 5, End: 5}, f.stands(0))
	require.Equal(t, 4, f.tasks())
	letters, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{TaskID: "notyet.intake/0/2"})
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Equal(t, schemas.KindRejected, letters[0].Kind)
	require.Equal(t, "ann@host passed the offsets 2 to 2 of notyet.intake/0 without storing them", letters[0].Reason)
	f.events(func(all []schemas.Event) bool { return byID(all, schemas.StateRejected)["notyet.intake/0/2"] > 0 })
}

// The first record of a partition may be the one that cannot be stored.
func TestAnOperatorPassesTheFirstRecords(t *testing.T) {
	f := newFixture(t)
	f.publish(asksIn("a", 5, 0)...)
	_, err := f.operator().Skip(t.Context(), schemas.TopicIntake, 0, 0, 3)
	require.NoError(t, err)
	f.start(f.store, Config{})
	f.eventually("the rest is stored", func() bool { return f.sourceOf(0).Next == 5 })
	require.Equal(t, 2, f.tasks())
}
