package intake

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// knownSources caches what sources stand for, which never changes. A source that is in no table is
// asked for each time. None of its tasks was ever delivered, so that is rare.
type knownSources struct {
	mu sync.RWMutex
	by map[int]Source
}

func (k *knownSources) get(id int) (Source, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	src, ok := k.by[id]
	return src, ok
}

func (k *knownSources) learn(all []Source) {
	by := make(map[int]Source, len(all))
	for _, src := range all {
		by[src.ID] = src
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.by = by
}

// knowSources makes sure that the cache has the sources of the tasks at hand, whose deliveries must be named.
func (w *work) knowSources(ctx context.Context, list []*identity) error {
	for _, id := range list {
		if w.newSource(id) {
			return w.readSources(ctx)
		}
	}
	return nil
}

func (w *work) readSources(ctx context.Context) error {
	all, err := tables.Fetch(ctx, w.tx, func(r *sql.Rows, s *Source) error { return scanSource(r, s) }, "SELECT "+sourceColumns+" FROM sources")
	if err != nil {
		return fmt.Errorf("reading the sources: %w", err)
	}
	runs, err := runSource(ctx, w.tx)
	if err != nil {
		return err
	}
	all = append(all, runs...)
	w.intake.known.learn(all)
	return nil
}

// knowAdvanced makes sure that the cache has the sources of a batch, because the events that answer
// its requests name their positions. The made-up sources of measurements are in no table.
func (w *work) knowAdvanced(ctx context.Context, moves []Advance) error {
	for _, a := range moves {
		if _, ok := w.intake.known.get(a.Source); !ok && a.Source >= firstSource && a.Source <= lastSource {
			return w.readSources(ctx)
		}
	}
	return nil
}

// position returns where a request stands in its intake topic; "": its source is not known.
func (k *knownSources) position(seq int64) string {
	id, offset := task.SplitSeq(seq)
	src, ok := k.get(id)
	if !ok {
		return ""
	}
	return schemas.DefaultID(src.Topic, src.Partition, offset)
}

func (w *work) newSource(id *identity) bool {
	unknown := func(seq int64) bool {
		src, _ := task.SplitSeq(seq)
		_, ok := w.intake.known.get(src)
		return !ok
	}
	// A request that waited may have come through a partition that another process reads.
	if slices.ContainsFunc(id.queue.due, func(h waitingChange) bool { return h.change.Request != nil && unknown(h.change.Seq) }) {
		return true
	}
	if id.before != nil && unknown(id.before.Seq) {
		return true
	}
	// Evidence may take a task of this very batch to where its report is awaited.
	return w.intake.evidence != nil && slices.ContainsFunc(id.changes, func(c task.Change) bool { return unknown(c.Seq) })
}

// foreign tells whether a report is about a delivery of another task: an earlier task of the same
// id, or this one before it was replayed. A report that names no delivery counts as one about this
// task.
func (w *work) foreign(rep *schemas.Report, t *task.Task) bool {
	if rep == nil || rep.Delivery == "" || t == nil {
		return false
	}
	id, offset := task.SplitSeq(t.Seq)
	src, ok := w.intake.known.get(id)
	return !ok || rep.Delivery != src.DeliveryKey(offset, int(task.SendNumber(t.Replay, rep.Attempt)))
}
