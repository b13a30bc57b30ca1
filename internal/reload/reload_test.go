package reload

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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

// Size and time of a file can be those of before: a mounted secret of Kubernetes is replaced by a link to another folder.
func TestAFileWithAnotherContentIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path, data := filepath.Join(dir, "password"), filepath.Join(dir, "..data")
		mount := func(version, text string) {
			require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
			file := filepath.Join(dir, version, "password")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			require.NoError(t, os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0)))
			require.NoError(t, os.Symlink(version, data+"_tmp"))
			require.NoError(t, os.Rename(data+"_tmp", data))
		}
		mount("..1", "one\n")
		require.NoError(t, os.Symlink(filepath.Join("..data", "password"), path))
		v, err := New(func() (string, error) { return ReadText(path) }, func(err error) { t.Error(err) }, path)
		require.NoError(t, err)
		require.Equal(t, "one", v.Get())
		mount("..2", "two\n")
		time.Sleep(lookEvery)
		require.Equal(t, "two", v.Get())
	})
}

func TestReadText(t *testing.T) {
	for name, c := range map[string]struct{ content, want, problem string }{
		"a password":               {content: " geheim=? ", want: " geheim=? "},
		"with a line feed":         {content: "geheim\r\n", want: "geheim"},
		"nothing":                  {problem: "there is nothing in the file"},
		"a line feed alone":        {content: "\n", problem: "there is nothing in the file"},
		"several lines":            {content: "geheim\ngeheim", problem: "more than one line"},
		"binary":                   {content: "geheim\x00", problem: "zero byte"},
		"as large as it may be":    {content: strings.Repeat("x", maxText), want: strings.Repeat("x", maxText)},
		"too large":                {content: strings.Repeat("x", maxText+1), problem: "larger than 65536 bytes"},
		"line feeds that overflow": {content: "x" + strings.Repeat("\n", maxText), problem: "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secret")
			require.NoError(t, os.WriteFile(path, []byte(c.content), 0o600))
			text, err := ReadText(path)
			require.Equal(t, c.want, text)
			if c.problem == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.problem)
			require.NotContains(t, err.Error(), "geheim")
		})
	}
	_, err := ReadText(filepath.Join(t.TempDir(), "geheim"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotContains(t, err.Error(), "geheim", "the setting may hold the secret in place of the file's name")
	_, err = ReadText(t.TempDir())
	require.Error(t, err)
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
