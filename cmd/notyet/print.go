package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/command"
)

// table prints a row for each item under headings. Without items only none is printed, or the
// headings alone if none is empty.
func table[T any](a *app, none string, head []any, items []T, row func(T) []any) {
	if len(items) == 0 && none != "" {
		fmt.Fprintln(a.Stdout, none)
		return
	}
	rows := make([][]any, 0, len(items))
	for _, item := range items {
		rows = append(rows, row(item))
	}
	a.Table(head, rows)
}

// pairs prints names and values, one pair a line.
func pairs(w io.Writer, values ...string) {
	for i := 0; i+1 < len(values); i += 2 {
		if values[i+1] != "" {
			fmt.Fprintf(w, "%-12s %s\n", values[i], command.Plain(values[i+1]))
		}
	}
}

// optional returns the text of a number that may be missing.
func optional(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// when returns an instant with the distance from now, or "" for 0.
func when(ms int64) string {
	if ms == 0 {
		return ""
	}
	t := time.UnixMilli(ms)
	away := time.Until(t)
	if away >= 0 {
		return stamp(ms) + " (in " + rough(away) + ")"
	}
	return stamp(ms) + " (" + rough(-away) + " ago)"
}

// stamp formats as RFC 3339 in UTC with milliseconds.
func stamp(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

func rough(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return strconv.Itoa(int(d.Hours()/24)) + "d"
}

// content prints key, headers and value: as text for a terminal, otherwise quoted or in base64.
func content(w io.Writer, c *deadletter.Content) {
	if c == nil {
		return
	}
	pairs(w, "key", shown(c.Key, c.KeyBase64))
	for _, h := range c.Headers {
		pairs(w, "header", command.Plain(h.Key)+"="+shown(h.Value, h.ValueBase64))
	}
	pairs(w, "value", shown(c.Value, c.ValueBase64))
}

func shown(s *string, encoded string) string {
	switch {
	case encoded != "":
		return "base64:" + encoded
	case s == nil:
		return "(null)"
	case *s == "":
		return `""`
	}
	return command.Plain(*s)
}

func shortened(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func orDash(n int) any {
	if n == 0 {
		return "-"
	}
	return n
}

// runSettings prints how a task, or each run of a timer, is delivered.
func runSettings(w io.Writer, s *api.Settings) {
	if s == nil {
		return
	}
	attempts := fmt.Sprintf("%s, at most %d attempts, %s", s.Ack, s.MaxAttempts, s.Backoff)
	if s.URL != "" {
		pairs(w, "calls", s.Method+" "+command.Plain(s.URL))
	}
	pairs(w, "ack", attempts, "ack timeout", s.AckTimeout, "max lateness", s.MaxLateness, "priority", s.Priority, "tag", s.Tag, "events", s.Events)
}
