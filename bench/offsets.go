package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/notyet/notyet/internal/loop"
)

// offsets is a position in each partition of a topic.
type offsets map[int32]int64

// since counts the records from an earlier position on.
func (o offsets) since(earlier offsets) int {
	n := int64(0)
	for p, at := range o {
		n += at - earlier[p]
	}
	return int(n)
}

// ends returns the end of a topic. The broker may not know a new topic yet.
func (b *Bench) ends(ctx context.Context, topic string) (offsets, error) {
	var err error
	for range 50 {
		var listed kadm.ListedOffsets
		if listed, err = b.admin.ListEndOffsets(ctx, topic); err == nil {
			err = listed.Error()
		}
		if err == nil {
			out := offsets{}
			listed.Each(func(o kadm.ListedOffset) { out[o.Partition] = o.Offset })
			return out, nil
		}
		if !errors.Is(err, kerr.UnknownTopicOrPartition) && !errors.Is(err, kerr.LeaderNotAvailable) && !errors.Is(err, kerr.NotLeaderForPartition) {
			break
		}
		if err := loop.Rest(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("reading the end of topic %s: %w", topic, err)
}

// pollEvery is the pause between queries of a topic's end: short enough to show tenths of a second,
// and cheap for the broker.
const pollEvery = 50 * time.Millisecond

// ErrMissing means that deliveries stopped before all had arrived.
var ErrMissing = errors.New("deliveries are missing")

// await waits until n records have arrived after a position on the target topic. It waits as long
// as more arrive. If none has arrived for IdleTimeout, counted from lastDue, the error is
// ErrMissing.
func (b *Bench) await(ctx context.Context, from offsets, n int, lastDue time.Time) error {
	var got int
	for moved := time.Now(); ; {
		ends, err := b.ends(ctx, b.cfg.Topic)
		if err != nil {
			return err
		}
		now := ends.since(from)
		if now >= n {
			return nil
		}
		if now > got {
			got, moved = now, time.Now()
		}
		if moved.Before(lastDue) {
			moved = lastDue
		}
		if time.Since(moved) > b.cfg.IdleTimeout {
			return fmt.Errorf("%w: %d of %d came, and none for %s", ErrMissing, got, n, b.cfg.IdleTimeout)
		}
		if err := loop.Rest(ctx, pollEvery); err != nil {
			return err
		}
	}
}
