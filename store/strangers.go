package store

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// renameStrangers takes the requests without an id out of identities that belong to another record, and answers them with an id
// that names their source too. A default id names one record by its topic, partition and offset. But a topic that was deleted
// and made again has them all a second time, and a caller may give such an id to a task: neither may be replaced.
func renameStrangers(list []*identity) (renamed []task.Change) {
	for _, id := range list {
		maker := id.maker()
		id.changes = slices.DeleteFunc(id.changes, func(c task.Change) bool {
			if c.Request == nil || c.Request.GivenID || c.Request.Op != schemas.OpSchedule || c.Seq == maker {
				return false
			}
			source, _ := task.SplitSeq(c.Seq)
			r := *c.Request
			r.ID = strangerID(r.ID, source)
			c.Request = &r
			renamed = append(renamed, c)
			return true
		})
	}
	return renamed
}

// maker is the seq of the record that the identity belongs to: of its task, or of the first that makes it one. A cancel means the
// task by this id, whichever partition it came through.
func (id *identity) maker() int64 {
	if id.before != nil && !id.before.MadeByCancel() {
		return id.before.Seq
	}
	for _, c := range id.changes {
		if c.Request != nil && c.Request.Op == schemas.OpSchedule {
			return c.Seq
		}
	}
	return 0
}

// strangerID names the source too. Where that is longer than an id may be, a hash stands for the topic.
func strangerID(id string, source int) string {
	named := fmt.Sprintf("%s@%d", id, source)
	if len(named) <= schemas.MaxIDLen {
		return named
	}
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("%x@%d", sum[:16], source)
}
