package handle

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
)

// Box is a run of events of one transaction, stored until published. If the process dies before,
// the next reader of the source publishes them.
type Box struct {
	Source int
	Seq    int64
	Events []schemas.Event
}

// TransitionSource is the outbox source of tasks that left the line; slot 0's owner publishes it.
const TransitionSource = 2

// MaxBox keeps an outbox row below the 16 MiB of its column, and the statement below the server's
// largest packet. JSON may write six bytes for one.
const MaxBox = 2 << 20

// EventSize estimates how many bytes an event takes in an outbox row.
func EventSize(e schemas.Event) int { return 200 + len(e.Topic) + len(e.ID) + len(e.Reason) }

// EventBoxes puts events of tasks that left the line into boxes of about MaxBox bytes at most.
func EventBoxes(events []schemas.Event, now int64) []Box {
	var boxes []Box
	seq := now<<20 | rand.Int64N(1<<20)
	for len(events) > 0 {
		n, bytes := 0, 0
		for n < len(events) && bytes < MaxBox {
			events[n].Reason = schemas.CutUTF8(events[n].Reason, MaxReason)
			bytes += EventSize(events[n])
			n++
		}
		boxes = append(boxes, Box{Source: TransitionSource, Seq: seq, Events: events[:n:n]})
		events = events[n:]
		seq++
	}
	return boxes
}

func (o *Box) Store(ctx context.Context, tx *sql.Tx) error {
	data, err := json.Marshal(o.Events)
	if err != nil {
		return fmt.Errorf("encoding events: %w", err)
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO outbox (src, seq, events) VALUES (?,?,?)", o.Source, o.Seq, data)
	return wrap.Err(err, "storing %d events", len(o.Events))
}
