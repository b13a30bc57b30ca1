package sendlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"
)

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
