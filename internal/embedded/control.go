package embedded

import (
	"errors"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// control handles a request before the broker does; handled=false passes the request on.
type control = func(kmsg.Request) (resp kmsg.Response, err error, handled bool)

// createAsked creates the topics of a metadata request before the broker answers.
//
// kfake alone saves its list of topics only when a topic is created explicitly. After kill -9 a
// topic created by kfake itself is gone with all records. A topic created here is in the file
// before any client hears of it.
func (k *Kafka) createAsked(cfg Config, log *zap.Logger) control {
	return func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req, ok := kreq.(*kmsg.MetadataRequest)
		if !ok || !req.AllowAutoTopicCreation && !cfg.CreateOnLookup {
			return nil, nil, false
		}
		for _, t := range req.Topics {
			// Looked up by id, or internal: never created.
			if t.Topic == nil || *t.Topic == "" || strings.HasPrefix(*t.Topic, "__") {
				continue
			}
			switch err := k.cluster.CreateTopic(*t.Topic, -1, nil); {
			case err == nil:
				log.Info("topic created on first use", zap.String("topic", *t.Topic), zap.Int("partitions", cfg.Partitions))
			case !errors.Is(err, kerr.TopicAlreadyExists):
				log.Warn("creating a topic on first use failed", zap.String("topic", *t.Topic), zap.Error(err))
			}
		}
		return nil, nil, false
	}
}
