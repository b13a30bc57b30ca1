package task

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/notyet/notyet/schemas"
)

// RenameTaken separates, of the changes of one identity, the requests whose default id belongs to
// another record. It returns the other changes, and these requests with an id that also names their
// source. The new id may be taken too. cur is the known task of the identity; nil: none.
//
// A default id names one record by its topic, partition and offset. But a recreated topic has all
// ids a second time, and a caller may give a task such an id. Neither may be replaced.
func RenameTaken(cur *Task, changes []Change) (own, renamed []Change) {
	owner := ownerOf(cur, changes)
	own = slices.DeleteFunc(changes, func(c Change) bool {
		if c.Request == nil || c.Request.GivenID || c.Request.Op != schemas.OpSchedule || c.Seq == owner {
			return false
		}
		source, _ := SplitSeq(c.Seq)
		r := *c.Request
		r.ID = idWithSource(r.ID, source)
		c.Request = &r
		renamed = append(renamed, c)
		return true
	})
	return own, renamed
}

// ownerOf returns the seq of the record to which an identity belongs: the maker of its task, or the
// first change that makes one. A cancel means the task of this id, from whichever partition, and
// makes nobody the owner.
func ownerOf(cur *Task, changes []Change) int64 {
	if cur != nil && !cur.MadeByCancel() {
		return cur.Seq
	}
	for _, c := range changes {
		if c.Request != nil && c.Request.Op == schemas.OpSchedule {
			return c.Seq
		}
	}
	return 0
}

// TakenID returns an id for a task whose own is taken.
func TakenID(t *Task) string {
	source, offset := SplitSeq(t.Seq)
	return idWithSource(fmt.Sprintf("%s@%d", t.ID, offset), source)
}

// idWithSource adds the source to an id. In a result too long for an id, a hash stands for the id.
func idWithSource(id string, source int) string {
	named := fmt.Sprintf("%s@%d", id, source)
	if len(named) <= schemas.MaxIDLen {
		return named
	}
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("%x@%d", sum[:16], source)
}
