package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// BoundFetches are the options that bound the memory of fetches. Compressed data are small on the
// way and large in memory. A batch beyond the bound stops its partition with
// kgo.ErrDecompressTooLarge, until SetOffsets moves on; a fetch without room for now fails with
// ErrHeld, and is made again.
func BoundFetches() ([]kgo.Opt, error) {
	decompressor, err := newBounded(maxBatchBytes, maxHeldBytes)
	if err != nil {
		return nil, err
	}
	return []kgo.Opt{
		kgo.WithDecompressor(decompressor),
		// Uncompressed data grow too: tiny records take thirty times as many. So 4 MiB are 128 MiB
		// at most.
		kgo.FetchMaxBytes(4 << 20),
		kgo.FetchMaxPartitionBytes(1 << 20),
	}, nil
}

// NewReader returns a client for partitions added by the caller, without uncommitted records. A
// poll also returns errors of requests that the client repeats: pause after each, see
// NewConsumerGroup.
func NewReader(cfg Config, log *zap.Logger, opts ...kgo.Opt) (*kgo.Client, error) {
	return New(cfg, log, append([]kgo.Opt{kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepRetryableFetchErrors()}, opts...)...)
}

// NewConsumerGroup returns a client that consumes topics as a member of group.
//
// Nothing is committed unless the caller does. A partition without a committed offset is read from
// its start, and so is one whose committed offset is gone: reading twice is harmless here, skipping
// is not. Records of aborted and of open transactions are never seen.
//
// The caller handles rebalances, by kgo.OnPartitionsRevoked and its companions or
// kgo.BlockRebalanceOnPoll.
func NewConsumerGroup(cfg Config, group string, topics []string, log *zap.Logger, opts ...kgo.Opt) (*kgo.Client, error) {
	if group == "" || len(topics) == 0 {
		return nil, errors.New("configuring the kafka consumer: a group and at least one topic are required")
	}
	bounds, err := BoundFetches()
	if err != nil {
		return nil, err
	}
	base := append(bounds,
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topics...),
		kgo.DisableAutoCommit(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// Otherwise a partition with an error from its broker, beside healthy ones, has the client
		// ask again without a pause, thousands of times a second. The poller gets the error, and
		// pauses.
		kgo.KeepRetryableFetchErrors(),
		// A topic created after the consumer is found this soon.
		kgo.MetadataMinAge(metadataEvery),
	)
	return New(cfg, log, append(base, opts...)...)
}
