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
	got, err := b.grow(ctx, n, lastDue, pollEvery, func() (int, error) { return b.arrived(ctx, b.cfg.Topic, from) })
	if err == nil && got < n {
		err = fmt.Errorf("%w: %d of %d came, and none for %s", ErrMissing, got, n, b.cfg.IdleTimeout)
	}
	return err
}

// arrived counts the records of a topic from a position on.
func (b *Bench) arrived(ctx context.Context, topic string, from offsets) (int, error) {
	ends, err := b.ends(ctx, topic)
	return ends.since(from), err
}

// grow calls count again and again until it returns n or more. It waits as long as the count grows. If the count has
// not grown for IdleTimeout, counted from since, grow returns what there is.
func (b *Bench) grow(ctx context.Context, n int, since time.Time, every time.Duration, count func() (int, error)) (got int, err error) {
	moved := time.Now()
	if since.After(moved) {
		moved = since
	}
	for {
		now, err := count()
		if err != nil {
			return got, err
		}
		if at := time.Now(); now > got && at.After(moved) {
			moved = at
		}
		if got = max(got, now); got >= n || time.Since(moved) > b.cfg.IdleTimeout {
			return got, nil
		}
		if err := loop.Rest(ctx, every); err != nil {
			return got, err
		}
	}
}
