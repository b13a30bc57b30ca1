package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/loop"
)

// Offsets are offsets of topics' partitions.
type Offsets map[string]map[int32]int64

// each calls f with the offsets, without known epochs.
func (o Offsets) each(f func(topic string, partition int32, at kgo.EpochOffset)) {
	for topic, parts := range o {
		for part, offset := range parts {
			f(topic, part, kgo.EpochOffset{Epoch: -1, Offset: offset})
		}
	}
}

// Ends returns, for each partition, the offset behind the present last record of an ended
// transaction or of none. A missing topic is left out.
func Ends(ctx context.Context, client *kgo.Client, topics ...string) (Offsets, error) {
	return list(ctx, client, topics, kadm.NewClient(client).ListCommittedOffsets)
}

// HighWatermarks returns, for each partition, the offset behind the present last record, open
// transactions included. A missing topic is left out.
func HighWatermarks(ctx context.Context, client *kgo.Client, topics ...string) (Offsets, error) {
	return list(ctx, client, topics, kadm.NewClient(client).ListEndOffsets)
}

// Starts returns each partition's first offset.
func Starts(ctx context.Context, client *kgo.Client, topics ...string) (Offsets, error) {
	return list(ctx, client, topics, kadm.NewClient(client).ListStartOffsets)
}

// Since returns, for each partition, the offset of the first record of the given time or later, by
// the records' own timestamps; without such a record, the offset behind the last one.
func Since(ctx context.Context, client *kgo.Client, at time.Time, topics ...string) (Offsets, error) {
	return list(ctx, client, topics, func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
		return kadm.NewClient(client).ListOffsetsAfterMilli(ctx, at.UnixMilli(), topics...)
	})
}

// list also returns the answers of other partitions when some fail, without a leader for example.
func list(ctx context.Context, client *kgo.Client, topics []string, ask func(context.Context, ...string) (kadm.ListedOffsets, error)) (Offsets, error) {
	known, err := TopicIDs(ctx, client, topics...)
	if err != nil || len(known) == 0 {
		return Offsets{}, err
	}
	listed, err := ask(ctx, slices.Collect(maps.Keys(known))...)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		err = fmt.Errorf("listing offsets of %d topics: %w", len(topics), err)
	}
	out := Offsets{}
	listed.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			out.Set(o.Topic, o.Partition, o.Offset)
		}
	})
	return out, err
}

// Scan calls f with every record between two offsets of each partition, until f returns false.
// Groups and committed offsets play no role, and records of aborted transactions are left out. Scan
// finds the end of a partition also at a transaction's marker. A batch too large to be read is one
// empty record.
func Scan(ctx context.Context, cfg Config, from, to Offsets, log *zap.Logger, f func(*kgo.Record) bool) error {
	left, read, at := 0, map[string]map[int32]kgo.Offset{}, Offsets{}
	for topic, parts := range to {
		for part, end := range parts {
			if first, ok := from[topic][part]; ok && first < end {
				if read[topic] == nil {
					read[topic] = map[int32]kgo.Offset{}
				}
				read[topic][part] = kgo.NewOffset().At(first)
				at.Set(topic, part, first)
				left++
			}
		}
	}
	if left == 0 {
		return nil
	}
	opts, err := BoundFetches()
	if err != nil {
		return err
	}
	client, err := NewReader(cfg, log, append(opts, kgo.ConsumePartitions(read), kgo.KeepControlRecords())...)
	if err != nil {
		return err
	}
	defer client.Close()
	reached := func(topic string, partition int32, next int64) {
		at.Set(topic, partition, next)
		if _, reading := read[topic][partition]; reading && next >= to[topic][partition] { // beyond it where the record there was given up
			delete(read[topic], partition)
			left--
		}
	}
	mover := NewMover(client)
	behind := Offsets{} // what is to be passed
	var warned time.Time
	for left > 0 {
		mover.Move(behind, at.each)
		behind = Offsets{}
		polling, polled := context.WithTimeout(ctx, PollAtMost)
		fetches := client.PollRecords(polling, 10_000)
		polled()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("reading %d topics: %w", len(read), err)
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			end := to[r.Topic][r.Partition]
			if r.Offset < end && !r.Attrs.IsControl() && !f(r) {
				return nil
			}
			reached(r.Topic, r.Partition, r.Offset+1)
		}
		failed := false
		for _, e := range fetches.Errors() {
			tooLarge, passable := errors.AsType[*kgo.ErrDecompressTooLarge](e.Err)
			switch {
			case passable:
				log.Warn("a batch of records is too large to be read, and is passed", zap.Error(e.Err))
				if tooLarge.Offset < to[e.Topic][e.Partition] && !f(&kgo.Record{Topic: e.Topic, Partition: e.Partition, Offset: tooLarge.Offset}) {
					return nil
				}
				reached(e.Topic, e.Partition, tooLarge.NextOffset)
				behind.Set(e.Topic, e.Partition, tooLarge.NextOffset)
			case errors.Is(e.Err, context.DeadlineExceeded): // of this poll
			case errors.Is(e.Err, ErrHeld):
				failed = true
			default:
				failed = true
				if time.Since(warned) < time.Second {
					break
				}
				warned = time.Now()
				log.Warn("fetching failed, trying again", zap.String("topic", e.Topic), zap.Int32("partition", e.Partition), zap.Error(e.Err))
			}
		}
		if failed { // an error that stays must not become a spin
			if err := loop.Rest(ctx, 100*time.Millisecond); err != nil {
				return fmt.Errorf("reading %d topics: %w", len(read), err)
			}
		}
	}
	return nil
}
