package kafka

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// forgetRecreated makes a producer forget a topic that is not the one it knew.
//
// Clients produce to a topic's id. After a topic was deleted and created again,
// a client that knew the old one fails every record with UNKNOWN_TOPIC_ID until
// it is told to forget the name; left alone, it would do so for ever. What it
// held for the topic fails, with an error that is not Permanent, and is tried
// again like anything else that the world did.
type forgetRecreated struct {
	log        *zap.Logger
	client     atomic.Pointer[kgo.Client] // set once the client exists
	forgetting sync.Map                   // topics that are being forgotten
}

// OnProduceRecordUnbuffered implements kgo.HookProduceRecordUnbuffered. It runs
// where a promise runs, where the client must not be called.
func (f *forgetRecreated) OnProduceRecordUnbuffered(r *kgo.Record, err error) {
	if err == nil || !errors.Is(err, kerr.UnknownTopicID) {
		return
	}
	topic := r.Topic
	if _, underWay := f.forgetting.LoadOrStore(topic, nil); underWay {
		return
	}
	go func() {
		defer f.forgetting.Delete(topic)
		f.log.Warn("topic was deleted and created again", zap.String("topic", topic))
		f.client.Load().PurgeTopicsFromProducing(topic)
	}()
}
