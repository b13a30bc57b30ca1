package config

import (
	"fmt"
	"strings"
)

// Problem is one mistake.
type Problem struct {
	Key     string // the key, as in the file
	Source  string // where the value came from: a file, a variable or a flag; "" when nothing was set
	Value   string // what was set; "" when it is a secret or nothing was
	Problem string
	Fix     string
}

func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Key)
	if p.Source != "" {
		b.WriteString(" (" + p.Source + ")")
	}
	if p.Value != "" {
		fmt.Fprintf(&b, " %q", p.Value)
	}
	b.WriteString(" " + p.Problem)
	if p.Fix != "" {
		b.WriteString(": " + p.Fix)
	}
	return b.String()
}

// redact hides what a value can hold of a password where a DSN or a URL stands in the wrong place: everything up to an @,
// and what follows a question mark.
func redact(value string) string {
	if i := strings.LastIndexByte(value, '@'); i >= 0 {
		value = "(hidden)" + value[i:]
	}
	if i := strings.IndexByte(value, '?'); i >= 0 {
		value = value[:i] + "?(hidden)"
	}
	return value
}

// Error is every mistake of a configuration at once.
type Error struct{ Problems []Problem }

// Error has one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	lines = append(lines, fmt.Sprintf("configuration: %d problem(s)", len(e.Problems)))
	for _, p := range e.Problems {
		lines = append(lines, "  "+p.String())
	}
	return strings.Join(lines, "\n")
}
