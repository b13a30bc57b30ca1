package scanner

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

type partitionKey struct {
	topic     string
	partition int32
}

// reading is one partition as this process reads it. It begins when the partition is assigned or
// set back. It ends when the partition is revoked or set back, or when a batch of it fails. From
// then on, none of its records are stored, except a batch that is being stored already. So the
// records behind a failed batch cannot be stored without that batch.
type reading struct {
	key   partitionKey
	first int64 // where it began
	// polled is the offset below which Kafka has handed over everything. Only the poller moves it.
	polled int64
	// inspected is the offset below which gaps have been inspected. Only the poller moves it.
	inspected int64
	epoch     int32 // of the leader, of the last record before it; -1: none has been read
	ended     atomic.Bool
	// proved is one more than the connections that had been lost when the log was last seen to have
	// what is stored. 0: it was not since the reading began, or since the client went back.
	proved     atomic.Int64
	unanswered atomic.Int32 // comparisons for that in a row
	// until is where another log begins: from this offset on, nothing is stored. 0: there is none.
	until atomic.Int64
	// paid is the offset below which nothing counts against quotas at which requests wait: records
	// passed, or were stored before the database was set back. The poller and workers raise paid.
	paid atomic.Int64
	// decided is the offset below which records were stored, perhaps before the database was set
	// back: none of them is rejected for an unknown target anew, and a claim that the database has
	// may have been given back since. The workers raise decided.
	decided atomic.Int64
	ahead   ahead        // of the worker that has the partition
	queued  atomic.Int32 // stretches that are neither stored nor given up; cuts make one more
}

func (r *reading) pay(to int64) { raise(&r.paid, to) }

func (r *reading) decide(to int64) {
	r.pay(to)
	raise(&r.decided, to)
}

func raise(offset *atomic.Int64, to int64) {
	for at := offset.Load(); at < to && !offset.CompareAndSwap(at, to); at = offset.Load() {
	}
}

// endAt stops records from offset at on from being stored; 0: all of them.
func (r *reading) endAt(at int64) {
	if at <= 0 {
		r.ended.Store(true)
	} else if before := r.until.Load(); before == 0 || at < before {
		r.until.Store(at)
	}
}

// storable returns the stretches to store, without records behind the end of their readings.
func storable(stretches []stretch) []stretch {
	out := stretches[:0]
	for _, r := range stretches {
		until := r.reading.until.Load()
		switch {
		case r.reading.ended.Load(), until > 0 && r.from >= until:
			continue
		case until > 0 && r.to > until:
			n := slices.IndexFunc(r.records, func(rec *kgo.Record) bool { return rec.Offset >= until })
			if n == 0 {
				continue
			}
			if n > 0 {
				r.records = r.records[:n]
			}
			r.to = until
		}
		out = append(out, r)
	}
	return out
}

// stretch is records of one poll. It covers the offsets [from, to), from the end of the stretch
// before. So an offset without a record has none in Kafka either: it was compacted away, is a
// marker of a transaction, or was aborted.
type stretch struct {
	reading  *reading
	from, to int64
	records  []*kgo.Record
	// unreadable is set for a stretch of an unreadable batch. One record stands for the batch.
	unreadable *kafka.Unreadable
	lost       int64     // one more than the connections that were lost before the end of its poll
	read       time.Time // when it was polled, for traces
	beyond     string    // the quota beyond which its requests are, and are rejected
	letters    int       // how many of those, from the first on, have a dead letter
	waited     bool      // it waits, and was read within the quota of requests
}

// next makes a stretch of received records. The poller calls it under the lock of partitions.
func (r *reading) next(records []*kgo.Record) stretch {
	out := stretch{reading: r, from: min(r.polled, records[0].Offset), to: records[len(records)-1].Offset + 1, records: records, read: time.Now()}
	if out.from < r.polled { // the client found nothing where it was to read on
		r.proved.Store(0)
	}
	r.polled, r.epoch = out.to, records[len(records)-1].LeaderEpoch
	return out
}

func (r *reading) nextUnreadable(bad *kafka.Unreadable) stretch {
	first := max(bad.First, r.polled)
	stands := &kgo.Record{Topic: r.key.topic, Partition: r.key.partition, Offset: first, LeaderEpoch: bad.Epoch}
	out := stretch{reading: r, from: r.polled, to: max(bad.Next, first+1), records: []*kgo.Record{stands}, unreadable: bad}
	r.polled, r.epoch = out.to, bad.Epoch
	return out
}

