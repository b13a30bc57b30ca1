package chaos

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
)

// TestTinyRun is a small `make chaos` on servers of its own: a few requests, and one fault of each
// sort.
func TestTinyRun(t *testing.T) {
	if testing.Short() || os.Getenv("CI") != "true" && os.Getenv("NOTYET_CHAOS") != "1" {
		t.Skip("it starts servers of its own and takes two minutes: set NOTYET_CHAOS=1 (or CI=true) to run it")
	}
	root := filepath.Join("..", "..")
	if out, err := exec.Command(filepath.Join(root, "scripts", "servers"), "install").CombinedOutput(); err != nil {
		t.Skipf("the servers cannot be had here: %s", out)
	}
	root, err := filepath.Abs(root)
	require.NoError(t, err)
	rep, err := Run(t.Context(), Config{
		Root: root, Dir: t.TempDir(), BasePort: 23000, Seed: 1, For: 5 * time.Minute, Rate: 60, Burst: 1000, Longest: 10 * time.Second, Rounds: 1,
		Faults: []string{"kill-leader", "kill-scanner", "redis-flushed", "zookeeper-cut", "mysql-killed"},
	}, zaptest.NewLogger(t))
	require.NoError(t, err)
	require.Empty(t, rep.Result.Findings)
	require.Len(t, rep.History.Faults, 5)
	f := rep.Result.Figures
	require.Zero(t, f.Lost)
	require.GreaterOrEqual(t, f.Earliest, int64(0))
	require.Positive(t, f.Indexed)
	for _, fate := range []string{"delivered", "replaced", "stale", "cancelled", "rejected", "pending"} {
		require.Positive(t, f.Fates[fate], fate)
	}
	require.EqualValues(t, 1, f.Takeover.TotalCount())
}
