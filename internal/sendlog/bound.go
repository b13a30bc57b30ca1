package sendlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"
)

// The log is bounded in bytes as well as in time. At the bound the oldest batches go before their
// time, so that the newest tenth of the room is free again. Batches younger than keptAtLeast stay,
// because an owner that comes back asks for them. If these alone are too much, no intent is taken,
// so nothing is sent without a note. Outcomes are still taken: there are no more of them than of
// intents.

const (
	// keptAtLeast is the least age of a batch to go for want of room.
	keptAtLeast = time.Hour
	// checkedEvery is the part of the bound written between two measurements of the room.
	checkedEvery = 64
)

// ErrFull says that the log has no room for an intent. The failure does not last: time makes room.
var ErrFull = errors.New("the send log is full")

// room is how much of the bound is used. The committer measures; others read.
type room struct {
	bytes   atomic.Int64
	full    atomic.Bool
	written int64 // since it was measured, of the committer alone
}

// Bytes is about how much space the log takes on disk.
func (l *Log) Bytes() int64 { return l.room.bytes.Load() }

// Full returns ErrFull, with what can be done, while the log takes no intents.
func (l *Log) Full() error {
	if !l.room.full.Load() {
		return nil
	}
	return fmt.Errorf("%w: all %d bytes (sendlog.max-bytes %d) are of the last %v; nothing is sent until that is over or the bound is raised",
		ErrFull, l.Bytes(), l.cfg.MaxBytes, keptAtLeast)
}

// keepWithin, of the committer, measures after enough writing or when full, and makes room.
func (l *Log) keepWithin(written int) {
	l.room.written += int64(written)
	if l.room.written < l.cfg.MaxBytes/checkedEvery && !l.room.full.Load() && l.room.bytes.Load() > 0 {
		return
	}
	l.room.written = 0
	if err := l.makeRoom(); err != nil {
		l.log.Warn("measuring the send log failed", zap.Error(err))
	}
}

func (l *Log) makeRoom() error {
	used, err := l.measure()
	if err != nil {
		return err
	}
	if used > l.cfg.MaxBytes {
		if err := l.dropOldest(l.cfg.MaxBytes / 10 * 9); err != nil {
			return err
		}
		if used, err = l.measure(); err != nil {
			return err
		}
	}
	l.room.bytes.Store(max(used, 1))
	full := used > l.cfg.MaxBytes
	if was := l.room.full.Swap(full); full && !was {
		l.log.Error("the send log is full: nothing is sent until there is room", zap.Int64("bytes", used), zap.Int64("max_bytes", l.cfg.MaxBytes), zap.Duration("kept_at_least", keptAtLeast))
	} else if was && !full {
		l.log.Info("the send log has room again", zap.Int64("bytes", used))
	}
	return nil
}

// measure returns the size of the kept batches, without dropped ones whose space is not freed yet.
func (l *Log) measure() (int64, error) {
	first, err := readFirst(l.db)
	if err != nil {
		return 0, err
	}
	return l.sizeFrom(first)
}

func (l *Log) sizeFrom(number uint64) (int64, error) {
	end := l.written.Load() + 1
	if number >= end {
		return 0, nil
	}
	size, err := l.db.EstimateDiskUsage(batchKey(number), batchKey(end))
	return int64(size), err
}

// dropOldest drops batches down to the size, as far as they may go.
func (l *Log) dropOldest(size int64) error {
	snap, end := l.snapshot()
	defer func() { _ = snap.Close() }() // only refuses while iterators are open
	first, err := readFirst(snap)
	if err != nil {
		return err
	}
	youngest := l.cfg.Now().Add(-keptAtLeast)
	may := seek(snap, first, end, youngest.UnixMilli())
	keep := first + uint64(sort.Search(int(may-first), func(i int) bool { // the first batch from which on the size fits
		left, failed := l.sizeFrom(first + uint64(i))
		err = errors.Join(err, failed)
		return left <= size
	}))
	if err != nil || keep == first {
		return err
	}
	l.log.Warn("the send log reaches its bound: the oldest batches go before their time", zap.Int64("max_bytes", l.cfg.MaxBytes), zap.Uint64("batches", keep-first))
	return l.dropBefore(first, keep)
}

func (l *Log) pruneSometimes() {
	now := l.cfg.Now()
	if now.Before(l.nextPrune) {
		return
	}
	l.nextPrune = now.Add(pruneEvery)
	if err := l.prune(now.Add(-l.cfg.Retention)); err != nil {
		l.log.Warn("pruning the send log failed", zap.Error(err))
	}
}

// prune drops the batches from before a time, and records the beginning of the rest, in one batch:
// a crash leaves both or neither, and no false gap. Space is freed in the background. After a clock
// ahead of time, batches of that while are kept until time has caught up with them.
func (l *Log) prune(before time.Time) error {
	snap, end := l.snapshot()
	defer func() { _ = snap.Close() }() // only refuses while iterators are open
	first, err := readFirst(snap)
	if err != nil {
		return err
	}
	keep := seek(snap, first, end, before.UnixMilli())
	if keep == first {
		return nil
	}
	return l.dropBefore(first, keep)
}

func (l *Log) dropBefore(first, keep uint64) error {
	batch := l.db.NewBatch()
	err := errors.Join(
		batch.DeleteRange(batchKey(first), batchKey(keep), nil),
		batch.Set(firstKey, binary.BigEndian.AppendUint64(nil, keep), nil),
	)
	if err == nil {
		err = l.db.Apply(batch, pebble.Sync)
	}
	if err = errors.Join(err, batch.Close()); err != nil {
		return err
	}
	l.log.Info("send log pruned", zap.Uint64("batches", keep-first))
	return nil
}

// snapshot returns a view of all batches below end, at least.
func (l *Log) snapshot() (snap *pebble.Snapshot, end uint64) {
	end = l.written.Load() + 1
	return l.db.NewSnapshot(), end
}

// readFirst returns the number of the first batch that was not pruned.
func readFirst(r pebble.Reader) (uint64, error) {
	v, closer, err := r.Get(firstKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading where the log begins: %w", err)
	}
	defer func() { _ = closer.Close() }() // frees a buffer
	if len(v) != 8 {
		return 0, fmt.Errorf("reading where the log begins: %w", errMalformed)
	}
	return binary.BigEndian.Uint64(v), nil
}
