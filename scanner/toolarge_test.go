package scanner

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
)

// A batch of zeros is small on the way and would fill the memory: it becomes a dead letter without a body, and what stands
// behind it is read, also by the next scanner.
func TestABatchThatIsTooLargeInMemoryIsPassed(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(ask("before", 0))
	big, err := kafka.New(f.kafka, zap.NewNop(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(100<<20),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.MaxDecompressBatchBytes(1<<30))
	require.NoError(t, err)
	defer big.Close()
	bomb := ask("bomb", 0)
	bomb.Value = make([]byte, 70<<20)
	require.NoError(t, big.ProduceSync(t.Context(), bomb).FirstErr())
	f.publish(ask("behind", 0))
	f.eventually("what stands behind it is stored", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 2 })
	letters, err := f.store.DeadLetters(t.Context(), store.DeadFilter{})
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Empty(t, letters[0].Body)
	require.Equal(t, store.KindRejected, letters[0].Kind)
	require.Equal(t, schemas.DefaultID(schemas.TopicIntake, 0, 1), letters[0].TaskID)
	require.Contains(t, letters[0].Reason, "larger than 64 MiB")
	s.end()

	f.start(f.store, Config{})
	f.publish(ask("after", 0))
	f.eventually("the next scanner goes on", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 3 })
	require.Equal(t, 1, f.count("SELECT COUNT(*) FROM dead_letters"))
}
