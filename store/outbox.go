package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// Outbox is a run of events that a transaction has decided.
type Outbox = handle.Outbox

// TransitionSource is the outbox source of events about tasks that left their line.
const TransitionSource = handle.TransitionSource

// StoreEvents stores events that belong to no other write, to be published later.
func (s *Store) StoreEvents(ctx context.Context, events []schemas.Event, now int64) ([]handle.Outbox, error) {
	boxes := handle.EventBoxes(events, now)
	err := s.h.Transact(ctx, func(tx *sql.Tx) error {
		for _, box := range boxes {
			if err := box.Store(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return boxes, nil
}

// pendingOutboxes lists outboxes in the order of the primary key, which within a source is that of
// time. In any other order, the server would read and sort all that an outage has left, to return the
// first of it.
func pendingOutboxes(sources int) string {
	return "SELECT src, seq FROM outbox WHERE src IN (" + tables.Marks(sources) + ") ORDER BY src, seq LIMIT ?"
}

// PendingOutboxes lists the outboxes of the sources whose events are not known to be published, of each
// source the oldest first, at most limit, without their events.
func (s *Store) PendingOutboxes(ctx context.Context, sources []int, limit int) ([]handle.Outbox, error) {
	out, err := tables.Fetch(ctx, s.db, func(r *sql.Rows, o *handle.Outbox) error { return r.Scan(&o.Source, &o.Seq) },
		pendingOutboxes(len(sources)), append(tables.Args(sources), limit)...)
	if err != nil {
		return nil, fmt.Errorf("listing pending events: %w", err)
	}
	return out, nil
}

// ReadOutbox reads the events of an outbox. False: they were published and deleted meanwhile.
func (s *Store) ReadOutbox(ctx context.Context, run handle.Outbox) (handle.Outbox, bool, error) {
	rows, err := tables.Fetch(ctx, s.db, func(r *sql.Rows, data *[]byte) error { return r.Scan(data) }, "SELECT events FROM outbox WHERE src = ? AND seq = ?", run.Source, run.Seq)
	if err != nil {
		return handle.Outbox{}, false, fmt.Errorf("reading pending events: %w", err)
	}
	if len(rows) == 0 {
		return handle.Outbox{}, false, nil
	}
	if err := json.Unmarshal(rows[0], &run.Events); err != nil {
		return handle.Outbox{}, false, fmt.Errorf("reading pending events: %w", err)
	}
	return run, true, nil
}

// DeleteEvents deletes events that Kafka has acknowledged.
func (s *Store) DeleteEvents(ctx context.Context, told []handle.Outbox) error {
	return tables.Chunks(told, func(part []handle.Outbox) error {
		a := make([]any, 0, 2*len(part))
		for _, o := range part {
			a = append(a, o.Source, o.Seq)
		}
		if _, err := s.h.Exec(ctx, "DELETE FROM outbox WHERE (src, seq) IN ("+strings.Repeat(",(?,?)", len(part))[1:]+")", a...); err != nil {
			return fmt.Errorf("deleting published events: %w", err)
		}
		return nil
	})
}
