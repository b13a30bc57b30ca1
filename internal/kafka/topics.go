package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TopicSpec describes a topic to create.
type TopicSpec struct {
	Name string `json:"name"`
	// Partitions is their number; 0 takes the broker's default.
	Partitions int32 `json:"partitions"`
	// Replication is the number of copies; 0 takes the broker's default.
	Replication int16 `json:"replication"`
	// Configs are the topic's settings, such as retention.ms.
	Configs map[string]string `json:"configs"`
}

// EnsureTopics creates the topics that do not exist and returns the names of
// those it created. A topic that exists is left as it is, also where it differs
// from its spec, and needs no right to create it. On an error the topics that were created are
// returned with it.
func EnsureTopics(ctx context.Context, client *kgo.Client, specs []TopicSpec) (created []string, err error) {
	admin := kadm.NewClient(client)
	for _, s := range specs {
		_, err := admin.CreateTopic(ctx, cmp.Or(s.Partitions, -1), cmp.Or(s.Replication, -1), configs(s.Configs), s.Name) // -1: the broker's default
		switch {
		case err == nil:
			created = append(created, s.Name)
		case errors.Is(err, kerr.TopicAlreadyExists):
		case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
			// Without the right to create topics, a broker does not say whether this one exists.
			if there, lookErr := TopicIDs(ctx, client, s.Name); lookErr != nil || len(there) == 0 {
				return created, fmt.Errorf("creating topic %q: %w: this user may not create it, and does not see that it exists: let somebody else create it and grant its rights, or grant Create", s.Name, err)
			}
		default:
			return created, fmt.Errorf("creating topic %q: %w", s.Name, err)
		}
	}
	return created, nil
}

func configs(m map[string]string) map[string]*string {
	out := make(map[string]*string, len(m))
	for k, v := range m {
		out[k] = &v
	}
	return out
}

// TopicIDs returns the ids that the cluster gave to topics. A topic that was
// deleted and created again has another id; one that does not exist, or that the
// broker asked has not heard of since it was created a moment ago, is left out.
// Topics are never created by asking. The answer is a broker's of this moment,
// not the client's memory, which may be seconds old.
func TopicIDs(ctx context.Context, client *kgo.Client, topics ...string) (map[string][16]byte, error) {
	found, err := describe(ctx, client, false, topics...)
	if err != nil {
		return nil, fmt.Errorf("reading topic ids: %w", err)
	}
	ids := make(map[string][16]byte, len(topics))
	for _, t := range found.Topics {
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case t.Topic == nil || errors.Is(err, kerr.UnknownTopicOrPartition):
		case err != nil:
			return nil, fmt.Errorf("reading the id of topic %q: %w", *t.Topic, err)
		default:
			ids[*t.Topic] = t.TopicID
		}
	}
	return ids, nil
}

// Missing returns those of some topics that do not exist, as two brokers say if there are two: one of them may not have
// heard of a topic yet. A topic that may not be described counts as one that exists.
func Missing(ctx context.Context, client *kgo.Client, topics ...string) ([]string, error) {
	ask := []kmsg.Requestor{client}
	if brokers := client.DiscoveredBrokers(); len(brokers) > 1 {
		ask = nil
		for _, i := range rand.Perm(len(brokers)) {
			ask = append(ask, brokers[i])
		}
	}
	var last error
	for left := min(len(ask), 2); left > 0 && len(topics) > 0; ask = ask[1:] {
		if len(ask) < left {
			return nil, fmt.Errorf("looking up %d topics: %w", len(topics), last)
		}
		bound, cancel := context.WithTimeout(ctx, time.Second)
		found, err := describe(bound, ask[0], false, topics...)
		cancel()
		if err != nil {
			last = err
			continue
		}
		topics, left = nil, left-1
		for _, t := range found.Topics {
			if t.Topic != nil && t.ErrorCode == kerr.UnknownTopicOrPartition.Code {
				topics = append(topics, *t.Topic)
			}
		}
	}
	return topics, nil
}

// LookUp asks a broker whether topics exist, and may have it create those that do not. The answer has
// nil for one that exists, and an error that is Permanent for one that does not, may not be seen, or
// never can exist. A topic is left out of which the broker cannot say at this moment.
func LookUp(ctx context.Context, client *kgo.Client, create bool, topics ...string) (map[string]error, error) {
	found, err := describe(ctx, client, create, topics...)
	if err != nil {
		return nil, fmt.Errorf("looking up %d topics: %w", len(topics), err)
	}
	out := make(map[string]error, len(topics))
	for _, t := range found.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); t.Topic != nil && (err == nil || Permanent(err)) {
			out[*t.Topic] = err
		}
	}
	return out, nil
}

// describe asks a broker about topics. kadm would return nothing of the others if one may not be described.
func describe(ctx context.Context, client kmsg.Requestor, create bool, topics ...string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = create
	req.Topics = []kmsg.MetadataRequestTopic{} // nil would mean all
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	return req.RequestWith(ctx, client)
}

// Partitions returns the partitions of topics. A topic that does not exist is left out, and so is one that cannot be looked up, which the
// error names.
func Partitions(ctx context.Context, client *kgo.Client, topics ...string) (map[string][]int32, error) {
	out := map[string][]int32{}
	found, err := describe(ctx, client, false, topics...)
	if err != nil {
		return out, fmt.Errorf("reading the partitions of %d topics: %w", len(topics), err)
	}
	for _, t := range found.Topics {
		switch no := kerr.ErrorForCode(t.ErrorCode); {
		case t.Topic == nil || errors.Is(no, kerr.UnknownTopicOrPartition):
		case no != nil:
			err = errors.Join(err, fmt.Errorf("reading the partitions of %s: %w", *t.Topic, no))
		default:
			for _, p := range t.Partitions {
				out[*t.Topic] = append(out[*t.Topic], p.Partition)
			}
			slices.Sort(out[*t.Topic])
		}
	}
	return out, err
}
