package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Gap is a range of offsets [From, To) without any record from a client.
type Gap struct{ From, To int64 }

// Unreadable is a batch, or several in a row, with records at unexpected offsets, or undecodable.
type Unreadable struct {
	First, Next int64 // the offsets are [First, Next)
	Epoch       int32 // of the leader that took it
	Reason      string
}

// Error returns the reason.
func (u *Unreadable) Error() string { return u.Reason }

// Inspected is what Inspect has found.
type Inspected struct {
	Bad   *Unreadable // the first batch that is unreadable; nil: each is as it should be, and what is not there is not in the log
	Start int64       // offsets in gaps up to it were deleted; 0: none were
	To    int64       // what lies below it was looked at, also where Inspect failed then: go on there
}

// Inspect looks at the batches with offsets in gaps, in order, up to the first unreadable one.
//
// Kafka does not check the offsets in the records of an uncompressed batch. A client believes them:
// it passes other writers' records behind the batch, or leaves records out, silently. Then its
// records have a gap. Other gaps are rare: compacted or deleted records, or an aborted
// transaction's.
func Inspect(ctx context.Context, client *kgo.Client, decompressor kgo.Decompressor, topic string, partition int32, gaps []Gap) (Inspected, error) {
	if len(gaps) == 0 {
		return Inspected{}, nil
	}
	in, err := newInspection(ctx, client, decompressor, topic, partition)
	if err != nil {
		return Inspected{}, err
	}
	return in.look(ctx, client, gaps)
}

// InspectAt looks only at the batch with the record at an offset.
func InspectAt(ctx context.Context, client *kgo.Client, decompressor kgo.Decompressor, topic string, partition int32, at int64) (*Unreadable, error) {
	in, err := newInspection(ctx, client, decompressor, topic, partition)
	if err != nil {
		return nil, err
	}
	in.bytes = 1 // Kafka answers one whole batch, however large
	out, err := in.look(ctx, client, []Gap{{From: at, To: at + 1}})
	return out.Bad, err
}

// RecordAt reads the record at an offset from the leader, whatever became of its transaction. nil:
// the log has none there any more, or none that can be decoded. kerr.OffsetOutOfRange: the log does
// not reach from below the offset to beyond it. A topic of the same name with another id is an
// error.
func RecordAt(ctx context.Context, client *kgo.Client, decompressor kgo.Decompressor, topic string, id [16]byte, partition int32, at int64) (*kgo.Record, error) {
	in, err := newInspection(ctx, client, decompressor, topic, partition)
	if err != nil {
		return nil, err
	}
	if in.id != id {
		return nil, fmt.Errorf("reading %s/%d at offset %d: %w", topic, partition, at, kerr.InconsistentTopicID)
	}
	in.bytes = 1 // Kafka answers one whole batch, however large
	raw, err := in.fetch(ctx, at)
	if err == nil && len(raw) == 0 {
		err = errors.New("its leader has nothing there yet")
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s/%d at offset %d: %w", topic, partition, at, err)
	}
	part := kmsg.NewFetchResponseTopicPartition()
	part.Partition, part.RecordBatches = partition, raw
	got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{KeepControlRecords: true, Offset: at, Topic: topic, Partition: partition}, &part, decompressor, nil)
	switch {
	case errors.Is(got.Err, ErrHeld):
		return nil, fmt.Errorf("reading %s/%d at offset %d: %w", topic, partition, at, got.Err)
	case len(got.Records) == 0 || got.Records[0].Offset != at:
		return nil, nil //nolint:nilnil // there is none
	}
	return got.Records[0], nil
}

func (in *inspection) look(ctx context.Context, client *kgo.Client, gaps []Gap) (out Inspected, err error) {
	topic, partition := in.topic, in.partition
	for {
		for len(gaps) > 0 && gaps[0].To <= out.To {
			gaps = gaps[1:]
		}
		if len(gaps) == 0 {
			return out, nil
		}
		at := max(out.To, gaps[0].From)
		raw, err := in.fetch(ctx, at)
		if errors.Is(err, kerr.OffsetOutOfRange) {
			starts, err := Starts(ctx, client, topic)
			first, known := starts[topic][partition]
			if err != nil && !known {
				return out, err
			}
			if first > at { // retention has deleted what was there
				out.To, out.Start = first, min(first, gaps[len(gaps)-1].To)
				continue
			}
		}
		if err != nil {
			return out, fmt.Errorf("inspecting %s/%d at offset %d: %w", topic, partition, at, err)
		}
		next, bad, err := in.walk(raw, gaps)
		if bad != nil || err != nil {
			out.Bad = bad
			return out, err
		}
		if next <= at {
			return out, fmt.Errorf("inspecting %s/%d at offset %d: its leader has nothing there", topic, partition, at)
		}
		out.To = next
	}
}

