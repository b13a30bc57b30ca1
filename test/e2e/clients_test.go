package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/producer"
	"github.com/notyet/notyet/schemas"
)

// TestStockClients: kcat, the stock Python, Java and Node clients, and the producer in Go schedule,
// cancel and consume. Each client cancels 200 tasks that it has scheduled, and each of these cancels is
// answered cancelled. All of them put a key into the same partition, so one may cancel for another.
// kcat and Go need nothing that must be fetched. The others run in the long tests.
func TestStockClients(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		target := s.name + ".clients"
		s.topics(4, target)
		s.scanner()
		s.dispatcher("clients")
		for _, client := range []string{"kcat", "python", "java", "node"} {
			t.Run(client, func(t *testing.T) {
				if client != "kcat" {
					mayInstall(t)
				} else if _, err := exec.LookPath("kcat"); err != nil {
					require.NotEqual(t, "true", os.Getenv("CI"), "kcat is missing, and CI must run the test")
					t.Skip("kcat is not installed: apt-get install kcat")
				}
				s.example(t, "../../examples/clients", []string{"NOTYET_RESULTS=" + s.results, "NOTYET_REPORTS=" + s.reports, "NOTYET_TARGET=" + target, "NOTYET_INTAKE=" + s.intake}, "./run.sh", client)
			})
		}
		t.Run("go", func(t *testing.T) { s.pairs(t, target) })
		s.keysAreTogether(t)
	})
}

// pairs schedules 200 tasks and cancels each, with the producer.
func (s *stack) pairs(t *testing.T, target string) {
	p := producer.New(s.client, producer.Config{Intake: s.intake})
	waiting := map[string]bool{}
	for i := range 200 {
		ref, err := p.Schedule(t.Context(), producer.Task{Topic: target, ID: fmt.Sprint("go-pair-", i), Key: fmt.Append(nil, "go-key-", i), Delay: time.Hour})
		require.NoError(t, err)
		require.NoError(t, p.Cancel(t.Context(), ref))
		waiting[ref.ID] = true
	}
	s.read(s.reader([]string{s.results}), time.Minute, func(r *kgo.Record) bool {
		if id := string(r.Key); waiting[id] {
			require.Contains(t, r.Headers, kgo.RecordHeader{Key: schemas.HeaderState, Value: []byte("cancelled")}, "%s: %s", id, r.Value)
			delete(waiting, id)
		}
		return len(waiting) == 0
	})
}

// keysAreTogether fails if a request is in another partition than Go clients put its key into.
func (s *stack) keysAreTogether(t *testing.T) {
	ends, err := kadm.NewClient(s.client).ListEndOffsets(t.Context(), s.intake)
	require.NoError(t, err)
	places, left := kgo.StickyKeyPartitioner(nil).ForTopic(s.intake), int64(0)
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	partitions := len(ends[s.intake])
	s.read(s.reader([]string{s.intake}), time.Minute, func(r *kgo.Record) bool {
		require.EqualValues(t, places.Partition(r, partitions), r.Partition, "the partition of %s", r.Key)
		left--
		return left == 0
	})
}

// TestQuotaExample: many chunks, few updates, exact sums.
func TestQuotaExample(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		topic := s.name + ".quota"
		s.topics(4, topic)
		s.scanner()
		s.dispatcher("quota")
		dsn := "NOTYET_MYSQL_DSN="
		if s.real {
			dsn += s.dsn
		}
		out := s.example(t, "../../examples/quota", []string{dsn}, "go", "run", ".", "-intake", s.intake, "-reports", s.reports, "-topic", topic,
			"-users", "2", "-files", "2", "-chunks", "50", "-pace", "5ms", "-delay", "1s")
		require.Contains(t, out, "200 chunks uploaded")
	})
}

// example runs a program in its folder against the stack's broker. The test reads its files,
// because the test cache only notices changes in files that the test itself opens.
func (s *stack) example(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			_, err = os.ReadFile(path)
		}
		return err
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // the first run installs
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(env, "GOFLAGS=", "NOTYET_KAFKA_BROKERS="+strings.Join(s.kafka.Brokers, ","))...)
	cmd.WaitDelay = 5 * time.Second // a grandchild may hold the pipe
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}
