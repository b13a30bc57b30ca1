package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// benchCmd becomes notyet-bench, the program that measures: what draws its plots is not a part of every service.
type benchCmd struct {
	Args []string `arg:"" help:"Command and flags of notyet-bench; none: its help." optional:""`
}

const measurer = "notyet-bench"

// Run replaces this process, so that signals and the exit code are those of the measurement.
func (c *benchCmd) Run(a *app) error {
	path, err := besideOrOnPath(measurer)
	if err != nil {
		return fmt.Errorf("%s is neither beside this program nor in PATH: make build makes both", measurer)
	}
	args := c.Args
	if len(args) == 0 {
		args = []string{"--help"}
	}
	if err := syscall.Exec(path, append([]string{a.Program + "-bench"}, args...), a.Environ); err != nil {
		return fmt.Errorf("starting %s: %w", path, err)
	}
	return nil
}

func besideOrOnPath(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}
