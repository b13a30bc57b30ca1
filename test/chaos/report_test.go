package chaos

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	planted := len(check.Bugs)
	for _, want := range []string{"| lost | 0 |", "2 explained (kill-dispatcher 1, mysql-forgets 1), 0 unexplained", "**0 findings.**", fmt.Sprintf("%d mistakes are planted", planted), fmt.Sprintf("invariant of %d of them", planted)} {
		require.Contains(t, string(text), want)
	}
	file, err := os.Open(strings.TrimSuffix(path, ".md") + ".csv")
	require.NoError(t, err)
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 1+len(r.Result.Figures.Kinds))
	require.Equal(t, []string{"kill-dispatcher", "1"}, rows[1][:2])
	require.Equal(t, "1", rows[1][5], "extra copies")
	require.Contains(t, rows[1][6], h.Faults[0].Evidence)
	var printed strings.Builder
	require.NoError(t, r.Print(&printed))
	require.Contains(t, printed.String(), "`kill-dispatcher` | 1 |")
	require.NotContains(t, string(text), "<no value>")
}
