package look

import (
	"context"
	"fmt"
)

// IsMissing says whether a topic did not exist when a task for it was accepted, and does not exist
// since, as far as scanners know.
func (r Reader) IsMissing(ctx context.Context, topic string) (bool, error) {
	var n int64
	if err := r.h.Cold(ctx, "unknown_targets").Where("topic = ?", []byte(topic)).Count(&n).Error; err != nil {
		return false, fmt.Errorf("reading whether a topic is missing: %w", err)
	}
	return n > 0, nil
}
