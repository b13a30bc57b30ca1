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
