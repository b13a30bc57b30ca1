package sendlog

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func occupy(t *testing.T, dir, start string) (before []string) {
	l := mustOpen(t, dir, Config{})
	before, err := l.Occupy(start)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return before
}

func TestTheOccupantBeforeHasEnded(t *testing.T) {
	dir := t.TempDir()
	require.Empty(t, occupy(t, dir, "one"), "nobody was here")
	require.Equal(t, []string{"one"}, occupy(t, dir, "two"))
	require.NoError(t, mustOpen(t, dir, Config{Existing: true}).Close(), "a reader is no occupant")
	require.Equal(t, []string{"two", "one"}, occupy(t, dir, "three"), "the second may have ended before it could use what it knew")
	for i := range 2 * mostBefore {
		occupy(t, dir, fmt.Sprint(i))
	}
	require.Len(t, occupy(t, dir, "last"), mostBefore)
}

// A network's file system proves nothing: /proc stands for one here, for its locks are none of a disk's either.
func TestAFileSystemThatIsNoDisks(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("nothing is proven elsewhere")
	}
	id, err := fileID(flock.New("/proc/self/status"))
	require.NoError(t, err)
	require.Empty(t, id)
}

// Who had the log may live where the lock says nothing about it.
func TestTheOccupantBeforeMayLive(t *testing.T) {
	tests := map[string]func(t *testing.T, dir string) string{
		"the directory is a copy": func(t *testing.T, dir string) string {
			copied := filepath.Join(t.TempDir(), "copy")
			require.NoError(t, exec.Command("cp", "-a", dir, copied).Run())
			return copied
		},
		"the lock was deleted under it": func(t *testing.T, dir string) string {
			held, err := os.Open(filepath.Join(dir, "lock"))
			require.NoError(t, err)
			t.Cleanup(func() { _ = held.Close() })
			require.NoError(t, os.Remove(held.Name()))
			return dir
		},
		"another kernel": func(t *testing.T, dir string) string {
			o, err := readOccupant(filepath.Join(dir, "occupant"))
			require.NoError(t, err)
			o.Kernel = "another"
			require.NoError(t, o.write(filepath.Join(dir, "occupant")))
			return dir
		},
		"the note is damaged": func(t *testing.T, dir string) string {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "occupant"), []byte(`{"start":"one`), 0o644))
			return dir
		},
		"systems that name no kernel": func(t *testing.T, dir string) string {
			require.NoError(t, occupant{Start: "one"}.write(filepath.Join(dir, "occupant")))
			return dir
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			occupy(t, dir, "one")
			require.Empty(t, occupy(t, change(t, dir), "two"))
		})
	}
}

func TestALogBelongsToOneInstallation(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, Config{}) // of the version before
	appendOne(t, l, 1)
	require.NoError(t, l.Close())

	require.NoError(t, mustOpen(t, dir, Config{Existing: true, Installation: "two"}).Close(), "a reader takes nothing")
	require.NoError(t, mustOpen(t, dir, Config{Installation: "one"}).Close())
	for _, existing := range []bool{false, true} {
		_, err := Open(dir, Config{Installation: "two", Existing: existing}, zap.NewNop())
		require.ErrorIs(t, err, ErrOtherInstallation)
		require.ErrorContains(t, err, filepath.Join(dir, "installation")+" says one")
	}
	l = mustOpen(t, dir, Config{Installation: "one"})
	proven, err := l.Acked(t.Context(), epoch.Add(-1), every)
	require.NoError(t, err)
	require.Empty(t, proven)
	require.NoError(t, l.Close())

	require.NoError(t, os.WriteFile(filepath.Join(dir, "installation"), nil, 0o644)) // a machine that lost its power
	require.NoError(t, mustOpen(t, dir, Config{Installation: "one"}).Close())
	_, err = Open(dir, Config{Installation: "two"}, zap.NewNop())
	require.ErrorIs(t, err, ErrOtherInstallation)
}