// InspectionDecompressor is for Inspect alone, with a consumer's bound for one batch. Batches held
// by consumers do not count, for these may be the very batches to inspect.
func InspectionDecompressor() (kgo.Decompressor, error) {
	return newBounded(maxBatchBytes, maxBatchBytes)
}

type inspection struct {
	leader       *kgo.Broker
	topic        string
	id           [16]byte
	partition    int32
	decompressor kgo.Decompressor
	bytes        int32 // of one fetch
}

func newInspection(ctx context.Context, client *kgo.Client, decompressor kgo.Decompressor, topic string, partition int32) (*inspection, error) {
	resp, err := describe(ctx, client, false, topic)
	if err != nil {
		return nil, fmt.Errorf("looking for the leader of %s/%d: %w", topic, partition, err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.Partition == partition && p.Leader >= 0 {
				return &inspection{leader: client.Broker(int(p.Leader)), topic: topic, id: t.TopicID, partition: partition, decompressor: decompressor, bytes: 1 << 20}, nil
			}
		}
	}
	return nil, fmt.Errorf("%s/%d has no leader", topic, partition)
}

func (in *inspection) fetch(ctx context.Context, at int64) ([]byte, error) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.SessionEpoch, req.MinBytes, req.MaxBytes = -1, -1, 1, in.bytes
	req.MaxWaitMillis = 500 // for what a broker has to get from its remote storage first
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = in.topic, in.id
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = in.partition, at, in.bytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, in.leader)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			return p.RecordBatches, kerr.ErrorForCode(p.ErrorCode)
		}
	}
	return nil, errors.New("the leader did not answer about it")
}

// walk looks at the whole batches in raw. The result is up to where, or the first unreadable batch
// with the like ones right behind. Of the others, only those with offsets in gaps are decoded.
func (in *inspection) walk(raw []byte, gaps []Gap) (next int64, bad *Unreadable, err error) {
	const header, magicAt = 61, 16
	for len(raw) > magicAt {
		first, length := int64(binary.BigEndian.Uint64(raw)), 12+int(int32(binary.BigEndian.Uint32(raw[8:])))
		if length <= magicAt || length > len(raw) {
			break
		}
		batch := raw[:length]
		raw = raw[length:]
		if batch[magicAt] != 2 || length < header { // of before Kafka 0.11: each record is where it says
			next = max(next, first+1)
			continue
		}
		end := first + int64(int32(binary.BigEndian.Uint32(batch[23:]))) + 1
		next = max(next, first) // the batch itself has yet to be looked at
		for len(gaps) > 0 && gaps[0].To <= first {
			gaps = gaps[1:]
		}
		switch {
		case bad != nil && first != bad.Next, bad == nil && len(gaps) == 0:
			return next, bad, nil
		case bad == nil && end <= gaps[0].From:
			next = max(next, end)
			continue
		}
		reason, err := in.unreadable(batch, first, end)
		switch {
		case err != nil && bad == nil:
			return next, nil, err
		case err != nil || reason == "" && bad != nil:
			return next, bad, nil
		case bad != nil:
			bad.Next = end
		case reason != "":
			bad = &Unreadable{First: first, Next: end, Epoch: int32(binary.BigEndian.Uint32(batch[12:])), Reason: reason}
		}
		next = max(next, end)
	}
	return next, bad, nil
}

// TooLarge says why a batch that cannot be decompressed is unreadable.
func TooLarge(err error) string {
	return fmt.Sprintf("it is larger than 64 MiB when it is decompressed, or cannot be decompressed (%v)", err)
}

// unreadable says why a batch of the offsets [first, end) is, or "".
func (in *inspection) unreadable(batch []byte, first, end int64) (string, error) {
	part := kmsg.NewFetchResponseTopicPartition()
	part.Partition, part.RecordBatches = in.partition, batch
	opts := kgo.ProcessFetchPartitionOpts{KeepControlRecords: true, Offset: first, Topic: in.topic, Partition: in.partition}
	got, _ := kgo.ProcessFetchPartition(opts, &part, in.decompressor, nil)
	says := int(int32(binary.BigEndian.Uint32(batch[57:])))
	switch last := len(got.Records) - 1; {
	case errors.Is(got.Err, kgo.ErrMaxDecompress):
		return TooLarge(got.Err), nil
	case got.Err != nil: // a wrong checksum, say: another replica, or another answer, may have it whole
		return "", got.Err
	case len(got.Records) != says:
		return fmt.Sprintf("only %d of its %d records can be decoded and are in order", len(got.Records), says), nil
	case last >= 0 && got.Records[last].Offset >= end:
		return fmt.Sprintf("one of its records says that it is at offset %d", got.Records[last].Offset), nil
	}
	return "", nil
}
