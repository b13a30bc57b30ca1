package scanner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store/intake"
)

// CatchUp runs the scanner until the database has the present contents of all topics. Then the
// scanner stops. Now and then, CatchUp calls progress with the number of offsets left.
func (s *Scanner) CatchUp(ctx context.Context, progress func(left int64)) error {
	ends, err := kafka.Ends(ctx, s.asks, s.cfg.Read...)
	for topic, parts := range s.cfg.Until {
		for part, to := range parts {
			if end, there := ends[topic][part]; there {
				ends.Set(topic, part, min(end, to))
			}
		}
	}
	left := int64(0)
	if err == nil {
		err = s.sameLogs(ctx)
	}
	if err == nil {
		_, left, err = s.left(ctx, ends)
	}
	if err != nil {
		s.leaveGroup()
		s.results.Close(0)
		s.asks.Close()
		return fmt.Errorf("catching up: %w", err)
	}
	if left > 0 {
		progress(left)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	err = s.awaitEnds(ctx, ends, progress, ran)
	stop()
	if err != nil {
		return fmt.Errorf("catching up: %w", err)
	}
	return <-ran
}

// sameLogs fails if a log is not the one that is stored, also where nothing is to be read.
func (s *Scanner) sameLogs(ctx context.Context) error {
	all, err := (&Operator{Kafka: s.asks, Store: s.deps.Store, Topics: s.cfg.Read}).Partitions(ctx)
	for _, p := range all {
		if p.State == StateDiverged {
			err = errors.Join(err, fmt.Errorf("%s/%d is not read any further: %s; run `notyet intake restart`", p.Topic, p.Partition, p.Detail))
		}
	}
	return err
}

func (s *Scanner) awaitEnds(ctx context.Context, ends kafka.Offsets, progress func(int64), ran chan error) error {
	const (
		look  = 100 * time.Millisecond
		quiet = 30 // looks without progress, after which the ends of the partitions are read
	)
	tick := time.NewTicker(look)
	defer tick.Stop()
	for before, still := int64(-1), 0; ; still++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ran:
			ran <- err
			return err
		case <-tick.C:
		}
		if err := s.parts.halted.ready(); err != nil {
			return err
		}
		stored, left, err := s.left(ctx, ends)
		switch {
		case err != nil:
			return err
		case left == 0:
			return nil
		case left != before:
			before, still = left, 0
			progress(left)
		case still >= quiet:
			// The last offsets may be markers of transactions, or records of an aborted one.
			still = 0
			more, err := s.more(ctx, stored, ends, left)
			if err != nil || !more {
				return err
			}
		}
	}
}

// more tells whether Kafka still has unstored records. It also returns true when the scanner stores
// some meanwhile: the scanner passes unreadable batches, where a plain reader would wait for ever.
func (s *Scanner) more(ctx context.Context, stored, ends kafka.Offsets, left int64) (more bool, err error) {
	scanning, stop := context.WithCancel(ctx)
	defer stop()
	go loop.Every(scanning, time.Second, func(ctx context.Context) {
		if _, now, err := s.left(ctx, ends); err == nil && now != left {
			stop()
		}
	})
	err = kafka.Scan(scanning, s.deps.Kafka, stored, ends, s.deps.Log, func(*kgo.Record) bool { more = true; return false })
	if scanning.Err() != nil && ctx.Err() == nil {
		return true, nil
	}
	return more, err
}

// kept returns Kafka's offsets of the read partitions.
func (s *Scanner) kept(ctx context.Context) (map[intake.Place]intake.Extent, error) {
	starts, err := kafka.Starts(ctx, s.asks, s.cfg.Read...)
	if err != nil {
		return nil, err
	}
	ends, err := kafka.HighWatermarks(ctx, s.asks, s.cfg.Read...)
	if err != nil {
		return nil, err
	}
	out := map[intake.Place]intake.Extent{}
	for topic, parts := range ends {
		for part, end := range parts {
			out[intake.Place{Topic: topic, Partition: part}] = intake.Extent{From: starts[topic][part], To: end}
		}
	}
	return out, nil
}

// left returns how far each partition is stored, and how many offsets are left until ends.
func (s *Scanner) left(ctx context.Context, ends kafka.Offsets) (stored kafka.Offsets, left int64, err error) {
	ids, err := kafka.TopicIDs(ctx, s.asks, s.cfg.Read...)
	if err != nil {
		return nil, 0, err
	}
	starts, err := kafka.Starts(ctx, s.asks, s.cfg.Read...)
	if err != nil {
		return nil, 0, err
	}
	sources, err := intake.New(s.deps.Store).Sources(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, src := range intake.InUse(sources) {
		if first, ok := starts[src.Topic][src.Partition]; ok && src.TopicID == ids[src.Topic] {
			starts[src.Topic][src.Partition] = max(first, src.Next)
		}
	}
	for topic, parts := range ends {
		for part, end := range parts {
			left += max(end-starts[topic][part], 0)
		}
	}
	return starts, left, nil
}
