package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// GroupMembers returns the client ids and hosts of a consumer group's members; a group that is not there has none.
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
