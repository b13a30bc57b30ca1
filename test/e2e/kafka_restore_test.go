package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
)

// TestKafkaFromACopyHaltsItsPartition: Kafka comes back from a copy of its folder, and the database
// does not, or is less old. New records get offsets that are stored already, from a leader whose
// epoch is that of the lost ones, or a later one. None is passed over.
func TestKafkaFromACopyHaltsItsPartition(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]int{"the epoch repeats": 0, "the epoch is later": 1} {
		t.Run(name, func(t *testing.T) { // one broker at a time
			k, copied := newOwnServer(t, "kafka"), filepath.Join(t.TempDir(), "copy")
			const running, stopped, older = "running", "stopped", "its database is older too"
			stacks := map[string]*stack{}
			scanners := map[string]*process{}
			for _, name := range []string{running, stopped, older} {
				stacks[name] = newStackBeside(t, own{broker: k.addr}, false, false, 1, usualSlots)
				scanners[name] = stacks[name].scanner()
			}
			publish := func(value string, n int) {
				for _, s := range stacks {
					for i := range n {
						s.publish(keyed(request(s.intake, s.name+".target", schemas.HeaderAt, inMillis(time.Hour)), fmt.Sprint(i), value))
					}
				}
			}
			stored := func(n int) {
				t.Helper()
				for _, s := range stacks {
					require.Eventually(t, func() bool { return s.tasks() == n }, time.Minute, 20*time.Millisecond)
				}
			}
			publish("copied", 30)
			stored(30)
			k.down()
			require.NoError(t, os.CopyFS(copied, os.DirFS(k.data())))
			k.up()
			publish("lost", 10)
			stored(40)
			backup := stacks[older].backUp()
			publish("lost", 10)
			stored(50)
			scanners[stopped].shutdown(t)
			scanners[older].shutdown(t)
			lost := stacks[running].epoch()

			k.down()
			require.NoError(t, os.RemoveAll(k.data()))
			require.NoError(t, os.Rename(copied, k.data()))
			k.up()
			for range restarts {
				k.down()
				k.up()
			}
			publish("new", 30)
			if restarts == 0 {
				require.Equal(t, lost, stacks[running].epoch())
			} else {
				require.Greater(t, stacks[running].epoch(), lost)
			}
			scanners[stopped] = stacks[stopped].scanner()
			stacks[older].restore(backup)
			require.Eventually(t, func() bool { // members of before the copy count for some seconds
				_, err := stacks[older].tryReconcile(deadletter.Reconcile{})
				require.Error(t, err, "the wrong order")
				return strings.Contains(err.Error(), "is not read any further")
			}, 2*time.Minute, time.Second)
			for _, s := range stacks {
				require.Eventually(t, func() bool { return s.stands().State == scanner.StateDiverged }, time.Minute, 100*time.Millisecond)
			}
			time.Sleep(6 * time.Second) // a loss is noticed within 5 s
			for name, s := range stacks {
				has := 50
				if name == older {
					has = 40
				}
				p := s.stands()
				require.Equal(t, scanner.StateDiverged, p.State, "it stands until an operator decides")
				require.EqualValues(t, has, p.Next)
				require.EqualValues(t, 30, *p.SameUpTo)
				require.Equal(t, has, s.tasks())
				s.restart()
			}
			require.EqualValues(t, 30, stacks[older].reconcile(deadletter.Reconcile{}).Unread)
			require.Equal(t, 40+30, stacks[older].tasks())
			delete(stacks, older)
			stored(80)
			if restarts > 0 {
				return
			}
			stacks[running].makesIntakeAnew()
			publish("of the next topic", 5)
			stored(85)
			stacks[stopped].isRefusedByAnotherKafka()
		})
	}
}

// stands tells how the intake's first partition stands.
func (s *stack) stands() scanner.Partition {
	s.t.Helper()
	o := &scanner.Operator{Kafka: s.client, Store: s.store, Topics: []string{s.intake}}
	all, err := o.Partitions(s.t.Context())
	require.NoError(s.t, err)
	return all[0]
}

// restart has it go on where its logs part.
func (s *stack) restart() {
	s.t.Helper()
	o := &scanner.Operator{Kafka: s.client, Store: s.store, Topics: []string{s.intake}}
	_, err := o.Restart(s.t.Context(), s.intake, 0, nil)
	require.NoError(s.t, err)
}

// makesIntakeAnew deletes the intake topic, and creates another one of that name.
func (s *stack) makesIntakeAnew() {
	s.t.Helper()
	deleted, err := kadm.NewClient(s.client).DeleteTopics(s.t.Context(), s.intake)
	require.NoError(s.t, err)
	require.NoError(s.t, deleted.Error())
	require.Eventually(s.t, func() bool {
		there, err := kafka.TopicIDs(s.t.Context(), s.client, s.intake)
		return err == nil && len(there) == 0
	}, time.Minute, 20*time.Millisecond)
	s.client.PurgeTopicsFromClient(s.intake)
	s.judging(1, s.intake)
}

// isRefusedByAnotherKafka starts a scanner on the brokers that all tests share.
func (s *stack) isRefusedByAnotherKafka() {
	s.t.Helper()
	others := os.Getenv("NOTYET_KAFKA_BROKERS")
	if others == "" {
		return
	}
	c := clusterOn(s.t, s)
	c.sets("NOTYET_CANCELS_TOPIC="+s.name+".cancels", "NOTYET_MIGRATE_REPLICATION=1", "NOTYET_ZOOKEEPER_SERVERS=", "NOTYET_ZOOKEEPER_ROOT=")
	c.notyet("migrate")
	c.sets("NOTYET_KAFKA_BROKERS=" + others)
	c.refused([]string{"scanner"}, "correct kafka.brokers or mysql.dsn", "--kafka-moved")
}

// tasks counts the stored ones.
func (s *stack) tasks() (n int) {
	db := s.open()
	defer db.Close()
	require.NoError(s.t, db.QueryRowContext(s.t.Context(), "SELECT COUNT(*) FROM tasks").Scan(&n))
	return n
}

// epoch returns the leader's epoch of the newest record in the intake.
func (s *stack) epoch() (epoch int32) {
	c := s.reader([]string{s.intake}, kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd().Relative(-1)))
	s.read(c, time.Minute, func(r *kgo.Record) bool { epoch = r.LeaderEpoch; return true })
	return epoch
}
