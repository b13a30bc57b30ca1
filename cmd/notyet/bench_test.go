package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/notyet/notyet/test/program"
	"github.com/stretchr/testify/require"
)

// notyet bench is notyet-bench with the same arguments, environment and exit code.
func TestBenchRunsTheProgramThatMeasures(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, measurer), []byte("#!/bin/sh\necho \"$0 $*, $HOME\"\nexit 7\n"), 0o700)) //nolint:gosec // a program
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for want, args := range map[string][]string{
		"burst 5 --lead 1s --json, /\n": {"bench", "burst", "5", "--lead", "1s", "--json"},
		"--help, /\n":                   {"bench"},
	} {
		var out program.Output
		cmd := start(t, &out, &out, args...)
		require.Error(t, cmd.Wait())
		require.Equal(t, 7, cmd.ProcessState.ExitCode(), "%s", &out)
		require.Contains(t, out.String(), want)
	}
}
