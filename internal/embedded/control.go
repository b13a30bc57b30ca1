package embedded

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// control looks at a request before the broker does; handled=false passes it on.
type control = func(kmsg.Request) (resp kmsg.Response, err error, handled bool)

// createAsked creates the topics that a metadata request asks for, before the
// broker answers it.
//
// kfake can do that itself, but keeps the list of topics in a file that it
// writes only for topics that are created explicitly: after kill -9, a topic of
// its own making is gone with all its records. Created from here, the topic is
// in the file before any client hears of it.
func (k *Kafka) createAsked(cfg Config, log *zap.Logger) control {
	return func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req, ok := kreq.(*kmsg.MetadataRequest)
		if !ok || !req.AllowAutoTopicCreation && !cfg.CreateOnLookup {
			return nil, nil, false
		}
		for _, t := range req.Topics {
			// Asked for by id, or internal: never created.
			if t.Topic == nil || *t.Topic == "" || strings.HasPrefix(*t.Topic, "__") {
				continue
			}
			switch err := k.cluster.CreateTopic(*t.Topic, -1, nil); {
			case err == nil:
				log.Info("topic created on first use", zap.String("topic", *t.Topic), zap.Int("partitions", cfg.Partitions))
			case !errors.Is(err, kerr.TopicAlreadyExists):
				// The client is told that there is no such topic.
				log.Warn("creating a topic on first use failed", zap.String("topic", *t.Topic), zap.Error(err))
			}
		}
		return nil, nil, false
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendTime makes the broker stamp records with the time at which it appended
// them, as message.timestamp.type=LogAppendTime does on a real one. kfake knows
// that setting but heeds only the flag that the producer put into the batch, so
// the flag is put there.
func appendTime(kreq kmsg.Request) (kmsg.Response, error, bool) {
	if req, ok := kreq.(*kmsg.ProduceRequest); ok {
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				flagAppendTime(p.Records)
			}
		}
	}
	return nil, nil, false
}

// flagAppendTime sets bit 3 of the attributes of a version 2 batch:
//
//	0 base offset i64 | 8 length i32 | 12 leader epoch i32 | 16 magic i8 | 17 crc u32 | 21 attributes i16 | …
//
// The checksum covers everything from the attributes on. A batch that does not
// look right is left for the broker to refuse.
func flagAppendTime(b []byte) {
	const header = 61
	if len(b) < header || b[16] != 2 || int64(binary.BigEndian.Uint32(b[8:]))+12 != int64(len(b)) {
		return
	}
	if binary.BigEndian.Uint32(b[17:]) != crc32.Checksum(b[21:], castagnoli) {
		return
	}
	b[22] |= 1 << 3
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
}
