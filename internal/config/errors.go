package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Problem is one mistake in the configuration.
type Problem struct {
	Key     string `json:"key"`              // as in the file
	Source  string `json:"source,omitempty"` // where the value came from: a file, a variable or a flag; "" if the key was not set
	Value   string `json:"value,omitempty"`  // what was set; "" if it is a secret or the key was not set
	Problem string `json:"problem"`
	Fix     string `json:"fix,omitempty"`
}

func (p Problem) String() string {
	text := p.Key
	if p.Source != "" {
		text += " (" + p.Source + ")"
	}
	if p.Value != "" {
		text += " " + strconv.Quote(p.Value)
	}
	text += " " + p.Problem
	if p.Fix != "" {
		text += ": " + p.Fix
	}
	return text
}

// redact hides possible passwords in a value, in case a DSN or a URL is in the wrong place:
// everything before an @, and everything after a question mark.
func redact(value string) string {
	if i := strings.LastIndexByte(value, '@'); i >= 0 {
		value = "(hidden)" + value[i:]
	}
	if i := strings.IndexByte(value, '?'); i >= 0 {
		value = value[:i] + "?(hidden)"
	}
	return value
}

// Error holds all mistakes of a configuration.
type Error struct{ Problems []Problem }

// Error returns one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	lines = append(lines, fmt.Sprintf("configuration: %d problem(s)", len(e.Problems)))
	for _, p := range e.Problems {
		lines = append(lines, "  "+p.String())
	}
	return strings.Join(lines, "\n")
}
