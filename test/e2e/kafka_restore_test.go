package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
)

// TestKafkaFromACopyHaltsItsPartition: Kafka comes back from a copy of its folder, and the database does not. New records get
// offsets that are stored already, from a leader whose epoch is that of the lost ones, or a later one. None is passed over.
func TestKafkaFromACopyHaltsItsPartition(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]int{"the epoch repeats": 0, "the epoch is later": 1} {
		t.Run(name, func(t *testing.T) { // one broker at a time
			k, copied := newOwnServer(t, "kafka"), filepath.Join(t.TempDir(), "copy")
			stacks := map[bool]*stack{}
			scanners := map[bool]*process{}
			for _, running := range []bool{false, true} {
				stacks[running] = newStackBeside(t, own{broker: k.addr}, false, false, 1, usualSlots)
				scanners[running] = stacks[running].scanner()
			}
			publish := func(value string, n int) {
				for _, s := range stacks {
					for i := range n {
						s.publish(keyed(request(s.intake, s.name+".target", schemas.HeaderAt, inMillis(time.Hour)), fmt.Sprint(i), value))
					}
				}
			}
			at := func(s *stack) scanner.Partition {
				o := &scanner.Operator{Kafka: s.client, Store: s.store, Topics: []string{s.intake}}
				all, err := o.Partitions(t.Context())
				require.NoError(t, err)
				return all[0]
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
			publish("lost", 20)
			stored(50)
			scanners[false].shutdown(t)
			lost := stacks[true].epoch()

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
				require.Equal(t, lost, stacks[true].epoch())
			} else {
				require.Greater(t, stacks[true].epoch(), lost)
			}
			scanners[false] = stacks[false].scanner()
			for _, s := range stacks {
				require.Eventually(t, func() bool { return at(s).State == scanner.StateDiverged }, time.Minute, 100*time.Millisecond)
			}
			time.Sleep(6 * time.Second) // a loss is noticed within 5 s
			for _, s := range stacks {
				p := at(s)
				require.Equal(t, scanner.StateDiverged, p.State, "it stands until an operator decides")
				require.EqualValues(t, 50, p.Next)
				require.EqualValues(t, 30, *p.SameUpTo)
				require.Equal(t, 50, s.tasks())
				o := &scanner.Operator{Kafka: s.client, Store: s.store, Topics: []string{s.intake}}
				_, err := o.Restart(t.Context(), s.intake, 0, nil)
				require.NoError(t, err)
			}
			stored(80)
		})
	}
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
