package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/notyet/notyet/deadletter"
)

// json prints one value, indented, with a line feed at its end.
func (a *app) json(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// line prints one value on one line, for streams.
func (a *app) line(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func isTerminal(stream any) bool {
	if v, ok := stream.(*visible); ok {
		stream = v.to
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// table prints rows under headings. It draws lines only on a terminal.
func (a *app) table(head []any, rows [][]any) {
	t := table.NewWriter()
	t.SetOutputMirror(a.stdout)
	t.AppendHeader(head)
	for _, r := range rows {
		for i := range r {
			if s, ok := r[i].(string); ok {
				r[i] = plain(s)
			}
		}
		t.AppendRow(r)
	}
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft = ""
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	t.Render()
}

// pairs prints names and values, one pair a line.
func pairs(w io.Writer, values ...string) {
	for i := 0; i+1 < len(values); i += 2 {
		if values[i+1] != "" {
			fmt.Fprintf(w, "%-12s %s\n", values[i], plain(values[i+1]))
		}
	}
}

// when returns an instant and its distance from now, or "" for 0.
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

// content prints key, headers and value: as text if a terminal can show it, otherwise quoted or in
// base64.
func content(w io.Writer, c *deadletter.Content) {
	if c == nil {
		return
	}
	pairs(w, "key", shown(c.Key, c.KeyBase64))
	for _, h := range c.Headers {
		pairs(w, "header", plain(h.Key)+"="+shown(h.Value, h.ValueBase64))
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
	return plain(*s)
}

// plain quotes text that could move a terminal's cursor or begin a line of its own. Text that is
// already quoted stays unchanged.
func plain(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
