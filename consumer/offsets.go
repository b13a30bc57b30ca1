package consumer

import "github.com/twmb/franz-go/pkg/kgo"

type entry struct {
	record  *kgo.Record
	handled bool // and its report, if one is due, is acknowledged
}

type partition struct {
	topic string
	n     int32
}

// offsetTracker keeps each partition's messages by offset, so no commit passes an unhandled one.
type offsetTracker struct {
	open map[partition][]*entry
	size int
}

func (l *offsetTracker) add(e *entry) {
	if l.open == nil {
		l.open = map[partition][]*entry{}
	}
	p := partition{e.record.Topic, e.record.Partition}
	l.open[p] = append(l.open[p], e)
	l.size++
}

// takeCommittable removes the messages before the first unhandled one of each partition. It returns
// the last one removed of each partition: the record to commit.
func (l *offsetTracker) takeCommittable() []*kgo.Record {
	var last []*kgo.Record
	for p, entries := range l.open {
		n := 0
		for n < len(entries) && entries[n].handled {
			n++
		}
		if n == 0 {
			continue
		}
		last = append(last, entries[n-1].record)
		l.size -= n
		clear(entries[:n]) // or the rest would keep their bodies in memory
		if l.open[p] = entries[n:]; n == len(entries) {
			delete(l.open, p)
		}
	}
	return last
}
