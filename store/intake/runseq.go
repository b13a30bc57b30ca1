package intake

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
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
	runKey     = []byte("runs.key") // tells this database's runs from those of others
)

// adoptedKey begins the names of the keys of other databases' runs, which have followed their
// targets. The number of the runs' source is behind it.
const adoptedKey = "runs.key."

// runNumbers hands out numbers of runs, in blocks of the database.
type runNumbers struct {
	mu       sync.Mutex
	source   int
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
	r.source, r.next, r.to = block.source, block.next, block.to
	return nil
}

// reserveRuns takes n numbers for its caller alone.
func (in Intake) reserveRuns(ctx context.Context, n int, now int64) (*runNumbers, error) {
	var from int64
	var source int
	err := in.h.Transact(ctx, func(tx *sql.Tx) (err error) {
		if err := ensureRunSource(ctx, tx); err != nil {
			return err
		}
		if source, err = ownRuns(ctx, tx); err != nil {
			return err
		}
		err = tx.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = ?"+in.h.Locking(handle.LockExclusive), runCounter).Scan(&from)
		if err != nil {
			return err
		}
		from = max(from, max(now-runEpoch, 0)<<runsPerMilli)
		_, err = tx.ExecContext(ctx, "UPDATE meta SET value = ? WHERE name = ?", from+int64(n), runCounter)
		return err
	})
	return &runNumbers{source: source, next: from, to: from + int64(n)}, wrap.Err(err, "reserving numbers of runs")
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
		out[i] = task.Seq(r.source, r.next)
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
	key := rand.Int64()
	number, err := tables.ReadMeta(ctx, tx, handle.ShardNumber)
	if err != nil {
		return err
	}
	// Its runs may be in other databases, which know the key. A database that is set back, or takes
	// another one's place, has the same.
	if home, err := tables.ReadMeta(ctx, tx, handle.ShardHome); err != nil {
		return err
	} else if len(number) > 0 && string(number) != "0" {
		sum := sha256.Sum256(fmt.Appendf(nil, "runs of database %s of %s", number, home))
		key = int64(binary.BigEndian.Uint64(sum[:]))
	}
	return handle.EnsureMeta(ctx, tx, runKey, key)
}

// ownRuns returns the source of this database's runs.
func ownRuns(ctx context.Context, q dialect.Querier) (int, error) {
	number, err := tables.ReadMeta(ctx, q, handle.ShardNumber)
	if err != nil || len(number) == 0 {
		return task.RunSource, err
	}
	n, err := strconv.Atoi(string(number))
	if err != nil || !task.IsRunSource(task.RunSource+n) {
		return 0, fmt.Errorf("%s is %q, which is the number of no database", handle.ShardNumber, number)
	}
	return task.RunSource + n, nil
}

// runSources are the source of this database's runs, if there was ever one, and those of runs that
// have followed their targets to it.
func runSources(ctx context.Context, q dialect.Querier) (out []Source, err error) {
	own, err := ownRuns(ctx, q)
	if err != nil {
		return nil, err
	}
	type row struct {
		name  []byte
		value int64
	}
	rows, err := tables.Fetch(ctx, q, func(r *sql.Rows, v *row) error { return r.Scan(&v.name, &v.value) },
		"SELECT name, value FROM meta WHERE name = ? OR name >= ? AND name < ?", runCounter, runKey, []byte(adoptedKey+"~"))
	if err != nil {
		return nil, fmt.Errorf("reading the sources of runs: %w", err)
	}
	next, first := int64(-1), false
	for _, r := range rows {
		if string(r.name) == string(runCounter) {
			next = r.value
		}
		first = first || string(r.name) == adoptedKey+strconv.Itoa(task.RunSource)
	}
	for _, r := range rows {
		src := Source{ID: own, Next: next}
		if of, adopted := strings.CutPrefix(string(r.name), adoptedKey); adopted {
			if src.ID, err = strconv.Atoi(of); err != nil {
				return nil, fmt.Errorf("%s names no source", r.name)
			}
			src.Next, src.Retired = math.MaxInt64, 1
		} else if string(r.name) != string(runKey) || next < 0 {
			continue
		}
		binary.BigEndian.PutUint64(src.TopicID[:], uint64(r.value))
		copy(src.TopicID[8:], "timers")
		if out = append(out, src); src.ID == own && own != task.RunSource && !first {
			src.ID = task.RunSource // runs from before databases had sources of their own
			out = append(out, src)
		}
	}
	return out, nil
}

// adoptRuns keeps the key of another database's runs.
func adoptRuns(ctx context.Context, tx *sql.Tx, s Source) error {
	return handle.EnsureMeta(ctx, tx, []byte(adoptedKey+strconv.Itoa(s.ID)), int64(binary.BigEndian.Uint64(s.TopicID[:])))
}

// DeliverySources reads all sources of tasks: those of the intake, and those of the runs of timers.
func (in Intake) DeliverySources(ctx context.Context) ([]Source, error) {
	all, err := in.Sources(ctx)
	if err != nil {
		return nil, err
	}
	runs, err := runSources(ctx, in.h.Reads())
	return append(all, runs...), err
}
