package chaos

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/chaos/check"
)

func TestReportHasFiguresAndFaults(t *testing.T) {
	h := check.Sample()
	r := Report{History: h, Result: check.Run(h, check.Bounds{})}
	path := filepath.Join(t.TempDir(), "faults.md")
	require.NoError(t, r.Write(path))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, want := range []string{"| lost | 0 |", "`kill-dispatcher` | 1 |", "1 explained (kill-dispatcher 1), 0 unexplained", "**0 findings.**", "| a task is lost | I1 | yes |"} {
		require.Contains(t, string(text), want)
	}
	require.NotContains(t, string(text), "**no**")
	require.NotContains(t, string(text), "<no value>")
}
