package intake

import (
	"errors"
	"fmt"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/task"
)

// Batch is a run of intake records with the offsets they cover. All of it happens, or nothing.
type Batch struct {
	Advance []Advance     // each source once
	Changes []task.Change // in intake order for each source
	Gaps    []Gap         // offsets that Advance covers and Changes do not bring, in order for each source: see Skip
	// Epochs are the sources' known leader epochs after the batch.
	Epochs map[int]Epoch
	// Proofs are the sources' last records in the batch.
	Proofs map[int]Proof
	// Resolve also looks at the waiting requests of these identities.
	Resolve [][16]byte
	// Kept says which offsets Kafka has of the read partitions. Cancels of many do not wait for
	// others. nil: nobody has asked.
	Kept    map[Place]Extent
	Unknown Unknown
	// Map is the version of the rules by which records of other databases are left out; 0: there is
	// one database.
	Map int64
}

// Place is a partition of a topic.
type Place struct {
	Topic     string
	Partition int32
}

// Extent is the offsets [From, To) of a partition.
type Extent struct{ From, To int64 }

// Advance says which intake offsets a batch covers: [From, To) of one source.
type Advance struct {
	Source   int
	From, To int64
}

// Gap is offsets [From, To) of a source without a change: Kafka has no record, or an ignored one.
type Gap struct {
	Source   int
	From, To int64
}

// Epoch is the leader epoch of a source's last stored record. Kafka numbers the leaders of a
// partition: in one log, an offset and an epoch name one record.
type Epoch struct {
	Number int32 // -1: not known
	From   int64 // where the records of that epoch begin
	To     int64 // behind the last stored record of it; a scanner of an older version moves Source.Next without it
}

// Next is the epoch once the record at offset is stored too.
func (e Epoch) Next(number int32, offset int64) Epoch {
	switch {
	case number < 0: // the broker or the batch does not say
	case number == e.Number:
		e.To = offset + 1
	default:
		e = Epoch{number, offset, offset + 1}
	}
	return e
}

// Proof is a source's last stored record. A log without that record is another log: one that was
// restored, say, which repeats the numbers of its leaders.
type Proof struct {
	At   int64 // its offset, -1: no record is known
	Time int64 // its timestamp in Unix ms
	Sum  int64 // a hash of the record
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

func (b *Batch) offsets() (n int64) {
	for _, a := range b.Advance {
		n += a.To - a.From
	}
	return n
}

// ErrUncovered: a batch moves a source's offset over missing records, which would be lost.
var ErrUncovered = errors.New("the batch does not bring all the offsets that it covers")

// check verifies offset by offset that a batch's changes and gaps fill its advances.
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
		if c.Cancels != nil && len(b.Changes)+len(b.Resolve) > 1 {
			return errors.New("cancels of many stand beside other changes")
		}
		source, offset := task.SplitSeq(c.Seq)
		if _, covered := next[source]; c.Cancels != nil && !covered {
			continue // they come before their turn: the source of their tasks must not have moved on
		}
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

// Applied is what a batch has done.
type Applied struct {
	Events  []handle.Box // events that are decided and stored, to be published and then deleted
	Added   []handle.Place
	Removed []handle.Place
	Timers  []int          // slots of timers that were set or enabled: their first runs are to be made
	Waiting int            // requests that wait for a delivery's outcome
	Dead    map[string]int // dead letters that it has stored, by kind
	Opened  map[int]Size   // what has become pending, by source
}

// Size is a number of tasks, and of the bytes of their bodies.
type Size struct{ Tasks, Bytes int64 }

// Plus returns the sum of two sizes.
func (s Size) Plus(o Size) Size { return Size{s.Tasks + o.Tasks, s.Bytes + o.Bytes} }

// opened notes what has become pending by the record seq.
func (a *Applied) opened(seq int64, tasks, bytes int) {
	if a.Opened == nil {
		a.Opened = map[int]Size{}
	}
	source, _ := task.SplitSeq(seq)
	a.Opened[source] = a.Opened[source].Plus(Size{int64(tasks), int64(bytes)})
}
