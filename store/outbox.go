package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/tables"
)

// Outbox is a run of events that a transaction has decided. The transaction stores them, and they
// stay until they are published. If the process dies before that, the next reader of the source
// publishes them.
type Outbox struct {
	Source int
	Seq    int64
	Events []schemas.Event
}

// maxBox keeps an outbox row below the 16 MiB of its column, and its statement below the server's
// largest packet. JSON may write six bytes for one.
const maxBox = 2 << 20

// eventSize estimates how many bytes an event takes in an outbox row.
func eventSize(e schemas.Event) int { return 200 + len(e.Topic) + len(e.ID) + len(e.Reason) }

// eventBoxes puts events about tasks that have left their line into outboxes of at most about maxBox bytes each.
func eventBoxes(events []schemas.Event, now int64) []Outbox {
	var boxes []Outbox
	seq := now<<20 | rand.Int64N(1<<20)
	for len(events) > 0 {
		n, bytes := 0, 0
		for n < len(events) && bytes < maxBox {
			events[n].Reason = schemas.CutUTF8(events[n].Reason, maxReason)
			bytes += eventSize(events[n])
			n++
		}
		boxes = append(boxes, Outbox{Source: TransitionSource, Seq: seq, Events: events[:n:n]})
		events = events[n:]
		seq++
	}
	return boxes
}

func (o *Outbox) store(ctx context.Context, tx *sql.Tx) error {
	data, err := json.Marshal(o.Events)
	if err != nil {
		return fmt.Errorf("encoding events: %w", err)
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO outbox (src, seq, events) VALUES (?,?,?)", o.Source, o.Seq, data); err != nil {
		return fmt.Errorf("storing %d events: %w", len(o.Events), err)
	}
	return nil
}

// StoreEvents stores events that belong to no other write, to be published later.
func (s *Store) StoreEvents(ctx context.Context, events []schemas.Event, now int64) ([]Outbox, error) {
	boxes := eventBoxes(events, now)
	err := s.transact(ctx, func(tx *sql.Tx) error {
		for _, box := range boxes {
			if err := box.store(ctx, tx); err != nil {
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
func (s *Store) PendingOutboxes(ctx context.Context, sources []int, limit int) ([]Outbox, error) {
	out, err := tables.Fetch(ctx, s.db, func(r *sql.Rows, o *Outbox) error { return r.Scan(&o.Source, &o.Seq) },
		pendingOutboxes(len(sources)), append(tables.Args(sources), limit)...)
	if err != nil {
		return nil, fmt.Errorf("listing pending events: %w", err)
	}
	return out, nil
}

// ReadOutbox reads the events of an outbox. False: they were published and deleted meanwhile.
func (s *Store) ReadOutbox(ctx context.Context, run Outbox) (Outbox, bool, error) {
	rows, err := tables.Fetch(ctx, s.db, func(r *sql.Rows, data *[]byte) error { return r.Scan(data) }, "SELECT events FROM outbox WHERE src = ? AND seq = ?", run.Source, run.Seq)
	if err != nil {
		return Outbox{}, false, fmt.Errorf("reading pending events: %w", err)
	}
	if len(rows) == 0 {
		return Outbox{}, false, nil
	}
	if err := json.Unmarshal(rows[0], &run.Events); err != nil {
		return Outbox{}, false, fmt.Errorf("reading pending events: %w", err)
	}
	return run, true, nil
}

// DeleteEvents deletes events that Kafka has acknowledged.
func (s *Store) DeleteEvents(ctx context.Context, told []Outbox) error {
	return tables.Chunks(told, func(part []Outbox) error {
		a := make([]any, 0, 2*len(part))
		for _, o := range part {
			a = append(a, o.Source, o.Seq)
		}
		if _, err := s.exec(ctx, "DELETE FROM outbox WHERE (src, seq) IN ("+strings.Repeat(",(?,?)", len(part))[1:]+")", a...); err != nil {
			return fmt.Errorf("deleting published events: %w", err)
		}
		return nil
	})
}
