package main

import (
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"
)

// visible writes to a terminal what it shows as it is, and everything else as the \u escape of JSON. Ids, reasons, values,
// topics and headers are other people's text: an ESC would move the cursor, U+202E would turn the line around. Every byte
// that a command prints goes through here. In JSON such a character can only stand inside a string, where the escape means
// the same character.
type visible struct {
	to   io.Writer
	rest []byte // the beginning of a character that the next write completes
}

// Write escapes; it takes everything unless the writer behind it fails.
func (v *visible) Write(p []byte) (int, error) {
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
	switch {
	case r == '\n', r == '\t', unicode.IsPrint(r):
		return utf8.AppendRune(out, r)
	case r > 0xFFFF:
		r -= 0x10000
		return fmt.Appendf(out, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
	}
	return fmt.Appendf(out, `\u%04x`, r)
}

// raw is the writer behind, for what moves the cursor on purpose.
func raw(w io.Writer) io.Writer {
	if v, ok := w.(*visible); ok {
		return v.to
	}
	return w
}
