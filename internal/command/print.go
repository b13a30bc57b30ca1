package command

import (
	"encoding/json"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// JSON prints one value, indented, with a final line feed.
func (a *App) JSON(v any) error {
	enc := json.NewEncoder(a.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Line prints one value on one line, for streams.
func (a *App) Line(v any) error { return line(a.Stdout, v) }

func line(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// IsTerminal says whether a person reads or writes the stream.
func IsTerminal(stream any) bool {
	if v, ok := stream.(*visible); ok {
		stream = v.to
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Table prints rows under headings. Lines are drawn only on a terminal.
func (a *App) Table(head []any, rows [][]any) {
	t := table.NewWriter()
	t.SetOutputMirror(a.Stdout)
	t.AppendHeader(head)
	for _, r := range rows {
		for i := range r {
			if s, ok := r[i].(string); ok {
				r[i] = Plain(s)
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

// Plain quotes text with power over a terminal. Already quoted text stays unchanged.
func Plain(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
