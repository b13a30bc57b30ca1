package intake

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Runs of timers have no intake record for a number. They are numbered from a counter that goes by
// the clock: a database restored to an older state does not give a number again, unless more than
// 128 runs a millisecond were numbered since.
const (
	runsPerMilli = 7 // bits
	runBlock     = 10_000
)

// runEpoch is where the counter begins. 48 bits of offset last until 2089.
var runEpoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// The names in table meta.
var (
	runCounter = []byte("runs.next")
	runKey     = []byte("runs.key") // tells this installation's runs from another's
)

// runNumbers hands out numbers of runs, in blocks of the database.
type runNumbers struct {
	mu       sync.Mutex
	next, to int64
}

// reserve makes sure, before a transaction, that n numbers are at hand.
func (r *runNumbers) reserve(ctx context.Context, in Intake, n int, now int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to-r.next >= int64(n) {
		return nil
	}
	block, err := in.reserveRuns(ctx, max(n, runBlock), now)
	if err != nil {
		return err
	}
	r.next, r.to = block.next, block.to
	return nil
}

// reserveRuns takes n numbers for its caller alone.
func (in Intake) reserveRuns(ctx context.Context, n int, now int64) (*runNumbers, error) {
	var from int64
	err := in.h.Transact(ctx, func(tx *sql.Tx) error {
		if err := ensureRunSource(ctx, tx); err != nil {
			return err
		}
		err := tx.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = ?"+in.h.Locking(handle.LockExclusive), runCounter).Scan(&from)
		if err != nil {
			return err
		}
		from = max(from, max(now-runEpoch, 0)<<runsPerMilli)
		_, err = tx.ExecContext(ctx, "UPDATE meta SET value = ? WHERE name = ?", from+int64(n), runCounter)
		return err
	})
	return &runNumbers{next: from, to: from + int64(n)}, wrap.Err(err, "reserving numbers of runs")
}

// take returns the seqs of n runs, as far as they are reserved.
func (r *runNumbers) take(n int) ([]int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to-r.next < int64(n) {
		return nil, fmt.Errorf("%d numbers of runs are reserved, not %d", r.to-r.next, n)
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = task.Seq(task.RunSource, r.next)
		r.next++
	}
	return out, nil
}

// pageNumbers are the numbers of one page's runs. A rolled back try has used none, so the next one
// takes the same: the reserved numbers last for all tries.
type pageNumbers struct {
	of   *runNumbers
	seqs []int64
}

func (b *pageNumbers) first(n int) ([]int64, error) {
	if more := n - len(b.seqs); more > 0 {
		seqs, err := b.of.take(more)
		if err != nil {
			return nil, err
		}
		b.seqs = append(b.seqs, seqs...)
	}
	return b.seqs[:n], nil
}

// ensureRunSource makes the source of runs known: without a source, no run has a delivery key.
func ensureRunSource(ctx context.Context, tx *sql.Tx) error {
	if err := handle.EnsureMeta(ctx, tx, runCounter, 0); err != nil {
		return err
	}
	return handle.EnsureMeta(ctx, tx, runKey, rand.Int64())
}

// runSource is the source of runs, if there was ever one.
func runSource(ctx context.Context, q dialect.Querier) ([]Source, error) {
	type row struct {
		name  []byte
		value int64
	}
	rows, err := tables.Fetch(ctx, q, func(r *sql.Rows, v *row) error { return r.Scan(&v.name, &v.value) }, "SELECT name, value FROM meta WHERE name IN (?, ?)", runCounter, runKey)
	if err != nil {
		return nil, fmt.Errorf("reading the source of runs: %w", err)
	}
	if len(rows) < 2 {
		return nil, nil
	}
	src := Source{ID: task.RunSource}
	copy(src.TopicID[8:], "timers")
	for _, r := range rows {
		if string(r.name) == string(runKey) {
			binary.BigEndian.PutUint64(src.TopicID[:], uint64(r.value))
		} else {
			src.Next = r.value
		}
	}
	return []Source{src}, nil
}

// DeliverySources reads all sources of tasks: those of the intake, and that of the runs of timers.
func (in Intake) DeliverySources(ctx context.Context) ([]Source, error) {
	all, err := in.Sources(ctx)
	if err != nil {
		return nil, err
	}
	runs, err := runSource(ctx, in.h.Reads())
	return append(all, runs...), err
}
