package command

import (
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Visible returns a writer to w with harmless output.
func Visible(w io.Writer) io.Writer { return &visible{to: w} }

// visible writes the characters that a terminal shows unchanged, and escapes all others like JSON
// (\u). Ids, reasons, values, topics and headers are other people's text: an ESC would move the
// cursor, and U+202E would reverse the line. Every printed byte of a command passes through. In
// JSON such a character can only be inside a string, where the escape means the same character. The
// lock is for log lines of a client's goroutine beside an error of the command.
type visible struct {
	to   io.Writer
	mu   sync.Mutex
	rest []byte // the beginning of a character that the next write completes
}

// Write escapes p, and writes all of p unless the underlying writer fails.
func (v *visible) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	text := append(v.rest, p...)
	v.rest = nil
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		if c := text[0]; c < utf8.RuneSelf {
			out, text = appendVisible(out, rune(c)), text[1:]
			continue
		}
		if !utf8.FullRune(text) {
			v.rest = append([]byte(nil), text...)
			break
		}
		r, n := utf8.DecodeRune(text) // a byte that is no UTF-8 becomes U+FFFD
		out, text = appendVisible(out, r), text[n:]
	}
	if _, err := v.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func appendVisible(out []byte, r rune) []byte {
	if r == '\n' || r == '\t' || unicode.IsPrint(r) {
		return utf8.AppendRune(out, r)
	}
	for _, half := range utf16.AppendRune(nil, r) {
		out = fmt.Appendf(out, `\u%04x`, half)
	}
	return out
}

// Raw returns the underlying writer, for intended moves of the cursor.
func Raw(w io.Writer) io.Writer {
	if v, ok := w.(*visible); ok {
		return v.to
	}
	return w
}
