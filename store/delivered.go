package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"

	"github.com/notyet/notyet/schemas"
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
		if !w.newSource(id) {
			continue
		}
		all, err := fetch(ctx, w.tx, func(r *sql.Rows, s *Source) error { return scanSource(r, s) }, "SELECT "+sourceColumns+" FROM sources")
		if err != nil {
			return fmt.Errorf("reading the sources: %w", err)
		}
		w.store.known.learn(all)
		return nil
	}
	return nil
}

func (w *work) newSource(id *identity) bool {
	unknown := func(seq int64) bool {
		src, _ := SplitSeq(seq)
		_, ok := w.store.known.get(src)
		return !ok
	}
	if id.before != nil && unknown(id.before.Seq) {
		return true
	}
	// Evidence may take a task of this very batch to where its report is awaited.
	return w.store.evidence != nil && slices.ContainsFunc(id.changes, func(c Change) bool { return unknown(c.Seq) })
}

// foreign says that a report is about another delivery than the ones of this task: of an earlier task of the same id, or from
// before the task was replayed. A report that names no delivery is taken to be about this task.
func (w *work) foreign(rep *schemas.Report, t *Task) bool {
	if rep == nil || rep.Delivery == "" || t == nil {
		return false
	}
	id, offset := SplitSeq(t.Seq)
	src, ok := w.store.known.get(id)
	return !ok || rep.Delivery != schemas.DeliveryKey(src.TopicID, src.Partition, offset, int(Sending(t.Replay, rep.Attempt)))
}
