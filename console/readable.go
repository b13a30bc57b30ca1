package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/notyet/notyet/schemas"
)

// readable shows bytes as indented JSON, as text, or in hex, cut to shownBytes.
func readable(b []byte) (text, form string) {
	cut := b[:min(len(b), shownBytes)]
	if len(cut) == len(b) && len(b) > 0 && (b[0] == '{' || b[0] == '[') && json.Valid(b) {
		var out bytes.Buffer
		if json.Indent(&out, b, "", "  ") == nil && out.Len() <= 4*shownBytes {
			return visibleLines(out.String()), "JSON"
		}
	}
	if isText(cut) {
		return visibleLines(string(cut)), "text"
	}
	return hex.Dump(cut[:min(len(cut), shownBytes/8)]), "hex"
}

// isText tells whether bytes are showable UTF-8. The last rune may have been cut.
func isText(b []byte) bool {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			return len(b) < utf8.UTFMax && !utf8.FullRune(b)
		}
		if !unicode.IsGraphic(r) && r != '\n' && r != '\r' && r != '\t' {
			return false
		}
		b = b[n:]
	}
	return true
}

// visibleLines is visible for text of several lines.
func visibleLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = visible(strings.ReplaceAll(strings.TrimSuffix(l, "\r"), "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// brief is the beginning of a text, of at most so many bytes.
func brief(text string, most int) string {
	if cut := schemas.CutUTF8(text, most); len(cut) < len(text) {
		return cut + "…"
	}
	return text
}
