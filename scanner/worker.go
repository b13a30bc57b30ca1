package scanner

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/store"
)

// worker stores what the queue holds, batch after batch.
type worker struct{ s *Scanner }

// run ends when the queue is closed and empty; what is at hand when ctx ends is still stored, with a few tries.
func (w worker) run(ctx, work context.Context) error {
	for {
		runs := w.s.queue.take(w.s.cfg.BatchRecords)
		if len(runs) == 0 {
			return nil
		}
		bound, cancel := context.WithCancel(work)
		stop := context.AfterFunc(ctx, func() { time.AfterFunc(5*time.Second, cancel) })
		err := w.store(bound, slices.Clone(runs))
		stop()
		cancel()
		w.s.queue.done(runs)
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// store puts runs into the database, in transactions of at most BatchRecords, until all are in.
func (w worker) store(ctx context.Context, runs [][]*kgo.Record) error {
	runs = slices.DeleteFunc(runs, w.s.parts.isOutdated)
	for len(runs) > 0 {
		batch, covered, rest, err := w.assemble(ctx, runs)
		if err != nil {
			return err
		}
		if len(covered) == 0 {
			runs = rest // all of this batch is stored already, and of the rest maybe not
			continue
		}
		began := time.Now()
		var done store.Applied
		err = w.s.retry(ctx, "storing requests", func() (err error) {
			if err := faultpoint.At(faultpoint.ScannerPolled); err != nil {
				return err
			}
			if done, err = w.s.store.Apply(ctx, batch, w.s.clock.Latest()); err != nil {
				return err
			}
			return faultpoint.At(faultpoint.ScannerStored)
		})
		if errors.Is(err, store.ErrFenced) {
			if runs, err = w.catchUp(ctx, covered, runs); err != nil {
				return err
			}
			continue // the same runs again, less what turned out to be stored
		}
		if err != nil {
			return err
		}
		for _, c := range covered {
			w.s.parts.stored(c.key, c.src, c.epoch)
		}
		w.s.metrics.batch(batch, time.Since(began))
		w.s.applied(done)
		runs = rest
	}
	return nil
}

// coverage is what a batch covers of one partition.
type coverage struct {
	key   partitionKey
	src   store.Source // as it stands once the batch is stored
	first int64
	epoch int32
}

// assemble makes the next batch of runs, leaving out what the database has already, and answers what remains after it.
func (w worker) assemble(ctx context.Context, runs [][]*kgo.Record) (b store.Batch, covered []coverage, rest [][]*kgo.Record, err error) {
	at := map[partitionKey]int{}
	for i, run := range runs {
		if len(b.Changes) >= w.s.cfg.BatchRecords {
			rest = append(rest, runs[i:]...)
			break
		}
		key := keyOf(run)
		n, seen := at[key]
		if !seen {
			var src store.Source
			err := w.s.retry(ctx, "reading the source", func() (err error) { src, err = w.s.parts.source(ctx, key, run[0].Offset); return err })
			if err != nil {
				return b, nil, nil, err
			}
			n, at[key] = len(covered), len(covered)
			covered = append(covered, coverage{key: key, src: src, first: src.Next})
		}
		c := &covered[n]
		take := min(len(run), w.s.cfg.BatchRecords-len(b.Changes))
		for _, r := range run[:take] {
			if r.Offset < c.src.Next {
				continue
			}
			if change, ok := w.s.decode(c.src.ID, r); ok {
				b.Changes = append(b.Changes, change)
			}
			c.src.Next, c.epoch = r.Offset+1, r.LeaderEpoch
		}
		if take < len(run) {
			rest = append(rest, run[take:])
		}
	}
	moved := covered[:0]
	for _, c := range covered {
		if c.src.Next > c.first {
			moved = append(moved, c)
			b.Advance = append(b.Advance, store.Advance{Source: c.src.ID, From: c.first, To: c.src.Next})
		}
	}
	return b, moved, rest, nil
}

// catchUp reads where the database stands after it refused a batch, and answers the runs that are still to be stored.
func (w worker) catchUp(ctx context.Context, covered []coverage, runs [][]*kgo.Record) ([][]*kgo.Record, error) {
	w.s.metrics.fenced.Inc()
	for _, c := range covered {
		w.s.log.Info("an intake partition is elsewhere by now", zap.String("topic", c.key.topic), zap.Int32("partition", c.key.partition), zap.Int64("offset", c.first))
		behind := int64(0)
		for _, run := range runs {
			if c.key == keyOf(run) {
				behind = run[len(run)-1].Offset + 1
			}
		}
		var setBack bool
		err := w.s.retry(ctx, "reading the source", func() (err error) {
			setBack, err = w.s.parts.reread(ctx, c.key, c.first, behind)
			return err
		})
		if err != nil {
			return nil, err
		}
		if setBack {
			runs = slices.DeleteFunc(runs, func(run []*kgo.Record) bool { return c.key == keyOf(run) })
		}
	}
	return runs, nil
}
