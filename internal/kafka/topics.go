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
	// Partitions of the topic; 0 takes the broker's default.
	Partitions int32 `json:"partitions"`
	// Replication is the number of copies; 0 takes the broker's default.
	Replication int16 `json:"replication"`
	// Configs are the topic's settings, such as retention.ms.
	Configs map[string]string `json:"configs"`
}

// EnsureTopics creates the missing topics and returns their names. An existing topic stays as it
// is, even against its spec, and needs no right of creation. With an error, the names created so
// far are returned too.
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

// TopicIDs returns the cluster's ids of topics. A topic deleted and created again has another id; a
// missing topic, or one too new for the asked broker, is left out. Asking never creates topics. The
// answer is a broker's of this moment, not the client's memory of maybe seconds ago.
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

// LookUp says which topics exist, and may have missing ones created. The answer has nil for an
// existing topic, and a Permanent error for one that is missing, hidden or impossible. A topic is
// missing if two brokers say so, where there are two: one of them may not have heard of it yet. A
// topic is left out if that is unclear at this moment. With an error the answer has what is clear
// all the same.
func LookUp(ctx context.Context, client *kgo.Client, create bool, topics ...string) (map[string]error, error) {
	ask, each := []kmsg.Requestor{client}, time.Minute
	if brokers := client.DiscoveredBrokers(); len(brokers) > 1 {
		ask, each = nil, time.Second
		for _, i := range rand.Perm(len(brokers)) {
			ask = append(ask, brokers[i])
		}
	}
	out := make(map[string]error, len(topics))
	var last error
	for left := min(len(ask), 2); left > 0 && len(topics) > 0; ask = ask[1:] {
		for _, name := range topics {
			delete(out, name)
		}
		if len(ask) == 0 {
			return out, fmt.Errorf("looking up %d topics: %w", len(topics), last)
		}
		bound, cancel := context.WithTimeout(ctx, each)
		found, err := describe(bound, ask[0], create, topics...)
		cancel()
		if err != nil {
			last = err
			continue
		}
		topics, left = nil, left-1
		for _, t := range found.Topics {
			err := kerr.ErrorForCode(t.ErrorCode)
			if t.Topic == nil || err != nil && !Permanent(err) {
				continue
			}
			if out[*t.Topic] = err; errors.Is(err, kerr.UnknownTopicOrPartition) {
				topics = append(topics, *t.Topic)
			}
		}
	}
	return out, nil
}

// describe asks a broker about topics. kadm returns nothing at all if one may not be described.
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

// Partitions returns the partitions of topics. Left out are missing topics, and topics without an
// answer, which the error names.
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

// ClusterID returns the cluster's own id, from the time of its making; "" where there is none.
func ClusterID(ctx context.Context, client *kgo.Client) (string, error) {
	resp, err := describe(ctx, client, false)
	if err != nil {
		return "", fmt.Errorf("asking for the cluster's id: %w", err)
	}
	if resp.ClusterID == nil {
		return "", nil
	}
	return *resp.ClusterID, nil
}
