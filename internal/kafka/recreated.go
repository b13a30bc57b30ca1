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

// forgetRecreated makes a producer forget a topic that was created anew.
//
// Clients produce to a topic's id. After a topic was deleted and created again, a client with the
// old id would fail every record with UNKNOWN_TOPIC_ID for ever, unless told to forget the name.
// The records held for the topic fail, with an error that is not Permanent, and are tried again
// like after any fault of the world.
//
// A client that forgets a topic begins with sequence 0 again, as right for a log that knows no
// producer. After a second purge, the broker would take the next records for those between the two
// purges, and acknowledge without storing. So the failures answered by one purge cause no other:
// all of them were promised before the promise of a later record.
type forgetRecreated struct {
	log        *zap.Logger
	client     atomic.Pointer[kgo.Client] // set once the client exists
	forgetting sync.Map                   // topics that are being forgotten
}

// OnProduceRecordUnbuffered implements kgo.HookProduceRecordUnbuffered. It runs where a promise
// runs, where the client must not be called.
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
