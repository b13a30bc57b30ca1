package e2e

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStockClients: kcat and the stock Python, Java and Node clients schedule, cancel and consume by
// headers alone.
func TestStockClients(t *testing.T) {
	mayInstall(t)
	onStacks(t, func(t *testing.T, s *stack) {
		target := s.name + ".clients"
		s.topics(4, target)
		s.scanner()
		s.dispatcher("clients")
		for _, client := range []string{"kcat", "python", "java", "node"} {
			t.Run(client, func(t *testing.T) {
				s.example(t, "../../examples/clients", []string{"NOTYET_RESULTS=" + s.results, "NOTYET_REPORTS=" + s.reports, "NOTYET_TARGET=" + target, "NOTYET_INTAKE=" + s.intake}, "./run.sh", client)
			})
		}
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
