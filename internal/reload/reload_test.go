package reload

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAChangedFileIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		put := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
		put("one")
		loads, failures := 0, 0
		load := func() (string, error) {
			loads++
			b, err := os.ReadFile(path)
			if err == nil && len(b) == 0 {
				err = errors.New("empty")
			}
			return string(b), err
		}
		v, err := New(load, func(error) { failures++ }, path)
		require.NoError(t, err)
		for range 100 {
			time.Sleep(lookEvery)
			require.Equal(t, "one", v.Get())
		}
		require.Equal(t, 1, loads, "a file that has not changed is not read again")

		put("second")
		time.Sleep(lookEvery)
		require.Equal(t, "second", v.Get())

		put("")
		for range 3 {
			time.Sleep(lookEvery)
			require.Equal(t, "second", v.Get(), "what cannot be used does not replace what can")
		}
		require.Equal(t, 1, failures, "a failure is told once")
		_, broken := v.Age()
		require.Equal(t, 2*lookEvery, broken.Truncate(lookEvery), "it began with the first failure")

		require.NoError(t, os.Remove(path))
		time.Sleep(lookEvery)
		require.Equal(t, "second", v.Get())
		require.Equal(t, 2, failures)
		put("fourth")
		time.Sleep(lookEvery)
		value, broken := v.Age()
		require.Equal(t, "fourth", value)
		require.Zero(t, broken)
	})
}

// A file can become usable again without a change of its size or time: by a permission, for one.
func TestAFileThatCouldNotBeReadIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte("one"), 0o600))
		var broken error
		v, err := New(func() (string, error) { return "value", broken }, func(error) {}, path)
		require.NoError(t, err)
		broken = os.ErrPermission
		require.NoError(t, os.WriteFile(path, []byte("second"), 0o600))
		time.Sleep(lookEvery)
		_, age := v.Age()
		require.NotZero(t, age)
		broken = nil
		time.Sleep(lookEvery)
		_, age = v.Age()
		require.Zero(t, age)
	})
}

func TestTheFirstLoadMustSucceed(t *testing.T) {
	_, err := New(func() (int, error) { return 0, errors.New("bad") }, func(error) {}, "/nowhere")
	require.ErrorContains(t, err, "bad")
}
