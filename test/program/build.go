package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// builds has what this process has built.
var builds struct {
	sync.Mutex
	dir    string            // "": nothing yet
	binary map[string]string // by flags
}

// Run runs the tests of a package, for its TestMain, and removes what they have built.
func Run(m *testing.M) (code int) {
	defer func() {
		if builds.dir != "" {
			_ = os.RemoveAll(builds.dir)
		}
	}()
	return m.Run()
}

// Binary builds the program with such flags, once for all tests of a package, whose TestMain calls Run.
func Binary(t testing.TB, flags ...string) string {
	t.Helper()
	builds.Lock()
	defer builds.Unlock()
	if builds.dir == "" {
		dir, err := os.MkdirTemp("", "notyet-build-")
		require.NoError(t, err)
		builds.dir, builds.binary = dir, map[string]string{}
	}
	key := strings.Join(flags, " ")
	if binary, ok := builds.binary[key]; ok {
		return binary
	}
	binary := filepath.Join(builds.dir, strconv.Itoa(len(builds.binary)), "notyet")
	args := append([]string{"build", "-ldflags", "-s -w", "-o", binary}, flags...)
	out, err := exec.Command("go", append(args, "github.com/notyet/notyet/cmd/notyet")...).CombinedOutput()
	require.NoError(t, err, string(out))
	builds.binary[key] = binary
	return binary
}

// In makes the program dir/bin/notyet.
func In(t testing.TB, dir string) {
	t.Helper()
	bin := filepath.Join(dir, "bin")
	require.NoError(t, os.MkdirAll(bin, 0o700))
	require.NoError(t, os.Symlink(Binary(t), filepath.Join(bin, "notyet")))
}
