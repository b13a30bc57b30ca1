package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// maxBatchBytes is how large a batch of records may be in memory: more than what the largest allowed records need, and far
// below what a broker lets in, whose limit counts compressed bytes.
const maxBatchBytes = 64 << 20

// NewConsumerGroup returns a client that consumes topics as a member of group.
//
// Nothing is committed unless the caller does. A partition without a committed
// offset is read from its start, and so is one whose committed offset is gone:
// reading twice is harmless here, skipping is not. Records of aborted and of
// open transactions are never seen.
//
// What happens on a rebalance is the caller's to say, by kgo.OnPartitionsRevoked
// and its companions or kgo.BlockRebalanceOnPoll.
func NewConsumerGroup(cfg Config, group string, topics []string, log *zap.Logger, opts ...kgo.Opt) (*kgo.Client, error) {
	if group == "" || len(topics) == 0 {
		return nil, errors.New("configuring the kafka consumer: a group and at least one topic are required")
	}
	base := []kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topics...),
		kgo.DisableAutoCommit(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// What is compressed is small on the way and large in memory: these bound what one fetch can bring. A batch beyond
		// the bound stops its partition with kgo.ErrDecompressTooLarge, until SetOffsets moves on behind it.
		kgo.MaxDecompressBatchBytes(maxBatchBytes),
		kgo.FetchMaxBytes(8 << 20),
		kgo.FetchMaxPartitionBytes(1 << 20),
		// A topic that is created after the consumer is found this soon.
		kgo.MetadataMinAge(metadataEvery),
	}
	return New(cfg, log, append(base, opts...)...)
}
