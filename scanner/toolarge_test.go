package scanner

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/test/lettertest"
)

// A batch of zeros is small on the way and would fill the memory: it becomes a dead letter without a body, and what stands
// behind it is read, also by the next scanner.
func TestABatchThatIsTooLargeInMemoryIsPassed(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(ask("before", 0))
	f.publishTooLarge(0)
	f.publish(ask("behind", 0))
	f.eventually("what stands behind it is stored", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 2 })
	letters, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{})
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Empty(t, letters[0].Body)
	require.Equal(t, schemas.KindRejected, letters[0].Kind)
	require.Equal(t, schemas.DefaultID(schemas.TopicIntake, 0, 1), letters[0].TaskID)
	require.Contains(t, letters[0].Reason, "larger than 64 MiB")
	s.end()

	f.start(f.store, Config{})
	f.publish(ask("after", 0))
	f.eventually("the next scanner goes on", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 3 })
	require.Equal(t, 1, f.count("SELECT COUNT(*) FROM dead_letters"))
}

// The client says once that a batch is too large, and forgets it when another partition is set back before the next poll.
func TestABatchThatIsTooLargeIsNotForgotten(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(ask("first", 1))
	f.eventually("the scanner is at work", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 1 })

	s.worker.queue.mu.Lock() // the poller waits here with what it has polled
	f.publish(ask("second", 1))
	f.eventually("it has been polled", func() bool {
		s.parts.mu.Lock()
		defer s.parts.mu.Unlock()
		return s.parts.readings[partitionKey{schemas.TopicIntake, 1}].polled == 2
	})
	f.publishTooLarge(0)
	f.eventually("the client has met the batch", func() bool { return s.poller.mover.TooLarge() > 0 })
	s.parts.mu.Lock()
	other := s.parts.readings[partitionKey{schemas.TopicIntake, 1}]
	s.parts.mu.Unlock()
	s.parts.setBack(other, 1)
	s.worker.queue.mu.Unlock()

	f.publish(ask("behind", 0))
	f.eventually("what stands behind it is stored", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 3 })
	require.Equal(t, 1, f.count("SELECT COUNT(*) FROM dead_letters"))
}

// Kafka takes a gzip stream with bytes behind it, which the library cannot decompress.
func TestABatchThatIsDamagedIsPassed(t *testing.T) {
	f := newFixture(t)
	f.publish(ask("before", 0))
	spoiled, err := kafka.New(f.kafka, zap.NewNop(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.GzipCompression()), kgo.WithCompressor(spoiling{}))
	require.NoError(t, err)
	defer spoiled.Close()
	require.NoError(t, spoiled.ProduceSync(t.Context(), ask("one", 0), ask("two", 0)).FirstErr())
	f.publish(ask("behind", 0))
	f.start(f.store, Config{})
	f.eventually("what stands behind it is stored", func() bool { return f.tasks() == 2 && f.sourceOf(0).Next == 4 })
	letters, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{})
	require.NoError(t, err)
	require.Len(t, letters, 1, "one for the batch")
	require.Contains(t, letters[0].Reason, "the offsets 1 to 2 ")
}

// spoiling compresses, and adds what does not belong there.
type spoiling struct{}

func (spoiling) Compress(dst *bytes.Buffer, src []byte, _ ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	gzip, err := kgo.DefaultCompressor(kgo.GzipCompression())
	if err != nil {
		panic(err)
	}
	out, codec := gzip.Compress(dst, src)
	return append(bytes.Clone(out), "more"...), codec
}

// publishTooLarge publishes a batch that is small on the way and too large in memory.
func (f *fixture) publishTooLarge(partition int32) {
	f.Helper()
	big, err := kafka.New(f.kafka, zap.NewNop(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(100<<20),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.MaxDecompressBatchBytes(1<<30))
	require.NoError(f, err)
	defer big.Close()
	bomb := ask("bomb", partition)
	bomb.Value = make([]byte, 70<<20)
	require.NoError(f, big.ProduceSync(f.Context(), bomb).FirstErr())
}
