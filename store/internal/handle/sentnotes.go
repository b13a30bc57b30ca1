package handle

import (
	"encoding/binary"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/notyet/notyet/task"
)

// SentNotes are notes in a slot's row of attempts that were sent, while the database had forgotten
// their tasks. The scanner stores such a task again, as one that is to be sent again: nobody may
// cancel or replace it. Each note has the task's seq, the attempt's number and the time of the
// note, and they are in the order of seq.
type SentNotes string

const sentNote = 8 + 4 + 8

// sentNotesFor is how long a note is kept: longer than scanners take to read requests again.
const sentNotesFor = 24 * time.Hour

func (n SentNotes) len() int { return len(n) / sentNote }

func (n SentNotes) at(i int) (seq int64, number int32, noted int64) {
	b := []byte(n[i*sentNote : (i+1)*sentNote])
	return int64(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[8:])), int64(binary.BigEndian.Uint64(b[12:]))
}

// Have tells whether an attempt of a task was sent that its row does not know of.
func (n SentNotes) Have(t *task.Task) bool {
	i := sort.Search(n.len(), func(i int) bool { seq, _, _ := n.at(i); return seq >= t.Seq })
	if i == n.len() {
		return false
	}
	seq, number, _ := n.at(i)
	return seq == t.Seq && number > task.SendNumber(t.Replay, t.Attempt)
}

// With adds attempts, by seq, and leaves out old notes. now is in Unix ms.
func (n SentNotes) With(numbers map[int64]int32, now int64) SentNotes {
	type note struct {
		number int32
		at     int64
	}
	all := map[int64]note{}
	for i := range n.len() {
		if seq, number, at := n.at(i); at > now-sentNotesFor.Milliseconds() {
			all[seq] = note{number, at}
		}
	}
	for seq, number := range numbers {
		all[seq] = note{max(number, all[seq].number), now}
	}
	out := make([]byte, 0, len(all)*sentNote)
	for _, seq := range slices.Sorted(maps.Keys(all)) {
		out = binary.BigEndian.AppendUint64(out, uint64(seq))
		out = binary.BigEndian.AppendUint32(out, uint32(all[seq].number))
		out = binary.BigEndian.AppendUint64(out, uint64(all[seq].at))
	}
	return SentNotes(out)
}
