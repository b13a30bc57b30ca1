package admin

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// Actor is who changes something through the API or the command line.
type Actor = handle.Actor

// How a change came.
const (
	ViaAPI = handle.ViaAPI
	ViaCLI = handle.ViaCLI
)

// AuditEntry is one change in the audit log.
type AuditEntry = handle.AuditEntry

// WithActor returns a context under which changes are the actor's.
func WithActor(ctx context.Context, a Actor) context.Context { return handle.WithActor(ctx, a) }

// ActorFrom returns the actor of WithActor. False: ctx has nobody's changes, such as the services'.
func ActorFrom(ctx context.Context) (Actor, bool) { return handle.ActorFrom(ctx) }

// Auditing returns a context under which the change's transaction also writes the audit entry.
func Auditing(ctx context.Context, e AuditEntry) context.Context { return handle.Auditing(ctx, e) }

// Noted returns a context under which Auditing adds no entry: the log has one for the whole of
// which the changes are a part. They count in it. 0: they count nowhere.
func Noted(ctx context.Context, entry int64) context.Context { return handle.Noted(ctx, entry) }

// AuditCount returns how many changes count in an entry; 0: the entry is gone.
func (a Admin) AuditCount(ctx context.Context, entry int64) (n int64, err error) {
	n, _, err = tables.One[int64](ctx, a.h.DB, "SELECT amount FROM audit WHERE id = ?", entry)
	return n, wrap.Err(err, "reading a count of the audit log")
}

// Audit writes entries about requests through Kafka. Call it before sending. If the process dies in
// between, the log has an unsent request. In the other order, a change could lack an author.
func (a Admin) Audit(ctx context.Context, entries []AuditEntry) error {
	return a.h.Transact(ctx, func(tx *sql.Tx) error {
		_, err := a.h.InsertAudit(ctx, tx, entries)
		return err
	})
}

// BeginAudit writes the entry of Auditing, if any, before the change, whose maker counts in it.
func (a Admin) BeginAudit(ctx context.Context) (id int64, err error) {
	err = a.h.Transact(ctx, func(tx *sql.Tx) error {
		id, err = a.h.Audit(ctx, tx, 0)
		return err
	})
	return id, err
}

// AuditDetail returns fields as a JSON object of at most 4 KiB, without empty ones. Values are
// strings, numbers, booleans, or lists of numbers. Long ones are cut: a caller chooses them.
func AuditDetail(fields map[string]any) string {
	for _, longest := range []int{200, 50, 10} {
		if text := detailText(fields, longest); len(text) <= handle.MaxAuditDetail {
			return text
		}
	}
	return `{"cut":true}`
}

func detailText(fields map[string]any, longest int) string {
	out := map[string]any{}
	for name, v := range fields {
		switch v := v.(type) {
		case string:
			if cut := schemas.CutUTF8(v, longest); len(cut) < len(v) {
				out[name] = cut + "…"
			} else if v != "" {
				out[name] = v
			}
		case []int64:
			if len(v) > longest {
				out[name], out[name+"_in_all"] = v[:longest], len(v)
			} else if len(v) > 0 {
				out[name] = v
			}
		case bool:
			if v {
				out[name] = v
			}
		case int64:
			if v != 0 {
				out[name] = v
			}
		default:
			out[name] = v
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		return `{"cut":true}`
	}
	return string(text)
}

// RetireAudit deletes entries from before the given time (Unix ms), the oldest first and a piece at
// a time. more: there may be others.
func (a Admin) RetireAudit(ctx context.Context, before int64) (n int, more bool, err error) {
	if n, more, err = a.h.Retire(ctx, "audit", "at", before, tables.MaxRows); err != nil {
		return 0, false, fmt.Errorf("deleting old entries of the audit log: %w", err)
	}
	return n, more, nil
}
