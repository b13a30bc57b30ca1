package task

import (
	"encoding/json"
	"fmt"
)

// Cancels are the cancels of one page of a list. For a cancel of many by a selection, notyet writes
// them as one record of JSON into a topic of its own.
type Cancels struct {
	Installation string   `json:"installation"`    // whose tasks they are: two may share the topic
	Audit        int64    `json:"audit,omitempty"` // the entry of the audit log that counts what they cancel; 0: none
	Tasks        []Listed `json:"tasks"`
	// Stored is how far the tasks' sources were stored at the listing: later requests begin there.
	Stored map[int]int64 `json:"stored,omitempty"`
}

// Of returns the cancels of the tasks of one source.
func (c Cancels) Of(source int) *Cancels {
	out := Cancels{Installation: c.Installation, Audit: c.Audit}
	for _, l := range c.Tasks {
		if of, _ := SplitSeq(l.Seq); of == source {
			out.Tasks = append(out.Tasks, l)
		}
	}
	return &out
}

// MostCancels is how many one record has. The transaction locks the slots, and claims wait for it.
const MostCancels = 1000

// DecodeCancels reads a record.
func DecodeCancels(data []byte) (out Cancels, err error) {
	if err := json.Unmarshal(data, &out); err != nil {
		return out, fmt.Errorf("reading cancels: %w", err)
	}
	if n := len(out.Tasks); n == 0 || n > MostCancels {
		return out, fmt.Errorf("reading cancels: there are %d, and 1 to %d are possible", n, MostCancels)
	}
	for _, l := range out.Tasks {
		if len(l.Ident) != 16 || l.Seq < 0 {
			return out, fmt.Errorf("reading cancels: %x, %d names no task", l.Ident, l.Seq)
		}
	}
	return out, nil
}

// Listed is a task as listed. A cancel leaves any other content of the identity alone.
type Listed struct {
	Ident []byte `json:"ident"` // see Ident
	Seq   int64  `json:"seq"`
	Due   int64  `json:"due"`
	Timer int64  `json:"timer,omitempty"` // of a timer's run: the seq of the definition that the timer had; 0: not known
}

// Is tells whether the task still is the listed one. A fired task has the seq, and another due
// time. A forgotten run of a timer is made again, with another seq; timer is the seq of the timer's
// present definition. A timer that is set anew has its own runs at the same instants.
func (l Listed) Is(t *Task, timer int64) bool {
	if t == nil || t.Due != l.Due {
		return false
	}
	return t.Seq == l.Seq || IsRun(l.Seq) && IsRun(t.Seq) && (l.Timer == 0 || l.Timer == timer)
}
