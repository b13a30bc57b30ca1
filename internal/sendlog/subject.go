package sendlog

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Subject names the task of an attempt, by number and by a hash of topic, id and content. After a
// set-back of the database, two sources may have exchanged their numbers, so a number alone proves
// nothing.
type Subject struct {
	Seq  int64
	What uint64
}

// SubjectOf names a task; bodyHash is as of an Intent.
func SubjectOf(seq int64, topic, id string, bodyHash uint64) Subject {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(topic)
	_, _ = d.Write([]byte{0}) // never part of a topic name
	_, _ = d.WriteString(id)
	var b [9]byte
	binary.LittleEndian.PutUint64(b[1:], bodyHash)
	_, _ = d.Write(b[:])
	return Subject{seq, d.Sum64()}
}

// Subjects are the subjects of all attempts noted so far in one log. An outcome names only its
// attempt, and belongs to the latest intent before it in the same log.
type Subjects map[Key]Subject

// Note adds an intent, and returns its subject.
func (s Subjects) Note(in *Intent) Subject {
	subject := SubjectOf(in.Seq, in.Topic, in.ID, in.BodyHash)
	s[Key{in.Seq, in.Attempt}] = subject
	return subject
}

// Of returns the subject of an outcome. False: the intent is older than the part read, or damaged.
func (s Subjects) Of(o *Outcome) (Subject, bool) {
	subject, ok := s[Key{o.Seq, o.Attempt}]
	return subject, ok
}
