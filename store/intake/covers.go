package intake

import (
	"errors"
	"fmt"

	"github.com/notyet/notyet/task"
)

// Gap is the offsets [From, To) of a source that bring no change: Kafka has no record there, or one
// that asks for nothing.
type Gap struct {
	Source   int
	From, To int64
}

// Skip says that the offsets [from, to) of a source bring no change. An empty range is ignored.
func (b *Batch) Skip(source int, from, to int64) {
	if from >= to {
		return
	}
	if n := len(b.Gaps); n > 0 && b.Gaps[n-1].Source == source && b.Gaps[n-1].To == from {
		b.Gaps[n-1].To = to
		return
	}
	b.Gaps = append(b.Gaps, Gap{source, from, to})
}

// offsets is how many offsets the batch covers.
func (b *Batch) offsets() (n int64) {
	for _, a := range b.Advance {
		n += a.To - a.From
	}
	return n
}

// ErrUncovered says that a batch moves a source's offset over records that it does not contain. If
// it were stored, they would be lost.
var ErrUncovered = errors.New("the batch does not bring all the offsets that it covers")

// check verifies that the changes and gaps of a batch are, offset by offset, what its advances cover.
func (b *Batch) check() error {
	next := make(map[int]int64, len(b.Advance)) // the offset that each source expects
	for _, a := range b.Advance {
		next[a.Source] = a.From
	}
	gaps := make(map[int][]Gap, len(b.Gaps))
	for _, g := range b.Gaps {
		gaps[g.Source] = append(gaps[g.Source], g)
	}
	skip := func(source int) {
		for g := gaps[source]; len(g) > 0 && g[0].From == next[source] && g[0].To > g[0].From; g = gaps[source] {
			next[source], gaps[source] = g[0].To, g[1:]
		}
	}
	for _, c := range b.Changes {
		source, offset := task.SplitSeq(c.Seq)
		if next[source] != offset {
			skip(source)
		}
		if at, ok := next[source]; !ok || at != offset {
			return fmt.Errorf("source %d: offset %d follows where %d is to come: %w", source, offset, at, ErrUncovered)
		}
		next[source]++
	}
	for _, a := range b.Advance {
		skip(a.Source)
		if at := next[a.Source]; at != a.To || len(gaps[a.Source]) > 0 {
			return fmt.Errorf("source %d: the offsets [%d, %d) are covered up to %d: %w", a.Source, a.From, a.To, at, ErrUncovered)
		}
	}
	return nil
}
