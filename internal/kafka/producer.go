package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

const (
	// metadataEvery is how soon the client asks again about a topic that is not
	// there (it never waits longer than this while records wait for one).
	metadataEvery = 250 * time.Millisecond
	// unknownTopicTries × metadataEvery = 4 s: a topic that was created a moment
	// ago reaches every broker's metadata within that, and a topic that does not
	// exist fails within about 5 s.
	unknownTopicTries = 16
	// soloMaxBytes is the largest record a solo producer offers to the broker.
	soloMaxBytes = 64 << 20
)

// NewProducer returns a client that produces with acks=all, idempotently, with
// retries without end or time limit: a record fails only for what Permanent
// calls permanent, for a context that ends before it was first sent, or when the
// client closes. Records with a key go where Kafka's default partitioner
// (murmur2) puts them, whatever client produced them before.
//
// Give Produce a context that lives as long as the service. The context of one
// record can fail all records of its partition.
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
	forget := &forgetRecreated{log: log}
	client, err := New(cfg, log, append(append(base, kgo.WithHooks(stamps{cfg.Now}, forget)), opts...)...)
	if err != nil {
		return nil, err
	}
	forget.client.Store(client)
	return client, nil
}

// GiveUpAfter bounds how long a producer tries with a record. One that it gives up may be in its topic all the same, or come to
// be there (see NotSent), and if it is produced once more, the broker does not know that it is the same. With it all go that wait
// for the same partition. What waits for other partitions is not concerned: the client takes a new epoch, and resends what it had
// sent under the old one as it was.
func GiveUpAfter(patience time.Duration) []kgo.Opt {
	return []kgo.Opt{kgo.WithHooks(&giveUp{patience: patience}), kgo.AllowIdempotentProduceCancellation()}
}

// NewSoloProducer returns a producer that has one record in hand at a time, in a
// batch of its own, so that an error is about that record and no other. Slow,
// and the place to ask again before believing a permanent error of a
// NewProducer client (see Permanent).
//
// It also offers the broker records up to 64 MiB. The other producer refuses
// what is over 1 MB before compression, though the broker's limit is on
// compressed batches: what the intake topic took, the target topic may take too.
func NewSoloProducer(cfg Config, log *zap.Logger, opts ...kgo.Opt) (*kgo.Client, error) {
	cfg.MaxBufferedRecords = 1
	cfg.Linger = 0
	return NewProducer(cfg, log, append([]kgo.Opt{kgo.ProducerBatchMaxBytes(soloMaxBytes)}, opts...)...)
}
