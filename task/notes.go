package task

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/notyet/notyet/schemas"
)

// Note is what a task's row remembers of one of its deliveries: why it failed, or why a report
// about it could not be read.
type Note struct {
	Number int32 // see SendNumber
	At     int64 // Unix ms
	Reason string
}

// maxNote is how much of a reason is kept, in bytes; maxFailures is of how many attempts.
const (
	maxNote     = 500
	maxFailures = 5
)

// NewNote returns a note about the delivery with a number within a replay.
func NewNote(replay, attempt int, at int64, reason string) Note {
	return Note{SendNumber(replay, attempt), at, schemas.CutUTF8(strings.ReplaceAll(reason, "\x00", " "), maxNote)}
}

// Failed returns the notes with one more: the latest few. A repeated one changes nothing.
func Failed(notes []Note, n Note) []Note {
	if len(notes) > 0 && notes[len(notes)-1].Number >= n.Number {
		return notes
	}
	notes = append(notes[:len(notes):len(notes)], n)
	return notes[max(len(notes)-maxFailures, 0):]
}

// EncodeNotes returns the row's bytes; none for no notes.
func EncodeNotes(notes ...Note) []byte {
	out := []byte{}
	for _, n := range notes {
		if n.At == 0 {
			continue
		}
		if len(out) > 0 {
			out = append(out, 0)
		}
		out = fmt.Appendf(out, "%d %d %s", n.Number, n.At, n.Reason)
	}
	return out
}

// DecodeNotes reads what EncodeNotes wrote, and leaves out anything else.
func DecodeNotes(b []byte) (out []Note) {
	for text := range strings.SplitSeq(string(b), "\x00") {
		parts := strings.SplitN(text, " ", 3)
		if len(parts) < 3 {
			continue
		}
		number, _ := strconv.ParseInt(parts[0], 10, 32)
		at, _ := strconv.ParseInt(parts[1], 10, 64)
		out = append(out, Note{int32(number), at, parts[2]})
	}
	return out
}
