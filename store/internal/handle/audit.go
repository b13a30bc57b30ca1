package handle

import (
	"context"
	"database/sql"
	"strings"

	"gorm.io/gorm"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/tables"
)

// Actor is who changes something through the API or the command line.
type Actor struct {
	Who  string // name of the token, or user@host of a command that works on the database itself
	Via  string // ViaAPI or ViaCLI
	User string `gorm:"column:os_user"` // user@host of a command that used a token, as it says; "" otherwise
}

// How a change came.
const (
	ViaAPI = "api"
	ViaCLI = "cli"
)

// String is the actor as one name.
func (a Actor) String() string {
	if a.User != "" {
		return a.Who + " (" + a.User + ")"
	}
	return a.Who
}

// AuditEntry is one change in the audit log.
type AuditEntry struct {
	ID int64
	At int64 // Unix ms, by the database's clock
	Actor
	What   string // schedule, cancel, stop, fire, replay, …
	Topic  string // target topic; "": several
	TaskID string // of one task; "": several, or not known yet
	Detail string // a JSON object, see AuditDetail
	Count  int64  `gorm:"column:amount"` // how many were changed; of a request that goes through Kafka, how many it asks to change
}

type (
	actorKey  struct{}
	changeKey struct{}
	notedKey  struct{}
)

// Noted returns a context under which Auditing adds no entry: the log has one for the whole of
// which the changes are a part. They count in it. 0: they count nowhere.
func Noted(ctx context.Context, entry int64) context.Context {
	return context.WithValue(ctx, notedKey{}, entry)
}

// WithActor returns a context under which changes are the actor's.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorFrom returns the actor of WithActor. False: ctx has nobody's changes, such as the services'.
func ActorFrom(ctx context.Context) (Actor, bool) {
	a, ok := ctx.Value(actorKey{}).(Actor)
	return a, ok
}

// Auditing returns a context under which the change's transaction also writes the audit entry. So
// the log has each change, and no other. The store must make only that change under ctx. Without an
// actor it returns ctx.
func Auditing(ctx context.Context, e AuditEntry) context.Context {
	actor, ok := ActorFrom(ctx)
	if !ok || ctx.Value(notedKey{}) != nil {
		return ctx
	}
	e.Actor = actor
	return context.WithValue(ctx, changeKey{}, e)
}

// Audit writes the entry of Auditing, if there is one, in the transaction that changed n things. It
// returns the entry's id for AuditMore.
func (h *Handle) Audit(ctx context.Context, tx *sql.Tx, n int64) (id int64, err error) {
	if noted, ok := ctx.Value(notedKey{}).(int64); ok {
		if noted == 0 {
			return 0, nil
		}
		return h.AuditMore(ctx, tx, noted, n)
	}
	e, ok := ctx.Value(changeKey{}).(AuditEntry)
	if !ok {
		return 0, nil
	}
	e.Count = n
	return h.InsertAudit(ctx, tx, []AuditEntry{e})
}

// AuditMore is Audit for several transactions: id is the entry of the first with a change.
func (h *Handle) AuditMore(ctx context.Context, tx *sql.Tx, id, n int64) (int64, error) {
	if n == 0 {
		return id, nil
	}
	if id == 0 {
		return h.Audit(ctx, tx, n)
	}
	err := h.ColdIn(ctx, tx, "audit").Where("id = ?", id).Update("amount", gorm.Expr("amount + ?", n)).Error
	return id, wrap.Err(err, "counting in the audit log")
}

// The widths of the columns, whose texts are unchecked.
const (
	MaxAuditName   = 255
	maxAuditWhat   = 32
	MaxAuditTopic  = 300
	MaxAuditDetail = 4096
)

// InsertAudit returns the id of the first entry.
func (h *Handle) InsertAudit(ctx context.Context, tx *sql.Tx, entries []AuditEntry) (first int64, err error) {
	at, now, err := h.Dialect.Millis(ctx, h.Time)
	if err != nil {
		return 0, err
	}
	err = tables.Chunks(entries, func(part []AuditEntry) error {
		a := make([]any, 0, 9*len(part))
		for _, e := range part {
			a = append(append(a, now...), tables.CutText(e.Who, MaxAuditName), tables.CutText(e.Via, 8), tables.CutText(e.User, MaxAuditName), tables.CutText(e.What, maxAuditWhat),
				tables.CutText(e.Topic, MaxAuditTopic), tables.CutText(e.TaskID, maxTaskID), tables.CutText(e.Detail, MaxAuditDetail), e.Count)
		}
		res, err := tx.ExecContext(ctx, "INSERT INTO audit (at, who, via, os_user, what, topic, task_id, detail, amount) VALUES "+
			strings.Repeat(",("+at+",?,?,?,?,?,?,?,?)", len(part))[1:], a...)
		if err == nil && first == 0 {
			first, err = res.LastInsertId()
		}
		return err
	})
	return first, wrap.Err(err, "writing %d entries of the audit log", len(entries))
}
