package main

import (
	"strings"

	"github.com/notyet/notyet/cmd/internal/command"
)

// benchCmd tells who still calls it where the measurements are: they were a part of this program.
type benchCmd struct {
	Args []string `arg:"" optional:""`
}

// Run names the program that measures.
func (c *benchCmd) Run(a *app) error {
	return command.Usage("measurements are a program of their own: %s", strings.Join(append([]string{a.Program + "-bench"}, c.Args...), " "))
}
