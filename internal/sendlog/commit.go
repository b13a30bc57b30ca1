package sendlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"
)

const (
	// maxGroup bounds the bytes of one sync. pebble treats a batch of more than half a memtable (8
	// MiB) differently, and slower.
	maxGroup   = 4 << 20
	pruneEvery = time.Hour
)

type request struct {
	value []byte // header to be filled in, then the entries
	done  chan error
}

func (l *Log) newRequest() *request {
	r, ok := l.pool.Get().(*request)
	if !ok {
		r = &request{done: make(chan error, 1)}
	}
	r.value = append(r.value[:0], make([]byte, headerSize)...)
	return r
}

func (l *Log) recycle(r *request) {
	const tooBigToKeep = 1 << 20
	if cap(r.value) <= tooBigToKeep {
		l.pool.Put(r)
	}
}

// append hands r to the committer and waits. A broken log ends that: pebble may park the committer.
func (l *Log) append(ctx context.Context, r *request) error {
	if err := l.fault.err(); err != nil {
		return err
	}
	select {
	case l.requests <- r:
	case <-l.fault.broken:
		return l.fault.err()
	case <-l.closing:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	return l.await(ctx, r)
}

// await waits for the committer's answer. The patience with the disk comes in two halves: a pause
// of the process itself uses up only one of them, and does not count as the disk's.
func (l *Log) await(ctx context.Context, r *request) error {
	for range 2 {
		select {
		case err := <-r.done:
			l.recycle(r)
			return err
		case <-l.fault.broken:
			return l.fault.err()
		case <-ctx.Done():
			return fmt.Errorf("waiting for the disk, written or not: %w", ctx.Err())
		case <-time.After(l.cfg.Patience / 2):
		}
	}
	l.fault.breakWith(errSilent(l.cfg.Patience))
	return l.fault.err()
}

// run is the committer: it alone numbers batches and writes, so the order of numbers is the order
// on disk and a crash can only cut off the end. While one group is being synced the next gathers,
// so callers share syncs.
func (l *Log) run() {
	defer func() {
		// After a failed write of its log, pebble panics, holding its locks.
		if p := recover(); p != nil {
			l.fault.breakWith(panicked(p))
		}
	}()
	var group []*request
	for {
		l.pruneSometimes()
		var again <-chan time.Time
		if l.room.full.Load() {
			again = time.After(l.cfg.FullAgainEvery)
		}
		select {
		case <-again:
			l.keepWithin(0)
			continue
		case <-l.closing:
			return
		case r := <-l.requests:
			group = l.gather(append(group[:0], r))
		}
		err := l.commit(group)
		for _, r := range group {
			r.done <- err
		}
	}
}

func panicked(p any) error {
	if err, ok := p.(error); ok {
		return fmt.Errorf("pebble panicked: %w", err)
	}
	return fmt.Errorf("pebble panicked: %v", p)
}

// gather adds the requests already waiting.
func (l *Log) gather(group []*request) []*request {
	size := len(group[0].value)
	for size < maxGroup {
		select {
		case r := <-l.requests:
			group = append(group, r)
			size += len(r.value)
		default:
			return group
		}
	}
	return group
}

func (l *Log) commit(group []*request) error {
	batch := l.db.NewBatch()
	// Never before an earlier batch, even if the clock steps back: asking from a moment on finds
	// everything appended since.
	at := max(l.cfg.Now().UnixMilli(), l.lastAt)
	number := l.written.Load()
	for _, r := range group {
		number++
		fillHeader(r.value, number, at)
		if err := batch.Set(batchKey(number), r.value, nil); err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	// Apply does not return when the write failed: see fault.
	if err := l.cfg.Disk(func() error { return l.db.Apply(batch, pebble.Sync) }); err != nil {
		return errors.Join(err, batch.Close())
	}
	l.written.Store(number)
	l.lastAt = at
	written := 0
	for _, r := range group {
		written += len(r.value)
	}
	l.keepWithin(written)
	if err := l.mark.set(number); err != nil {
		// The batches are safe; only the guard of the log's end is not up to date.
		l.log.Warn("writing the send log's watermark failed", zap.Error(err))
	}
	if err := batch.Close(); err != nil {
		l.log.Warn("closing a batch of the send log failed", zap.Error(err))
	}
	return nil
}
