package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Extent is a partition's log by its leader.
type Extent struct {
	Start, End int64 // [Start, End), End as the high watermark: what no clean election takes back
	// Epoch and EpochEnd answer a question about a leader epoch: the largest epoch of the log up to
	// the asked one, and the end of that epoch. -1: the log knows neither, or no epoch was asked
	// for.
	Epoch    int32
	EpochEnd int64
	Err      error // of this partition: it has no leader, or there is none
}

// answered takes the answers of some partitions where others, for example without a leader, gave
// none. silent is the cause of the missing ones.
func answered[A any](answers A, err error) (_ A, silent, failed error) {
	if some, ok := errors.AsType[*kadm.ShardErrors](err); ok && !some.AllFailed {
		return answers, err, nil
	}
	return answers, nil, err
}

// Extents asks about the partitions of epochs, each with a leader epoch, -1 for none. One
// partition's error is no error of the others. A partition missing in Kafka is left out.
func Extents(ctx context.Context, client *kgo.Client, epochs map[string]map[int32]int32) (map[string]map[int32]Extent, error) {
	names := slices.Collect(maps.Keys(epochs))
	known, err := TopicIDs(ctx, client, names...)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(topic string) bool { _, ok := known[topic]; return !ok })
	if len(names) == 0 {
		return nil, nil
	}
	admin := kadm.NewClient(client)
	starts, silent, err := answered(admin.ListStartOffsets(ctx, names...))
	if err != nil {
		return nil, fmt.Errorf("listing where %d topics begin: %w", len(names), err)
	}
	ends, alsoSilent, err := answered(admin.ListEndOffsets(ctx, names...))
	if err != nil {
		return nil, fmt.Errorf("listing where %d topics end: %w", len(names), err)
	}
	silent = errors.Join(silent, alsoSilent)
	ask := kadm.OffsetForLeaderEpochRequest{}
	for topic, parts := range epochs {
		for part, epoch := range parts {
			if end, ok := ends.Lookup(topic, part); ok && end.Err == nil && epoch >= 0 {
				ask.Add(topic, part, epoch)
			}
		}
	}
	var inEpochs kadm.OffsetsForLeaderEpochs
	if len(ask) > 0 {
		if inEpochs, _, err = answered(admin.OffsetForLeaderEpoch(ctx, ask)); err != nil {
			return nil, fmt.Errorf("asking about leader epochs of %d topics: %w", len(ask), err)
		}
	}
	out := map[string]map[int32]Extent{}
	for topic, parts := range epochs {
		out[topic] = map[int32]Extent{}
		for part, epoch := range parts {
			start, ok := starts.Lookup(topic, part)
			end, ended := ends.Lookup(topic, part)
			if !ok || !ended {
				if silent != nil {
					out[topic][part] = Extent{Epoch: -1, EpochEnd: -1, Err: silent}
				}
				continue
			}
			x := Extent{Start: start.Offset, End: end.Offset, Epoch: -1, EpochEnd: -1, Err: errors.Join(start.Err, end.Err)}
			if in, asked := inEpochs[topic][part]; asked {
				x.Epoch, x.EpochEnd, x.Err = in.LeaderEpoch, in.EndOffset, errors.Join(x.Err, in.Err)
			} else if epoch >= 0 {
				x.Err = errors.Join(x.Err, errors.New("the leader did not answer about its epochs"))
			}
			out[topic][part] = x
		}
	}
	return out, nil
}
