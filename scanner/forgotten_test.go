package scanner

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

// keyOf is the notyet-delivery of a stored task's first attempt.
func (f *folders) keyOf(id string) string {
	f.Helper()
	source, offset := task.SplitSeq(int64(f.count("SELECT seq FROM tasks WHERE id = ?", []byte(id))))
	all, err := intake.New(f.store).Sources(f.Context())
	require.NoError(f, err)
	for _, src := range all {
		if src.ID == source {
			return src.DeliveryKey(offset, 1)
		}
	}
	f.Fatalf("%s is of source %d, which there is not", id, source)
	return ""
}

// copyDatabase copies the database while nobody has it open.
func (f *folders) copyDatabase(to, from string) {
	f.Helper()
	f.sql("PRAGMA wal_checkpoint(TRUNCATE)")
	for _, end := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(to + end)
	}
	data, err := os.ReadFile(from)
	require.NoError(f, err)
	require.NoError(f, os.WriteFile(to, data, 0o600))
}

// noted is how often the intake's partition was restarted, as the group's offset says.
func (f *folders) noted() int {
	f.Helper()
	offsets, err := kafka.GroupOffsets(f.Context(), f.client, copyGroup, schemas.TopicIntake)
	require.NoError(f, err)
	return offsets[schemas.TopicIntake][0].Restarts().N
}

// Kafka comes back from a copy, and its partition is restarted. Later the database comes back from a backup of before that. Records of the new
// log would get the delivery keys of lost ones, which were delivered: the partition halts, and goes on as the source that it was.
func TestARestartThatTheDatabaseHasForgotten(t *testing.T) {
	for name, backup := range map[string]struct {
		next    int64 // of the database that comes back
		running bool  // it comes back under a scanner at work
	}{
		"stopped":                              {30, false},
		"the backup has lost records":          {50, false},
		"running":                              {30, true},
		"the backup has not the partition":     {0, false},
		"running, it has not the partition":    {0, true},
		"running, the backup has lost records": {50, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolders(t)
			installation, err := f.store.Installation(t.Context())
			require.NoError(t, err)
			f.store.Close()
			cfg := Config{Installation: installation}
			keep := func(next int64) {
				if backup.next == next {
					f.copyDatabase(f.path+".backup", f.path)
				}
			}
			keep(0)
			s := f.start(f.open(), cfg)
			f.publish(some(schemas.TopicIntake, "copied", 30)...)
			f.store = f.open()
			f.eventually("stored", func() bool { return f.next(schemas.TopicIntake).Next == 30 })
			s.end()
			keep(30)
			f.snapshot()
			s = f.start(f.open(), cfg)
			f.publish(some(schemas.TopicIntake, "lost", 20)...)
			f.eventually("stored", func() bool { return f.next(schemas.TopicIntake).Next == 50 })
			lost := map[string]bool{}
			for i := range 20 {
				lost[f.keyOf(fmt.Sprint("lost", i))] = true
			}
			s.end()
			keep(50)
			f.restore()
			f.publish(some(schemas.TopicIntake, "new", 30)...)
			s = f.start(f.open(), cfg)
			f.eventually("it halts", func() bool { return s.parts.halted.ready() != nil })
			o := &Operator{Kafka: f.client, Store: f.store, Topics: []string{schemas.TopicIntake}, Group: copyGroup}
			_, err = o.Restart(t.Context(), schemas.TopicIntake, 0, nil)
			require.NoError(t, err)
			f.eventually("all is stored", func() bool { return f.next(schemas.TopicIntake).Next == 60 })
			f.eventually("the group has it", func() bool { return f.noted() == 1 })
			want := f.keyOf("new15")
			require.NotContains(t, lost, want)
			if !backup.running {
				s.end()
				f.store.Close()
				f.copyDatabase(f.path, f.path+".backup")
				f.store = f.open()
				s = f.start(f.store, cfg)
			} else {
				f.sql("ATTACH '" + f.path + ".backup' AS old; BEGIN IMMEDIATE; DELETE FROM sources; DELETE FROM tasks; INSERT INTO sources SELECT * FROM old.sources; INSERT INTO tasks SELECT * FROM old.tasks; COMMIT")
			}
			if o.Store = f.store; backup.next > 0 {
				f.eventually("it halts", func() bool { return s.parts.halted.ready() != nil })
				require.ErrorContains(t, s.Ready(t.Context()), "the database has forgotten its restart")
				s.checker.check(t.Context())
				require.Error(t, s.parts.halted.ready(), "until an operator decides")
				require.EqualValues(t, backup.next, f.next(schemas.TopicIntake).Next)
				stands, err := o.partition(t.Context(), schemas.TopicIntake, 0)
				require.NoError(t, err)
				require.Equal(t, StateDiverged, stands.State)
				require.Contains(t, stands.Detail, "it was restarted 1 times, and the database knows 0 of them")
				s.worker.commits.commit(t.Context(), s.group)
				require.Equal(t, 1, f.noted(), "who has forgotten it does not write that down")
				_, err = o.Restart(t.Context(), schemas.TopicIntake, 0, nil)
				require.NoError(t, err)
			}
			f.eventually("all is stored", func() bool { return f.next(schemas.TopicIntake).Next == 60 })
			require.Equal(t, want, f.keyOf("new15"), "as it was, so that consumers know it again")
			f.eventually("it is ready", func() bool { return s.parts.halted.ready() == nil })
			require.Equal(t, 1, f.noted())
		})
	}
}
