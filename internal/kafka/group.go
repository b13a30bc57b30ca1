package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// GroupMembers returns client ids and hosts of a group's members; a missing group has none.
func GroupMembers(ctx context.Context, client *kgo.Client, group string) ([]string, error) {
	groups, err := kadm.NewClient(client).DescribeGroups(ctx, group)
	if err == nil {
		err = groups[group].Err
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the members of group %s: %w", group, err)
	}
	var out []string
	for _, m := range groups[group].Members {
		out = append(out, m.ClientID+"@"+m.ClientHost)
	}
	return out, nil
}

// claimPrefix begins the metadata of an installation's committed offsets.
const claimPrefix = "notyet installation "

// ClaimGroup marks the commits under the context with the installation.
func ClaimGroup(ctx context.Context, installation string) context.Context {
	note := claimPrefix + installation
	return kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for t := range req.Topics {
			for p := range req.Topics[t].Partitions {
				req.Topics[t].Partitions[p].Metadata = &note
			}
		}
		return nil
	})
}

// GroupOwner returns the installation that has claimed a group's offsets of topics; "": none has.
// Of two, the one that committed the first partition.
func GroupOwner(ctx context.Context, client *kgo.Client, group string, topics ...string) (string, error) {
	found, err := kadm.NewClient(client).FetchOffsets(ctx, group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("asking whose group %s is: %w", group, err)
	}
	for _, o := range found.Sorted() {
		if owner, claimed := strings.CutPrefix(o.Metadata, claimPrefix); claimed && slices.Contains(topics, o.Topic) {
			return owner, nil
		}
	}
	return "", nil
}

// Committed is a group's offset of a partition, with what the committer noted beside it.
type Committed struct {
	At   int64
	Note string
}

// GroupOffsets returns what a group has committed of topics. Partitions without a commit and
// missing topics are left out. The topics are asked for by name: an answer for all topics lacks
// those that this user may not see, and does not say so. Any part without an answer is an error.
func GroupOffsets(ctx context.Context, client *kgo.Client, group string, topics ...string) (map[string]map[int32]Committed, error) {
	found, err := describe(ctx, client, false, topics...)
	if err != nil {
		return nil, fmt.Errorf("reading the partitions of %d topics: %w", len(topics), err)
	}
	asked := kmsg.NewOffsetFetchRequestGroup()
	asked.Group, asked.Topics = group, []kmsg.OffsetFetchRequestGroupTopic{} // nil would mean all
	for _, t := range found.Topics {
		err := kerr.ErrorForCode(t.ErrorCode)
		if t.Topic == nil || errors.Is(err, kerr.UnknownTopicOrPartition) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the partitions of %s: %w", *t.Topic, err)
		}
		topic := kmsg.NewOffsetFetchRequestGroupTopic()
		topic.Topic, topic.TopicID = *t.Topic, t.TopicID
		for _, p := range t.Partitions {
			topic.Partitions = append(topic.Partitions, p.Partition)
		}
		asked.Topics = append(asked.Topics, topic)
	}
	out := map[string]map[int32]Committed{}
	if len(asked.Topics) == 0 {
		return out, nil
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Groups = append(req.Groups, asked)
	answer, err := req.RequestWith(ctx, client)
	if err == nil && len(answer.Groups) != 1 {
		err = fmt.Errorf("the answer is about %d groups", len(answer.Groups))
	}
	if err == nil {
		err = kerr.ErrorForCode(answer.Groups[0].ErrorCode)
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking what group %s has committed: %w", group, err)
	}
	for _, t := range answer.Groups[0].Topics {
		of := map[int32]Committed{}
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("asking what group %s has committed of %s/%d: %w", group, t.Topic, p.Partition, err)
			}
			if p.Offset < 0 {
				continue
			}
			c := Committed{At: p.Offset}
			if p.Metadata != nil {
				c.Note = *p.Metadata
			}
			of[p.Partition] = c
		}
		out[t.Topic] = of
	}
	return out, nil
}
