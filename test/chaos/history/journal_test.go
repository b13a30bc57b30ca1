package history_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/chaos/check"
	"github.com/notyet/notyet/test/chaos/history"
)

func TestWhatIsSavedIsLoaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.ndjson")
	h := check.Sample()
	require.NoError(t, h.Save(path))
	loaded, err := history.Load(path)
	require.NoError(t, err)
	require.Equal(t, h, loaded)
}

func TestHashTellsBodiesApart(t *testing.T) {
	seen := map[uint64]bool{}
	for _, parts := range [][]string{{"k", "v"}, {"k", "w"}, {"l", "v"}, {"kv", ""}, {"k", "v", "app", "x"}, {"k", "v", "app", "x", "app", "x"}, {"k", "v", "appx", ""}} {
		var headers [][]byte
		for _, p := range parts[2:] {
			headers = append(headers, []byte(p))
		}
		seen[history.Hash([]byte(parts[0]), []byte(parts[1]), headers...)] = true
	}
	require.Len(t, seen, 7)
}
