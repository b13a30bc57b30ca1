package sendlog

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/notyet/notyet/internal/wrap"
)

// Entry is one intent or outcome, and when it was appended. Exactly one of Intent and Outcome is
// set, valid until the callback returns.
type Entry struct {
	// At is Unix ms, never falling from one entry to the next.
	At      int64
	Intent  *Intent
	Outcome *Outcome
}

// Gap is a run of batches that were written and are missing.
type Gap struct{ First, Last uint64 }

// DamageError says which of the wanted batches could not be read. All others were. Each batch is
// one call of AppendIntents or AppendOutcomes; the entries of a lost one are unknown.
type DamageError struct {
	// Gaps are missing batches.
	Gaps []Gap
	// Corrupt are batches with a wrong checksum.
	Corrupt []uint64
}

func (e *DamageError) Error() string {
	var b strings.Builder
	b.WriteString("the send log is damaged:")
	for _, g := range e.Gaps {
		fmt.Fprintf(&b, " batches %d to %d are missing;", g.First, g.Last)
	}
	if len(e.Corrupt) > 0 {
		fmt.Fprintf(&b, " batches %d are corrupt;", e.Corrupt)
	}
	return strings.TrimSuffix(b.String(), ";")
}

func (e *DamageError) missing(first, last uint64) {
	if first <= last {
		e.Gaps = append(e.Gaps, Gap{first, last})
	}
}

func (e *DamageError) orNil() error {
	if len(e.Gaps)+len(e.Corrupt) == 0 {
		return nil
	}
	return e
}

// Replay calls f with every entry appended at from or later, in order, and stops at f's first
// error, which is returned. Missing or damaged batches do not stop it: they are reported at the
// end, as a *DamageError. Entries appended meanwhile may or may not be included.
func (l *Log) Replay(ctx context.Context, from time.Time, f func(Entry) error) error {
	return wrap.Err(l.replay(ctx, from.UnixMilli(), f), "replaying the send log")
}

// Acked returns the attempts acknowledged by Kafka, as proven by an intent and an outcome appended
// at since or later. wanted selects tasks by seq: an hour of all is gigabytes. An error comes with
// the readable part: everything returned is true, and the rest unknown.
func (l *Log) Acked(ctx context.Context, since time.Time, wanted func(seq int64) bool) (map[Proof]Outcome, error) {
	noted, acked := Subjects{}, make(map[Proof]Outcome)
	err := l.replay(ctx, since.UnixMilli(), func(e Entry) error {
		if e.Intent != nil && wanted(e.Intent.Seq) {
			noted.Note(e.Intent)
		}
		if o := e.Outcome; o != nil && o.Acked {
			if subject, ok := noted.Of(o); ok {
				acked[Proof{subject, o.Attempt}] = *o
			}
		}
		return nil
	})
	return acked, wrap.Err(err, "reading acknowledged attempts")
}

func (l *Log) replay(ctx context.Context, from int64, f func(Entry) error) error {
	l.reading.RLock()
	defer l.reading.RUnlock()
	if l.closed {
		return ErrClosed
	}
	// A snapshot: pruning meanwhile must not look like a gap.
	snap, end := l.snapshot()
	defer func() { _ = snap.Close() }() // only refuses while iterators are open
	first, err := readFirst(snap)
	if err != nil {
		return err
	}
	// Where a header is damaged the search may have stopped early.
	young := func(e Entry) error {
		if e.At < from {
			return nil
		}
		return f(e)
	}
	var damage DamageError
	for number := seek(snap, first, end, from); number < end; {
		number, err = pass(ctx, snap, number, end, &damage, young)
		if err != nil {
			return err
		}
	}
	return damage.orNil()
}

// pass reads from number on to the end, or to an unreadable table, and returns where to go on.
func pass(ctx context.Context, snap *pebble.Snapshot, number, end uint64, damage *DamageError, f func(Entry) error) (next uint64, err error) {
	it, err := snap.NewIter(&pebble.IterOptions{LowerBound: batchKey(number), UpperBound: batchKey(end)})
	if err != nil {
		return 0, err
	}
	for valid := it.First(); valid; valid = it.Next() {
		if err := ctx.Err(); err != nil {
			return 0, errors.Join(err, it.Close())
		}
		found := keyNumber(it.Key())
		damage.missing(number, found-1)
		value, err := it.ValueAndErr()
		var stop error // f's own
		if err == nil {
			err = decode(found, value, func(e Entry) error { stop = f(e); return stop })
		}
		switch {
		case stop != nil:
			return 0, errors.Join(stop, it.Close())
		case err != nil:
			damage.Corrupt = append(damage.Corrupt, found)
		}
		number = found + 1
	}
	switch err := it.Close(); {
	case err == nil:
		damage.missing(number, end-1)
		return end, nil
	case pebble.IsCorruptionError(err):
		// The iterator does not say how far the damage goes: try one further.
		damage.Corrupt = append(damage.Corrupt, number)
		return number + 1, nil
	default:
		return 0, err
	}
}

// seek finds the first batch appended at from or later. Batches with an unreadable header count as
// later, so that damage is reported rather than skipped.
func seek(snap *pebble.Snapshot, first, end uint64, from int64) uint64 {
	n := sort.Search(int(end-first), func(i int) bool {
		at, ok := timeOf(snap, first+uint64(i), end)
		return !ok || at >= from
	})
	return first + uint64(n)
}

// timeOf returns the time of the batch, or of the one that follows a gap.
func timeOf(snap *pebble.Snapshot, number, end uint64) (at int64, ok bool) {
	it, err := snap.NewIter(&pebble.IterOptions{LowerBound: batchKey(number), UpperBound: batchKey(end)})
	if err != nil {
		return 0, false
	}
	if it.First() {
		var h header
		h, ok = decodeHeader(it.Value())
		at = h.at
	}
	if err := it.Close(); err != nil {
		return 0, false
	}
	return at, ok
}
