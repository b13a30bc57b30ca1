package recordtest

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ProduceBatch produces one batch whose records are these bytes, compressed with the codec already. Kafka compares the batch's
// length, checksum and count, and nothing else.
func ProduceBatch(ctx context.Context, client *kgo.Client, topic string, partition int32, codec kgo.CompressionCodecType, count int, records []byte) error {
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, Attributes: int16(codec), LastOffsetDelta: int32(count - 1), FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(count), Records: records}
	batch.Length = int32(49 + len(batch.Records))
	raw := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	topics, err := kadm.NewClient(client).ListTopics(ctx, topic)
	if err != nil {
		return err
	}
	req, rt, rp := kmsg.NewPtrProduceRequest(), kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, raw
	rt.Topic, rt.TopicID, rt.Partitions = topic, topics[topic].ID, append(rt.Partitions, rp)
	req.Acks, req.TimeoutMillis, req.Topics = -1, 5000, append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// EncodedAt is a record as a batch has it, that says to be so far behind the batch's first offset.
func EncodedAt(r *kgo.Record, delta int64) []byte {
	body := append(Head(r, delta, len(r.Value)), r.Value...)
	body = append(body, Tail(r)...)
	return append(binary.AppendVarint(nil, int64(len(body))), body...)
}

// Head is what stands between a record's length and its value of n bytes, Tail what stands behind its value.
func Head(r *kgo.Record, delta int64, n int) []byte {
	body := field(binary.AppendVarint([]byte{0, 0}, delta), r.Key)
	return binary.AppendVarint(body, int64(n))
}

func Tail(r *kgo.Record) []byte {
	body := binary.AppendVarint(nil, int64(len(r.Headers)))
	for _, h := range r.Headers {
		body = field(field(body, []byte(h.Key)), h.Value)
	}
	return body
}

func field(b, v []byte) []byte { return append(binary.AppendVarint(b, int64(len(v))), v...) }
