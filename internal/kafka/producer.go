package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

const (
	// metadataEvery is how soon the client asks again about a missing topic, also the longest wait
	// while records wait for one.
	metadataEvery = 250 * time.Millisecond
	// unknownTopicTries × metadataEvery = 4 s: within that a new topic reaches every broker's
	// metadata, and a missing topic fails within about 5 s.
	unknownTopicTries = 16
	// soloMaxBytes is the largest record a solo producer offers to the broker.
	soloMaxBytes = 64 << 20
)

// NewProducer returns a client that produces with acks=all, idempotently, with retries without end
// or time limit. A record fails only by a Permanent error, a context that ends before the first
// sending, or the client's close. Records with a key go where Kafka's default partitioner (murmur2)
// puts them, like those of any other client.
//
// Give Produce a context that lives as long as the service. The context of one record can fail all
// records of its partition.
func NewProducer(cfg Config, log *zap.Logger, opts ...kgo.Opt) (*kgo.Client, error) {
	cfg = cfg.withDefaults()
	base := []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(cfg.Linger),
		kgo.MaxBufferedRecords(cfg.MaxBufferedRecords),
		kgo.MaxBufferedBytes(cfg.MaxBufferedBytes),
		kgo.UnknownTopicRetries(unknownTopicTries),
		kgo.MetadataMinAge(metadataEvery),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
	}
	return New(cfg, log, append(append(base, kgo.WithHooks(stamps{cfg.Now})), opts...)...)
}

// GiveUpAfter bounds how long a producer tries with a record. A given up record may be in its topic
// all the same, or arrive later (see NotSent). The broker does not recognise a record produced once
// more. All waiting records of the same partition are given up too. Other partitions are not
// concerned: the client takes a new epoch, and resends unchanged what it had sent under the old
// one.
func GiveUpAfter(patience time.Duration) []kgo.Opt {
	return []kgo.Opt{kgo.WithHooks(&giveUp{patience: patience}), kgo.AllowIdempotentProduceCancellation()}
}

// NewSoloProducer returns a producer with one record in hand at a time, in a batch of its own, so
// that an error is about that record and no other. Slow, and the place to ask again before
// believing a permanent error of a NewProducer client (see Permanent).
//
// It also offers the broker records up to 64 MiB. The other producer refuses more than 1 MB before
// compression, though the broker's limit is on compressed batches: what the intake topic took, the
// target topic may take too.
func NewSoloProducer(cfg Config, log *zap.Logger, opts ...kgo.Opt) (*kgo.Client, error) {
	cfg.MaxBufferedRecords = 1
	cfg.Linger = 0
	return NewProducer(cfg, log, append([]kgo.Opt{kgo.ProducerBatchMaxBytes(soloMaxBytes)}, opts...)...)
}
