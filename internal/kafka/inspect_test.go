package kafka_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/test/recordtest"
)

// produceRaw produces a batch of records that say to be so far behind the batch's first offset.
func produceRaw(t *testing.T, client *kgo.Client, topic string, deltas ...int64) error {
	var records []byte
	for _, delta := range deltas {
		records = append(records, recordtest.EncodedAt(kgo.StringRecord("v"), delta)...)
	}
	return recordtest.ProduceBatch(t.Context(), client, topic, 0, kgo.CodecNone, len(deltas), records)
}

// Batches that lie are found among those that do not, on a real broker too, when NOTYET_KAFKA_BROKERS names one.
func TestInspectFindsTheBatchThatLies(t *testing.T) {
	_, fake := startKafka(t)
	on := map[string]kafka.Config{"kfake": fake}
	if brokers := os.Getenv("NOTYET_KAFKA_BROKERS"); brokers != "" {
		on["a real broker"] = kafka.Config{Brokers: strings.Split(brokers, ",")}
	}
	for name, cfg := range on {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, kafka.NewProducer, cfg)
			topic := fmt.Sprintf("test-%x", rand.Uint64())
			_, err := kafka.EnsureTopics(t.Context(), client, []kafka.TopicSpec{{Name: topic, Partitions: 1, Replication: 1}})
			require.NoError(t, err)
			require.Eventually(t, func() bool { return produce(t, client, topic, []byte("0")) == nil }, patience, 50*time.Millisecond)
			require.NoError(t, produce(t, client, topic, []byte("1")))
			require.NoError(t, produceRaw(t, client, topic, 0, 1)) // 2, 3: honest
			require.NoError(t, produceRaw(t, client, topic, 0, 7)) // 4, 5
			require.NoError(t, produceRaw(t, client, topic, 0, 0)) // 6, 7
			require.NoError(t, produce(t, client, topic, []byte("8")))
			tx := newClient(t, kafka.NewProducer, cfg, kgo.TransactionalID(topic))
			require.NoError(t, tx.BeginTransaction())
			require.NoError(t, produce(t, tx, topic, []byte("9")))
			require.NoError(t, tx.EndTransaction(t.Context(), kgo.TryAbort))
			require.Eventually(t, func() bool { // a broker writes the marker, 10, later than it answers
				ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topic)
				end, there := ends.Lookup(topic, 0)
				return err == nil && there && end.Offset == 11
			}, patience, 10*time.Millisecond)
			require.NoError(t, produce(t, client, topic, []byte("11")))

			decompressor := kgo.DefaultDecompressor()
			for _, c := range []struct {
				gaps []kafka.Gap
				bad  int64
				next int64 // behind what is bad, or up to where it was looked
			}{
				{nil, 0, 0},
				{[]kafka.Gap{{From: 0, To: 4}}, 0, 4}, // and not at the batch that stands there
				{[]kafka.Gap{{From: 2, To: 3}, {From: 5, To: 6}}, 4, 8},
				{[]kafka.Gap{{From: 5, To: 11}}, 4, 8},
				{[]kafka.Gap{{From: 7, To: 8}}, 6, 8},
				{[]kafka.Gap{{From: 6, To: 1 << 40}}, 6, 8},
				{[]kafka.Gap{{From: 9, To: 11}}, 0, 11},
			} {
				found, err := kafka.Inspect(t.Context(), client, decompressor, topic, 0, c.gaps)
				require.NoError(t, err, "%v", c.gaps)
				bad := found.Bad
				if c.bad == 0 {
					require.Nil(t, bad, "%v", c.gaps)
					require.Equal(t, c.next, found.To, "%v", c.gaps)
					continue
				}
				require.NotNil(t, bad, "%v", c.gaps)
				require.Equal(t, []int64{c.bad, c.next}, []int64{bad.First, bad.Next}, "%v", c.gaps)
			}
			for at, first := range map[int64]int64{0: -1, 3: -1, 4: 4, 5: 4, 7: 6, 8: -1} {
				bad, err := kafka.InspectAt(t.Context(), client, decompressor, topic, 0, at)
				require.NoError(t, err)
				require.Equal(t, first >= 0, bad != nil, "offset %d", at)
				if bad != nil {
					require.Equal(t, []int64{first, first + 2}, []int64{bad.First, bad.Next})
				}
			}
			_, err = kafka.Inspect(t.Context(), client, decompressor, topic, 0, []kafka.Gap{{From: 9, To: 20}})
			require.ErrorContains(t, err, "nothing there", "what nobody can have read")
			ids, err := kafka.TopicIDs(t.Context(), client, topic)
			require.NoError(t, err)
			for at, value := range map[int64]string{0: "0", 8: "8", 9: "9", 11: "11"} { // 9 was aborted
				r, err := kafka.RecordAt(t.Context(), client, decompressor, topic, ids[topic], 0, at)
				require.NoError(t, err)
				require.Equal(t, []any{at, value}, []any{r.Offset, string(r.Value)})
			}
			marker, err := kafka.RecordAt(t.Context(), client, decompressor, topic, ids[topic], 0, 10)
			require.NoError(t, err)
			require.True(t, marker.Attrs.IsControl())
			_, err = kafka.RecordAt(t.Context(), client, decompressor, topic, ids[topic], 0, 12)
			require.ErrorContains(t, err, "nothing there")
			_, err = kafka.RecordAt(t.Context(), client, decompressor, topic, ids[topic], 0, 20)
			require.ErrorIs(t, err, kerr.OffsetOutOfRange)
			_, err = kafka.RecordAt(t.Context(), client, decompressor, topic, [16]byte{1}, 0, 8)
			require.Error(t, err, "of an earlier topic of that name")
			_, err = kadm.NewClient(client).DeleteRecords(t.Context(), kadm.Offsets{topic: {0: {Topic: topic, At: 6}}})
			require.NoError(t, err)
			found, err := kafka.Inspect(t.Context(), client, decompressor, topic, 0, []kafka.Gap{{From: 0, To: 6}})
			require.NoError(t, err)
			require.EqualValues(t, 6, found.Start, "the log begins there")
			require.Nil(t, found.Bad, "what was deleted is passed")
			_, err = kafka.RecordAt(t.Context(), client, decompressor, topic, ids[topic], 0, 3)
			require.ErrorIs(t, err, kerr.OffsetOutOfRange)
			_, err = kadm.NewClient(client).DeleteTopic(t.Context(), topic)
			require.NoError(t, err)
		})
	}
}
