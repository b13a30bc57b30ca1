package admin

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// endedSessions begins the names of rows in meta with sessions of the console ended by operators.
// The value is the session's natural end, Unix ms.
const endedSessions = "session.ended."

const (
	MostEndedSessions = 10_000
	// endedMemory is how long, in ms, a row outlives its session: clocks of services may differ.
	endedMemory = 3_600_000
)

// ErrTooManyEnded: of an owner, or of all, so many sessions were ended that no other is noted.
var ErrTooManyEnded = errors.New("too many sessions were ended before their time")

// EndSession notes the end of a session that was good until then (Unix ms). The id is the owner, a
// dot, and more; each owner has a share of the rows. No row makes room for another: an ended
// session would be good again.
func (a Admin) EndSession(ctx context.Context, id string, until int64) error {
	now, err := a.h.Time(ctx)
	if err != nil {
		return err
	}
	err = a.h.Transact(ctx, func(tx *sql.Tx) error {
		const these = " FROM meta WHERE name > ? AND name < ?"
		if _, err := tx.ExecContext(ctx, "DELETE"+these+" AND value < ?", []byte(endedSessions), []byte(endedSessions+"~"), now.UnixMilli()-endedMemory); err != nil {
			return err
		}
		var noted bool
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM meta WHERE name = ?)", []byte(endedSessions+id)).Scan(&noted); err != nil || noted {
			return err
		}
		owner, _, _ := strings.Cut(id, ".")
		var all, held int
		for prefix, n := range map[string]*int{endedSessions: &all, endedSessions + owner + ".": &held} {
			if err := tx.QueryRowContext(ctx, "SELECT COUNT(*)"+these, []byte(prefix), []byte(prefix+"~")).Scan(n); err != nil {
				return err
			}
		}
		if !share.Has(MostEndedSessions-all, held) {
			return ErrTooManyEnded
		}
		return handle.EnsureMeta(ctx, tx, []byte(endedSessions+id), until)
	})
	return wrap.Err(err, "ending a session of the console")
}

// EndedSessions returns the ids of ended sessions, and until when each could be used.
func (a Admin) EndedSessions(ctx context.Context) (map[string]time.Time, error) {
	out := map[string]time.Time{}
	_, err := tables.Fetch(ctx, a.h.DB, func(r *sql.Rows, id *string) error {
		var until int64
		err := r.Scan(id, &until)
		out[(*id)[len(endedSessions):]] = time.UnixMilli(until)
		return err
	}, "SELECT name, value FROM meta WHERE name > ? AND name < ?", []byte(endedSessions), []byte(endedSessions+"~"))
	return out, wrap.Err(err, "reading the sessions of the console that were ended")
}
