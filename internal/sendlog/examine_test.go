package sendlog

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"
)

// A look at the directory has its lock for a moment. A dispatcher that starts right then must not end.
func TestALookKeepsNobodyFromOpening(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, mustOpen(t, dir, Config{}).Close())
	look := flock.New(filepath.Join(dir, "lock"))
	got, err := look.TryRLock()
	require.NoError(t, err)
	require.True(t, got)
	time.AfterFunc(50*time.Millisecond, func() { _ = look.Unlock() })
	require.NoError(t, mustOpen(t, dir, Config{}).Close())
}
