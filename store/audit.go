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

// Actor is who changes something through the API or the command line.
type Actor = handle.Actor

// How a change came.
const (
	ViaAPI = handle.ViaAPI
	ViaCLI = handle.ViaCLI
)

// AuditEntry is one change in the audit log.
type AuditEntry = handle.AuditEntry

type (
	actorKey  struct{}
	changeKey struct{}
)

// WithActor returns a context under which changes are the actor's.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorFrom returns the actor of WithActor. False: what is done under ctx is nobody's change, such
// as the work of the services.
func ActorFrom(ctx context.Context) (Actor, bool) {
	a, ok := ctx.Value(actorKey{}).(Actor)
	return a, ok
}

// Auditing returns a context under which the store writes the entry into the audit log, in the very
// transaction that makes the change. So the log has each change that was made, and no other. What
// the store does under ctx must be that change alone. Without an actor it returns ctx.
func Auditing(ctx context.Context, e AuditEntry) context.Context {
	actor, ok := ActorFrom(ctx)
	if !ok {
		return ctx
	}
	e.Actor = actor
	return context.WithValue(ctx, changeKey{}, e)
}

// audit writes the entry of Auditing, if there is one, in the transaction that changed n things. It
// returns the entry's id for auditMore.
func (s *Store) audit(ctx context.Context, tx *sql.Tx, n int64) (id int64, err error) {
	e, ok := ctx.Value(changeKey{}).(AuditEntry)
	if !ok {
		return 0, nil
	}
	e.Count = n
	return s.insertAudit(ctx, tx, []AuditEntry{e})
}

// auditMore adds to the count of an entry whose change takes several transactions.
func auditMore(ctx context.Context, tx *sql.Tx, id, n int64) error {
	if id == 0 || n == 0 {
		return nil
	}
	if _, err := tx.ExecContext(ctx, "UPDATE audit SET amount = amount + ? WHERE id = ?", n, id); err != nil {
		return fmt.Errorf("counting in the audit log: %w", err)
	}
	return nil
}

// Audit writes entries about requests that go through Kafka. Call it before the request is sent. If
// the process dies in between, the log has a request that was never sent. In the other order a
// change could be made that nobody answers for.
func (s *Store) Audit(ctx context.Context, entries []AuditEntry) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		_, err := s.insertAudit(ctx, tx, entries)
		return err
	})
}

// The widths of the columns. Nobody has checked these texts before.
const (
	maxAuditName   = 255
	maxAuditWhat   = 32
	maxAuditTopic  = 300
	maxAuditDetail = 4096
)

// insertAudit returns the id of the first entry.
func (s *Store) insertAudit(ctx context.Context, tx *sql.Tx, entries []AuditEntry) (first int64, err error) {
	at, now, err := s.dialect.Millis(ctx, s.Time)
	if err != nil {
		return 0, err
	}
	err = tables.Chunks(entries, func(part []AuditEntry) error {
		a := make([]any, 0, 9*len(part))
		for _, e := range part {
			a = append(append(a, now...), tables.CutText(e.Who, maxAuditName), tables.CutText(e.Via, 8), tables.CutText(e.User, maxAuditName), tables.CutText(e.What, maxAuditWhat),
				tables.CutText(e.Topic, maxAuditTopic), tables.CutText(e.TaskID, maxTaskID), tables.CutText(e.Detail, maxAuditDetail), e.Count)
		}
		res, err := tx.ExecContext(ctx, "INSERT INTO audit (at, who, via, os_user, what, topic, task_id, detail, amount) VALUES "+
			strings.Repeat(",("+at+",?,?,?,?,?,?,?,?)", len(part))[1:], a...)
		if err == nil && first == 0 {
			first, err = res.LastInsertId()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("writing %d entries of the audit log: %w", len(entries), err)
	}
	return first, nil
}

// AuditDetail returns fields as a JSON object of at most 4 KiB. It leaves out what is empty. Values
// are strings, numbers, booleans, or lists of numbers. Long ones are cut, because a caller chooses
// them.
func AuditDetail(fields map[string]any) string {
	for _, longest := range []int{200, 50, 10} {
		if text := detailText(fields, longest); len(text) <= maxAuditDetail {
			return text
		}
	}
	return `{"cut":true}`
}

// detailText cuts strings to so many bytes, and lists to so many numbers.
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

// RetireAudit deletes entries that were written before the given time (Unix ms), the oldest first
// and a piece at a time. more says that there may be others.
func (s *Store) RetireAudit(ctx context.Context, before int64) (n int, more bool, err error) {
	ids, err := tables.Fetch(ctx, s.db, func(r *sql.Rows, id *int64) error { return r.Scan(id) }, "SELECT id FROM audit WHERE at < ? ORDER BY at LIMIT ?", before, tables.MaxRows)
	if err != nil {
		return 0, false, fmt.Errorf("looking for old entries of the audit log: %w", err)
	}
	if len(ids) == 0 {
		return 0, false, nil
	}
	if _, err := s.exec(ctx, "DELETE FROM audit WHERE id IN ("+tables.Marks(len(ids))+")", tables.Args(ids)...); err != nil {
		return 0, false, fmt.Errorf("deleting %d old entries of the audit log: %w", len(ids), err)
	}
	return len(ids), len(ids) == tables.MaxRows, nil
}
