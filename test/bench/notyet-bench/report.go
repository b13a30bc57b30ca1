package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/test/bench"
)

type reportCmd struct {
	File string `arg:"" help:"Files with lines of bench --json and of other systems' measurements." type:"existingfile"`
	Into string `help:"Write between the markers of this Markdown file instead of printing." placeholder:"FILE" type:"existingfile"`
}

func (reportCmd) Help() string {
	return `Replaces the text between the lines ` + reportBegin + ` and ` + reportEnd + ` of the file in --into, and writes the runs into a file beside it that ends in .csv.

Example:
  notyet-bench burst 20000 --json >> results.jsonl
  notyet-bench report results.jsonl`
}

const (
	reportBegin = "<!-- bench: begin -->"
	reportEnd   = "<!-- bench: end -->"
)

func (c *reportCmd) Run(a *command.App) error {
	f, err := os.Open(c.File)
	if err != nil {
		return command.Usage("%v", err)
	}
	defer func() { _ = f.Close() }()
	lines, err := bench.ReadLines(f)
	if err != nil {
		return fmt.Errorf("reading %s: %w", c.File, err)
	}
	if c.Into == "" {
		fmt.Fprint(a.Stdout, lines.Markdown(), "\n", lines.CSV())
		return nil
	}
	text, err := os.ReadFile(c.Into)
	if err != nil {
		return command.Usage("--into: %v", err)
	}
	head, rest, begun := bytes.Cut(text, []byte(reportBegin))
	_, tail, ended := bytes.Cut(rest, []byte(reportEnd))
	if !begun || !ended {
		return command.Usage("--into %s: it has no lines %s and %s", c.Into, reportBegin, reportEnd)
	}
	out := fmt.Appendf(nil, "%s%s\n\n%s\n%s%s", head, reportBegin, lines.Markdown(), reportEnd, tail)
	if err := os.WriteFile(c.Into, out, 0o644); err != nil { //nolint:gosec // a document, for everyone to read
		return fmt.Errorf("writing the report: %w", err)
	}
	runs := strings.TrimSuffix(c.Into, filepath.Ext(c.Into)) + ".csv"
	if err := os.WriteFile(runs, []byte(lines.CSV()), 0o644); err != nil { //nolint:gosec // as the document
		return fmt.Errorf("writing the runs: %w", err)
	}
	return nil
}
