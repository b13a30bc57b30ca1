package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

// The backup is of the moment between the making of a source and its first stored record. Kafka came back older too. The record that
// waits at offset 0 is read all the same.
func TestReconcileReadsASourceThatHasNothingStored(t *testing.T) {
	onOneDatabase(t, func(t *testing.T, s *stack) {
		target, dir, lost := s.name+".target", t.TempDir(), t.TempDir()
		s.topics(1, target)
		ids, err := kafka.TopicIDs(t.Context(), s.client, s.intake)
		require.NoError(t, err)
		s.publish(
			keyed(request(s.intake, target, schemas.HeaderID, "waits", schemas.HeaderAt, inMillis(time.Hour)), "one key", "v"),
			keyed(request(s.intake, target, schemas.HeaderID, "same", schemas.HeaderAt, inMillis(0)), "one key", "v"))
		ends, err := kafka.Ends(t.Context(), s.client, s.intake)
		require.NoError(t, err)
		part := int32(-1)
		for p, end := range ends[s.intake] {
			if end == 2 {
				part = p
			}
		}
		require.GreaterOrEqual(t, part, int32(0))
		src, err := intake.New(s.store).Source(t.Context(), s.intake, ids[s.intake], part, 0) // as a worker makes it, before it stores
		require.NoError(t, err)
		require.Zero(t, src.Next)
		b := s.backUp()

		sc, d := s.scanner(), s.dispatcherAt("d1", dir)
		s.await(target, 1)
		require.Eventually(t, func() bool { return s.state(target, "same") == "delivered" }, time.Minute, 10*time.Millisecond)
		require.Equal(t, "pending", s.state(target, "waits"))
		sc.shutdown(t)
		d.shutdown(t)
		s.restore(b)

		sent, err := sendlog.Open(lost, sendlog.Config{}, s.log) // what Kafka lost at its end
		require.NoError(t, err)
		seq := task.Seq(src.ID, 5)
		require.NoError(t, sent.AppendIntents(t.Context(), []sendlog.Intent{{Seq: seq, Attempt: 1, Topic: target, ID: "lost"}}))
		require.NoError(t, sent.AppendOutcomes(t.Context(), []sendlog.Outcome{{Seq: seq, Attempt: 1, Acked: true, At: time.Now().UnixMilli()}}))
		require.NoError(t, sent.Close())
		s.reconcile(deadletter.Reconcile{Logs: []string{dir, lost}, AcceptLoss: true})
		all, err := intake.New(s.store).Sources(t.Context())
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(all, func(src intake.Source) bool { return src.Next == 2 }))
		require.Equal(t, "pending", s.state(target, "waits"), "it was accepted, and is not lost")
	})
}

