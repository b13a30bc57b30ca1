package kafka

import (
	"context"
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
//
// A client that forgets a topic begins with sequence 0 again, which is right for
// a log that knows no producer. After a second purge, the broker would take the
// next records for those that came between the two, and acknowledge them without
// storing them. So the failures that one purge answers cause no other: all of
// them were promised before the promise of a record that is produced after it.
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
		f.log.Warn("topic was deleted and created again", zap.String("topic", topic))
		client := f.client.Load()
		client.PurgeTopicsFromProducing(topic)
		nowhere := &kgo.Record{} // without a topic it fails in its turn
		client.Produce(context.Background(), nowhere, func(*kgo.Record, error) { f.forgetting.Delete(topic) })
	}()
}
