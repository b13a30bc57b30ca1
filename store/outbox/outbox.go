// Package outbox holds decided events, until Kafka has them. Events without another write go in,
// and boxes of events come out, to be published and then deleted. Other packages of the store put
// in the events of their transactions.
package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// Box is a run of events that a transaction has decided.
type Box = handle.Box

// TransitionSource is the source of events about tasks that left their line.
const TransitionSource = handle.TransitionSource

// Outbox is a value without state of its own.
type Outbox struct{ h *handle.Handle }

// New returns the outbox of a store.
func New(st handle.Source) Outbox { return Outbox{handle.Of(st)} }

// Store stores events that belong to no other write, to be published later.
func (o Outbox) Store(ctx context.Context, events []schemas.Event, now int64) ([]Box, error) {
	boxes := handle.EventBoxes(events, now)
	err := o.h.Transact(ctx, func(tx *sql.Tx) error {
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

// pending lists boxes in the order of the primary key: within a source, of time. In any other
// order, the server would read and sort all that an outage has left, to return the first.
func pending(sources int) string {
	return "SELECT src, seq FROM outbox WHERE src IN (" + tables.Marks(sources) + ") ORDER BY src, seq LIMIT ?"
}

// Pending lists the boxes with events not known to be published, without the events: of each source
// the oldest first, at most limit.
func (o Outbox) Pending(ctx context.Context, sources []int, limit int) ([]Box, error) {
	out, err := tables.Fetch(ctx, o.h.Reads(), func(r *sql.Rows, b *Box) error { return r.Scan(&b.Source, &b.Seq) },
		pending(len(sources)), append(tables.Args(sources), limit)...)
	return out, wrap.Err(err, "listing pending events")
}

// Read reads the events of a box. False: they were published and deleted meanwhile.
func (o Outbox) Read(ctx context.Context, box Box) (Box, bool, error) {
	rows, err := tables.Fetch(ctx, o.h.Reads(), func(r *sql.Rows, data *[]byte) error { return r.Scan(data) }, "SELECT events FROM outbox WHERE src = ? AND seq = ?", box.Source, box.Seq)
	if err != nil {
		return Box{}, false, fmt.Errorf("reading pending events: %w", err)
	}
	if len(rows) == 0 {
		return Box{}, false, nil
	}
	err = json.Unmarshal(rows[0], &box.Events)
	return box, true, wrap.Err(err, "reading pending events")
}

// Delete deletes boxes whose events Kafka has acknowledged.
func (o Outbox) Delete(ctx context.Context, boxes []Box) error {
	return tables.Chunks(boxes, func(part []Box) error {
		a := make([]any, 0, 2*len(part))
		for _, b := range part {
			a = append(a, b.Source, b.Seq)
		}
		_, err := o.h.Exec(ctx, "DELETE FROM outbox WHERE (src, seq) IN ("+strings.Repeat(",(?,?)", len(part))[1:]+")", a...)
		return wrap.Err(err, "deleting published events")
	})
}
