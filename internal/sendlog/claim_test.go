package sendlog

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

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
