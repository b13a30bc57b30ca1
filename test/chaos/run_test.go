package chaos

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/test/chaos/check"
)

// TestTinyRun is a tiny `make chaos` on servers of its own: a few requests, and one fault of each
// sort.
func TestTinyRun(t *testing.T) {
	rep := tinyRun(t, Config{Faults: []string{"kill-leader", "kill-scanner", "redis-flushed", "zookeeper-cut", "mysql-killed", "slots-set", check.Attack}})
	require.Positive(t, rep.Result.Figures.Indexed)
}

// TestTinySmallRun is the same on Kafka and the database alone.
func TestTinySmallRun(t *testing.T) {
	rep := tinyRun(t, Config{Small: true, Faults: []string{"kill-leader", "mysql-killed", "slots-set", check.Attack}})
	require.True(t, rep.History.Rest.Indexless)
}

// TestTinyClusterRun is the same on several servers of each. In CI it would take too long.
func TestTinyClusterRun(t *testing.T) {
	if os.Getenv("NOTYET_CHAOS") != "1" {
		t.Skip("it starts fourteen servers: set NOTYET_CHAOS=1 to run it")
	}
	tinyRun(t, Config{Form: Clustered, Faults: []string{"kill-leader", "controller-killed", "partitions-reassigned", "zookeeper-quorum-lost", "redis-failed-over", "mysql-promoted", "mysql-promoted-late", check.Attack}})
}

func tinyRun(t *testing.T, cfg Config) Report {
	if testing.Short() || (os.Getenv("CI") != "true" || os.Getenv("NOTYET_LONG") != "1") && os.Getenv("NOTYET_CHAOS") != "1" {
		t.Skip("it starts servers of its own and takes two minutes: set NOTYET_CHAOS=1 to run it (CI's long tests do)")
	}
	root := filepath.Join("..", "..")
	if out, err := exec.Command(filepath.Join(root, "scripts", "servers"), "install").CombinedOutput(); err != nil {
		t.Skipf("the servers cannot be had here: %s", out)
	}
	root, err := filepath.Abs(root)
	require.NoError(t, err)
	cfg.Root, cfg.Dir, cfg.BasePort, cfg.Seed, cfg.For, cfg.Rate, cfg.Burst, cfg.Longest, cfg.Rounds = root, t.TempDir(), 23000, 1, 5*time.Minute, 60, 1000, 10*time.Second, 1
	cfg.Bounds.Settled = time.Minute.Milliseconds() // tests beside it may have the machine for seconds
	rep, err := Run(t.Context(), cfg, zaptest.NewLogger(t))
	require.NoError(t, err)
	require.Empty(t, rep.Result.Findings)
	require.Len(t, rep.History.Faults, len(cfg.Faults))
	f := rep.Result.Figures
	require.Zero(t, f.Lost)
	require.GreaterOrEqual(t, f.Earliest, int64(0))
	require.Positive(t, f.Placed)
	for _, h := range []*hdrhistogram.Histogram{f.Attacked, f.Called, f.Answered} {
		require.Positive(t, h.TotalCount())
	}
	for _, fate := range []string{"delivered", "replaced", "stale", "cancelled", "rejected", "pending"} {
		require.Positive(t, f.Fates[fate], fate)
	}
	require.EqualValues(t, 1, f.Takeover.TotalCount())
	return rep
}