func (r stretch) key() partitionKey { return r.reading.key }

// weight estimates how much memory a record takes, with the library's structs.
func weight(r *kgo.Record) int {
	n := 256 + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += 64 + len(h.Key) + len(h.Value)
	}
	return n
}

// fit returns how many records, at least one, fit into room records and bytes, and their weight.
func (r stretch) fit(room, bytes int) (n, weighs int) {
	for _, rec := range r.records {
		w := weight(rec)
		if n > 0 && (n >= room || weighs+w > bytes) {
			break
		}
		n, weighs = n+1, weighs+w
	}
	return n, weighs
}

// split cuts a stretch before its n-th record.
func (r stretch) split(n int) (head, tail stretch) {
	head, tail = r, r
	head.records, tail.records = r.records[:n], r.records[n:]
	head.to = r.records[n].Offset
	tail.from, tail.letters = head.to, max(r.letters-n, 0)
	return head, tail
}

// cut is split, where there may be nothing behind the n-th record.
func (r stretch) cut(n int) (head stretch, rest *stretch) {
	if n == len(r.records) {
		return r, nil
	}
	head, tail := r.split(n)
	r.reading.queued.Add(1)
	return head, &tail
}

// errGap: records are missing between the stored ones and the stretch to be stored.
var errGap = errors.New("records are missing before this run")

// coverage is a batch's part of one partition. Only a stretch that continues it can extend it.
type coverage struct {
	reading *reading
	src     intake.Source // as it stands once the batch is stored
	first   int64
	stored  intake.Source  // as it stands before
	lost    int64          // of its latest stretch
	last    *kgo.Record    // the last one to be stored
	ended   []intake.Epoch // leader epochs that end in it, also the one of what is stored already
}

// proved tells whether the log was seen to have what is stored, since it may have become another.
func (c *coverage) proved() bool {
	return c.stored.Proof.At < 0 || len(c.ended) == 0 && c.reading.proved.Load() >= c.lost
}

type mismatchError struct {
	reading *reading
	src     intake.Source
	at      int64
	err     error
}

func (e *mismatchError) Error() string { return e.err.Error() }
func (e *mismatchError) Unwrap() error { return e.err }

// extend adds a stretch to the batch. It fails with errGap, and adds nothing, if the stretch begins
// beyond the end of the coverage. It fails with errDiverged if a record is not of the stored log.
func (c *coverage) extend(b *intake.Batch, r stretch, decode func(source int, r *kgo.Record) (task.Change, bool)) error {
	if r.from > c.src.Next {
		return fmt.Errorf("%s/%d is stored up to offset %d, the run begins at %d: %w", c.src.Topic, c.src.Partition, c.src.Next, r.from, errGap)
	}
	if skipped := c.src.Next; r.unreadable != nil && skipped > r.records[0].Offset && skipped < r.to { // an operator passed a part of it
		rest := *r.records[0]
		rest.Offset = skipped
		r.records = []*kgo.Record{&rest}
	}
	c.lost = max(c.lost, r.lost)
	without := c.src.Next // where the offsets begin that bring no change
	for _, rec := range r.records {
		if err := fits(&c.src, rec); err != nil {
			return &mismatchError{c.reading, c.src, rec.Offset, err}
		}
		if rec.Offset < c.src.Next {
			continue
		}
		if change, ok := decode(c.src.ID, rec); ok {
			change.Again = rec.Offset < r.reading.decided.Load()
			b.Skip(c.src.ID, without, rec.Offset)
			b.Changes = append(b.Changes, change)
			without = rec.Offset + 1
		}
		if c.src.Next = rec.Offset + 1; r.unreadable == nil {
			c.last = rec
		}
		epoch := c.src.Epoch.Next(rec.LeaderEpoch, rec.Offset)
		if epoch.Number != c.src.Epoch.Number && c.src.Epoch.Number >= 0 {
			c.ended = append(c.ended, c.src.Epoch)
		}
		c.src.Epoch = epoch
	}
	c.src.Next = max(c.src.Next, r.to)
	b.Skip(c.src.ID, without, c.src.Next)
	return nil
}
