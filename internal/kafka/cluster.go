package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ClusterID returns the id that the cluster gave itself when it was made; "" where it has none.
func ClusterID(ctx context.Context, client *kgo.Client) (string, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // nil would mean all
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return "", fmt.Errorf("asking for the cluster's id: %w", err)
	}
	if resp.ClusterID == nil {
		return "", nil
	}
	return *resp.ClusterID, nil
}
