package intake

import (
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/task"
)

// outcomes are the events and dead letters that a transaction decides, until it stores them.
type outcomes struct {
	events map[int]*eventBox // for each source
	full   []*eventBox
	dead   []*task.DeadLetter
	proven []schemas.Event // of no source: of tasks that evidence has settled, and of cancels by filter
}

// addEvent puts the event of a change into the box of its source. Time is a part of the box's number: a database that was set back decides
// about the same records anew, while somebody may still want to delete the box of before.
func (o *outcomes) addEvent(now, seq int64, e schemas.Event) {
	if e.State == "" {
		return
	}
	e.At = now
	src, _ := task.SplitSeq(seq)
	if o.events == nil {
		o.events = make(map[int]*eventBox)
	}
	box := o.events[src]
	if box == nil {
		box = &eventBox{Box: handle.Box{Source: src}}
		o.events[src] = box
	}
	box.Seq = max(box.Seq, now<<20|seq&(1<<20-1))
	box.Events = append(box.Events, e)
	box.size += handle.EventSize(e)
}

// eventBox gathers events of one source.
type eventBox struct {
	handle.Box
	size int // about, in bytes
}

// closeFullBoxes puts full boxes aside. It is called between identities, so that the events of one stay in order.
func (o *outcomes) closeFullBoxes() {
	for src, box := range o.events {
		if box.size >= handle.MaxBox {
			o.full = append(o.full, box)
			delete(o.events, src)
		}
	}
}
