package scanner

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store/intake"
)

// proofOf describes a record for a later comparison. The same record always has the same proof.
func proofOf(r *kgo.Record) intake.Proof {
	h := xxhash.New()
	add := func(part []byte) { // its length comes first; null is not empty
		length := int64(len(part))
		if part == nil {
			length = -1
		}
		_, _ = h.Write(binary.AppendVarint(nil, length))
		_, _ = h.Write(part)
	}
	add(r.Key)
	add(r.Value)
	for _, header := range r.Headers {
		add([]byte(header.Key))
		add(header.Value)
	}
	return intake.Proof{At: r.Offset, Time: r.Timestamp.UnixMilli(), Sum: int64(h.Sum64())}
}

// prover reads stored records again.
type prover struct {
	client       *kgo.Client
	decompressor kgo.Decompressor
}

// prove reads the last stored record of a partition again, and compares. Only a record that is
// there and differs, or a log that ends before the record, is evidence of another log. A record
// deleted by retention or compaction cannot be compared: unsure.
func (p prover) prove(ctx context.Context, src intake.Source) (verdict, string, error) {
	stored := src.Proof
	if stored.At < 0 {
		return unsure, "", nil
	}
	rec, err := kafka.RecordAt(ctx, p.client, p.decompressor, src.Topic, src.TopicID, src.Partition, stored.At)
	if errors.Is(err, kerr.OffsetOutOfRange) {
		logs, err := extents(ctx, p.client, []intake.Source{src})
		log, there := logs[src.Topic][src.Partition]
		switch {
		case err != nil || !there || log.Err != nil:
			return unsure, "", errors.Join(errors.New("where the log begins and ends is not known"), err, log.Err)
		case stored.At < log.Start:
			return unsure, "", nil
		case stored.At >= log.End:
			return diverged, fmt.Sprintf("the log ends at offset %d, before the last stored record, at %d", log.End, stored.At), nil
		}
	}
	switch {
	case err != nil:
		return unsure, "", err
	case rec == nil:
		return unsure, "", nil
	}
	if now := proofOf(rec); now != stored {
		return diverged, fmt.Sprintf("the record at offset %d, of %s, is another one than was stored, of %s",
			stored.At, time.UnixMilli(now.Time).UTC().Format(time.RFC3339), time.UnixMilli(stored.Time).UTC().Format(time.RFC3339)), nil
	}
	return intact, "", nil
}

// provePatience limits how long a batch waits for comparisons: others' partitions are in it too. It
// doubles with each comparison of a partition without an answer, up to checkPatience: the record's
// batch may be large, or the broker slow.
const provePatience = 2 * time.Second

// proved tells whether the logs of a batch still have what was stored last. It asks where a reading
// has begun, where the client has lost a connection before the records were polled, and where
// another leader wrote records: then the log may be another one. Without an answer, the partition
// is read again, and asked about again. False: some records must not be stored.
func (c *checker) proved(ctx context.Context, covered []coverage) bool {
	unanswered := int32(0)
	for _, of := range covered {
		unanswered = max(unanswered, of.reading.unanswered.Load())
	}
	asking, cancel := context.WithTimeout(ctx, min(provePatience<<min(unanswered, 3), checkPatience))
	defer cancel()
	all, answered := true, true
	for _, of := range covered {
		if of.proved() {
			continue
		}
		now := c.lost.Count() + 1
		result, why, err := c.prove(asking, of.stored)
		switch {
		case err != nil:
			of.reading.unanswered.Add(1)
			c.parts.setBack(of.reading, of.stored.Next)
			all, answered = false, false
		case result == diverged:
			c.halt(of.reading.key, halt{source: of.src.ID, next: of.stored.Next, same: -1, end: -1, why: why, proven: true})
			of.reading.endAt(0)
			all = false
		default:
			of.reading.unanswered.Store(0)
			of.reading.proved.Store(now)
		}
	}
	if !answered {
		loop.Rest(ctx, proveAgain)
	}
	return all
}

// proveAgain follows a comparison without an answer.
const proveAgain = 100 * time.Millisecond

// doubted tells whether the log of an assigned partition is to be compared now.
func (p *partitions) doubted(key partitionKey, lost int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.readings[key]
	return r != nil && r.proved.Load() < lost || p.halted.has(key)
}

// compare judges a stored partition by its log's extent, and, where in doubt, by its proof.
func (c *checker) compare(ctx context.Context, src intake.Source, log kafka.Extent) (result verdict, why halt, err error) {
	key := partitionKey{src.Topic, src.Partition}
	result, same := judge(src, log)
	why = halt{source: src.ID, next: src.Next, same: same, end: log.End}
	now := c.lost.Count() + 1
	if result == diverged || !c.parts.doubted(key, now) || src.Proof.At < log.Start {
		return result, why, nil
	}
	switch proven, differs, err := c.prove(ctx, src); {
	case err != nil:
		return unsure, why, err
	case proven == diverged:
		why.same, why.why, why.proven = -1, differs, true
		return diverged, why, nil
	default:
		if r := c.parts.reading(key); r != nil { // a worker is less patient, and may have set it back meanwhile
			r.proved.Store(now)
		}
		return max(result, proven), why, nil
	}
}