// The database has forgotten a restart, and the requests have no ids: their contents tell where the logs part, for a producer's clock
// does not. What another log had at the offsets behind was delivered with other contents.
func TestReconcileOfAForgottenRestartWithoutIDs(t *testing.T) {
	onOneDatabase(t, func(t *testing.T, s *stack) {
		target, dir, lost := s.name+".target", t.TempDir(), t.TempDir()
		s.topics(1, target)
		ask := func(value string, after time.Duration) {
			s.publish(keyed(request(s.intake, target, schemas.HeaderAt, inMillis(after)), "one key", value))
		}
		sc, d := s.scanner(), s.dispatcherAt("d1", dir)
		ask("before", 0)
		s.await(target, 1)
		source := func() intake.Source {
			all, err := intake.New(s.store).Sources(t.Context())
			require.NoError(t, err)
			return all[slices.IndexFunc(all, func(src intake.Source) bool { return src.Topic == s.intake && src.Next > 0 })]
		}
		settled := func(offset int64) func() bool {
			return func() bool {
				return s.state(target, schemas.DefaultID(s.intake, source().Partition, offset)) == "delivered"
			}
		}
		require.Eventually(t, settled(0), time.Minute, 10*time.Millisecond)
		b := s.backUp()
		ask("same", 0)
		s.await(target, 2)
		require.Eventually(t, settled(1), time.Minute, 10*time.Millisecond)
		src := source()
		sc.shutdown(t)
		d.shutdown(t)
		s.restore(b)
		ask("new", time.Hour)
		ask("newer", time.Hour)

		sent, err := sendlog.Open(lost, sendlog.Config{}, s.log)
		require.NoError(t, err)
		for offset := int64(2); offset < 4; offset++ {
			require.NoError(t, sent.AppendIntents(t.Context(), []sendlog.Intent{{Seq: task.Seq(src.ID, offset), Attempt: 1, Topic: target, ID: schemas.DefaultID(s.intake, src.Partition, offset), BodyHash: uint64(offset)}}))
			require.NoError(t, sent.AppendOutcomes(t.Context(), []sendlog.Outcome{{Seq: task.Seq(src.ID, offset), Attempt: 1, Acked: true, At: time.Now().UnixMilli()}}))
		}
		require.NoError(t, sent.Close())
		installation, err := s.store.Installation(t.Context())
		require.NoError(t, err)
		noted := kadm.Offsets{}
		noted.Add(kadm.Offset{Topic: s.intake, Partition: src.Partition, At: 2, LeaderEpoch: -1, Metadata: fmt.Sprintf("notyet restarts %x 1 notyet installation %s", src.TopicID, installation)})
		require.NoError(t, kadm.NewClient(s.client).CommitAllOffsets(t.Context(), s.name, noted))

		done := s.reconcile(deadletter.Reconcile{Logs: []string{dir, lost}})
		require.Equal(t, []deadletter.OtherLog{{Topic: s.intake, Partition: src.Partition, From: 2, Restarts: 1}}, done.OtherLogs)
		now, _, err := intake.New(s.store).FindSource(t.Context(), s.intake, src.TopicID, src.Partition)
		require.NoError(t, err)
		require.EqualValues(t, 4, now.Next)
		require.NotEqual(t, src.DeliveryKey(2, 1), now.DeliveryKey(2, 1))
		require.Equal(t, "succeeded", s.state(target, schemas.DefaultID(s.intake, src.Partition, 1)))
		require.Equal(t, "pending", s.state(target, schemas.DefaultID(s.intake, src.Partition, 2)))
	})
}

// A run with a late --since is interrupted. The next run without one reads the logs from an hour before the last claim all the same.
func TestALateSinceIsNotTheNextRunsDefault(t *testing.T) {
	onOneDatabase(t, func(t *testing.T, s *stack) {
		installation, err := s.store.Installation(t.Context())
		require.NoError(t, err)
		db := s.open()
		began := time.Now().Add(-24 * time.Hour).Truncate(time.Millisecond)
		_, err = db.ExecContext(t.Context(), "UPDATE slots SET claimed = ?, done = ?", began.UnixMilli(), began.UnixMilli())
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := kafka.GroupClaim(t.Context(), s.client, s.name, s.intake)
			return err == nil
		}, time.Minute, 50*time.Millisecond)
		other := func(what string) {
			if what != "reading the reports again" {
				return
			}
			claim, err := kafka.GroupClaim(t.Context(), s.client, s.name, s.intake)
			require.NoError(t, err)
			newer := kafka.Claim{Installation: installation, Copy: kafka.NewCopy("another", claim.Copy)}
			require.NoError(t, kafka.TakeGroup(t.Context(), s.client, s.name, newer, s.intake, s.reports))
		}
		_, err = s.tryReconcile(deadletter.Reconcile{Step: other, Since: time.Now().Add(-10 * time.Minute)})
		require.ErrorIs(t, err, kafka.ErrOlderCopy)
		require.LessOrEqual(t, s.reconcile(deadletter.Reconcile{}).Since, began.Add(-time.Hour).UnixMilli())
	})
}
