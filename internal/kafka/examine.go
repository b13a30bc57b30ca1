package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topic is Kafka's account of one topic.
type Topic struct {
	// Err is why the topic cannot be looked at, such as UnknownTopicOrPartition or
	// TopicAuthorizationFailed; see TopicMissing.
	Err        error
	Partitions int
	// Replicas and InSync are the fewest of a partition.
	Replicas, InSync int
	// May are this client's permitted operations, in lower case: read, write, describe, ….
	May []string
	// Configs are the topic's settings, inherited ones included; nil: see ConfigsErr.
	Configs    map[string]string
	ConfigsErr error
	// Newest is the newest timestamp of a record; the zero time: none is known.
	Newest time.Time
}

// Allowed reports whether this client may do an operation on the topic.
func (t Topic) Allowed(operation string) bool { return slices.Contains(t.May, operation) }

// TopicMissing reports whether a topic does not exist.
func (t Topic) TopicMissing() bool { return errors.Is(t.Err, kerr.UnknownTopicOrPartition) }

// ExamineTopics looks at topics. Nothing is changed or created.
func ExamineTopics(ctx context.Context, client *kgo.Client, names ...string) (map[string]Topic, error) {
	admin := kadm.NewClient(client)
	out := make(map[string]Topic, len(names))
	for _, name := range names { // by itself: one that may not be described fails the whole request
		meta, err := admin.Metadata(kadm.WithAuthorizedOps(ctx), name)
		if err != nil {
			if _, refused := errors.AsType[*kadm.AuthError](err); !refused {
				return nil, fmt.Errorf("looking at topic %s: %w", name, err)
			}
			out[name] = Topic{Err: err}
			continue
		}
		out[name] = topicOf(meta.Topics[name])
	}
	there := make([]string, 0, len(out))
	for name, t := range out {
		if t.Err == nil {
			there = append(there, name)
		}
	}
	if len(there) == 0 {
		return out, nil
	}
	configs, err := admin.DescribeTopicConfigs(ctx, there...)
	newest, _ := admin.ListMaxTimestampOffsets(ctx, there...) // old brokers do not know it
	for _, name := range there {
		t := out[name]
		t.ConfigsErr = err
		if one, failed := configs.On(name, nil); err == nil && failed == nil && one.Err == nil {
			t.Configs = map[string]string{}
			for _, c := range one.Configs {
				t.Configs[c.Key] = c.MaybeValue()
			}
		} else if err == nil {
			t.ConfigsErr = errors.Join(failed, one.Err)
		}
		for _, o := range newest[name] {
			if o.Err == nil && o.Timestamp > t.Newest.UnixMilli() {
				t.Newest = time.UnixMilli(o.Timestamp)
			}
		}
		out[name] = t
	}
	return out, nil
}

func topicOf(d kadm.TopicDetail) Topic {
	t := Topic{Err: d.Err, Partitions: len(d.Partitions)}
	for _, op := range d.AuthorizedOperations {
		t.May = append(t.May, strings.ToLower(op.String()))
	}
	for i, p := range d.Partitions.Sorted() {
		if i == 0 || len(p.Replicas) < t.Replicas {
			t.Replicas = len(p.Replicas)
		}
		if i == 0 || len(p.ISR) < t.InSync {
			t.InSync = len(p.ISR)
		}
	}
	return t
}

// MayJoin reports whether this client may read for a consumer group, by the heartbeat of a
// nonexistent member, without any effect. The group need not exist.
func MayJoin(ctx context.Context, client *kgo.Client, group string) (bool, error) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID = group, -1, "nobody"
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return false, nil
	case err == nil, errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.GroupIDNotFound), errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.RebalanceInProgress):
		return true, nil
	}
	return false, fmt.Errorf("looking at group %s: %w", group, err)
}

// Versions returns the brokers' versions, as far as the protocol shows them, each once.
func Versions(ctx context.Context, client *kgo.Client) ([]string, error) {
	all, err := kadm.NewClient(client).ApiVersions(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking the brokers for their versions: %w", err)
	}
	var out []string
	for _, v := range all.Sorted() {
		if v.Err == nil {
			out = append(out, v.VersionGuess())
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
