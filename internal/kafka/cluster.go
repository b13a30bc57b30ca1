package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

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
