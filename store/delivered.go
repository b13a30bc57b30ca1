package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// knownSources remembers what sources stand for, which never changes. A source that is not there is asked for again: none of its
// tasks was ever delivered, so it cannot be many.
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

// knowSources makes sure that the deliveries of the tasks at hand can be named.
func (w *work) knowSources(ctx context.Context, list []*identity) error {
	for _, id := range list {
		if w.newSource(id) {
			return w.readSources(ctx)
		}
	}
	return nil
}

func (w *work) readSources(ctx context.Context) error {
	all, err := fetch(ctx, w.tx, func(r *sql.Rows, s *Source) error { return scanSource(r, s) }, "SELECT "+sourceColumns+" FROM sources")
	if err != nil {
		return fmt.Errorf("reading the sources: %w", err)
	}
	w.store.known.learn(all)
	return nil
}

// knowAdvanced makes sure that the requests of a batch can be named in the events that answer them. Sources that measurements
// make up stand in no table.
func (w *work) knowAdvanced(ctx context.Context, moves []Advance) error {
	for _, a := range moves {
		if _, ok := w.store.known.get(a.Source); !ok && a.Source >= firstSource && a.Source <= lastSource {
			return w.readSources(ctx)
		}
	}
	return nil
}

// position is where a request stands in its intake topic; "" when its source is not known.
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
		_, ok := w.store.known.get(src)
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
	return w.store.evidence != nil && slices.ContainsFunc(id.changes, func(c task.Change) bool { return unknown(c.Seq) })
}

// foreign says that a report is about another delivery than the ones of this task: of an earlier task of the same id, or from
// before the task was replayed. A report that names no delivery is taken to be about this task.
func (w *work) foreign(rep *schemas.Report, t *task.Task) bool {
	if rep == nil || rep.Delivery == "" || t == nil || faultpoint.Without(faultpoint.ReportOfDelivery) {
		return false
	}
	id, offset := task.SplitSeq(t.Seq)
	src, ok := w.store.known.get(id)
	return !ok || rep.Delivery != src.DeliveryKey(offset, int(task.Sending(t.Replay, rep.Attempt)))
}
