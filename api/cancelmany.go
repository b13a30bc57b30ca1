package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
)

// CancelMany selects the tasks to cancel. Without a filter, All must be true.
type CancelMany struct {
	Topic    string `json:"topic,omitempty"     doc:"only this target topic"`
	IDPrefix string `json:"id_prefix,omitempty" doc:"only ids that begin so"                                       maxLength:"255"`
	Prefix   string `json:"id-prefix,omitempty" doc:"the same as id_prefix"                                        maxLength:"255"`
	Tag      string `json:"tag,omitempty"       doc:"only tasks with this tag"                                         maxLength:"64"   minLength:"1"`
	From     int64  `json:"from,omitempty"      doc:"only what is due at or after, Unix ms"                        minimum:"0"`
	To       int64  `json:"to,omitempty"        doc:"only what is due before, Unix ms"                             minimum:"0"`
	All      bool   `json:"all,omitempty"       doc:"without a filter: really all of them"`
	DryRun   bool   `json:"dry_run,omitempty"   doc:"only count what matches, and change nothing"`
	Cursor   string `json:"cursor,omitempty"    doc:"that of the answer before, to go on where its time had ended" maxLength:"1000"`
}

// CancelledMany is what one request has done.
type CancelledMany struct {
	Cancelled int64  `json:"cancelled"        doc:"no delivery follows"`
	TooLate   int64  `json:"too_late"         doc:"were or will be delivered, or are dead"`
	Matched   int64  `json:"matched"          doc:"tasks that the filter selects, of those that this request came to"`
	Cursor    string `json:"cursor,omitempty" doc:"the request's time has ended: send it again with this cursor; absent: that were all"`
}

func (r *CancelMany) selects() bool {
	return r.Topic != "" || r.IDPrefix != "" || r.Tag != "" || r.From != 0 || r.To != 0
}

// check finds mistakes, and makes one of both names of the prefix.
func (r *CancelMany) check() error {
	if r.Prefix != "" && r.IDPrefix != "" && r.Prefix != r.IDPrefix {
		return wrong("id_prefix", r.IDPrefix, "stands beside another id-prefix: send one of them")
	}
	r.IDPrefix = cmp.Or(r.IDPrefix, r.Prefix)
	if err := errors.Join(checkTag(r.Tag), checkInstant("from", r.From), checkInstant("to", r.To)); err != nil {
		return err
	}
	switch {
	case len(r.IDPrefix) > schemas.MaxIDLen:
		return wrong("id_prefix", r.IDPrefix, fmt.Sprintf("is longer than an id, which has at most %d bytes", schemas.MaxIDLen))
	case r.To > 0 && r.To <= r.From:
		return wrong("to", fmt.Sprint(r.To), "is not after from: write a later time in Unix ms")
	case !r.selects() && !r.All:
		return wrong("all", "", "no filter: name what is meant, or set all to true")
	case r.selects() && r.All:
		return wrong("all", "true", "stands beside a filter: send one of them")
	}
	return nil
}

// CancelMany cancels the tasks that are stored and match, a piece at a time, each in turn with pieces
// of other callers. After each transaction CancelMany rests as long as the transaction took, which
// leaves half of the database's time to everybody else. When the time of the request has ended, the
// answer has a cursor. After an error, tasks that were cancelled stay cancelled; the audit log says how
// many.
func (l *Local) CancelMany(ctx context.Context, r CancelMany) (CancelledMany, error) {
	var out CancelledMany
	if err := r.check(); err != nil {
		return out, err
	}
	r.Topic = schemas.TargetName(r.Topic)
	after, err := parseCursor(r.Cursor)
	if err != nil {
		return out, err
	}
	ends := time.Now().Add(l.cancelFor)
	if r.DryRun {
		return l.countMany(ctx, r, after, ends)
	}
	ctx = admin.Auditing(ctx, admin.AuditEntry{What: "cancel many", Topic: r.Topic, Detail: admin.AuditDetail(map[string]any{
		"topic": r.Topic, "id_prefix": r.IDPrefix, "tag": r.Tag, "from": r.From, "to": r.To, "all": r.All,
	})})
	f := intake.CancelFilter{Topic: r.Topic, IDPrefix: r.IDPrefix, Tag: r.Tag, From: r.From, To: r.To, After: after, Ends: ends}
	turn := ctx
	for entry := int64(0); ; turn = waiting(ctx) {
		leave, err := l.changes.take(turn, 1)
		if errors.Is(err, ErrTurn) && out.Cursor != "" {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		done, err := intake.New(l.store).CancelPiece(ctx, f, entry, loop.Rest)
		leave()
		out.Cancelled, out.TooLate, entry = out.Cancelled+done.Cancelled, out.TooLate+done.TooLate, done.Entry
		out.Matched = out.Cancelled + out.TooLate
		if l.Unindex != nil && len(done.Removed) > 0 {
			l.Unindex(ctx, done.Removed)
		}
		if err != nil {
			return out, fmt.Errorf("after %d tasks were cancelled: %w", out.Cancelled, err)
		}
		f.After = done.More
		if out.Cursor = formatCursor(done.More); done.More == nil || time.Now().After(ends) {
			return out, nil
		}
	}
}

// countMany counts the tasks that match. Each page is one of the few lists that may be read at a time.
// Between pages countMany rests, so a count delays neither cancels nor lists.
func (l *Local) countMany(ctx context.Context, r CancelMany, after *look.ListPlace, ends time.Time) (out CancelledMany, err error) {
	f := look.ListFilter{Topic: r.Topic, IDPrefix: r.IDPrefix, Tag: r.Tag, From: r.From, To: r.To, Limit: 1000, After: after}
	for turn := ctx; ; turn = waiting(ctx) {
		began := time.Now()
		page, err := listing(turn, l, func(ctx context.Context) (look.ListPage, error) { return look.New(l.store).List(ctx, f) })
		if errors.Is(err, ErrTurn) && out.Cursor != "" {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out.Matched += int64(len(page.Tasks))
		f.After = page.More
		if out.Cursor = formatCursor(page.More); page.More == nil || time.Now().After(ends) {
			return out, nil
		}
		if err := loop.Rest(ctx, time.Since(began)); err != nil {
			return out, err
		}
	}
}

// CancelMany cancels the tasks that match. It may answer with a cursor, as the service does.
func (c *Client) CancelMany(ctx context.Context, r CancelMany) (CancelledMany, error) {
	return post[CancelledMany](ctx, c, "/tasks/cancel-many", r, nil)
}

type cancelManyInput struct{ Body CancelMany }

func (in *cancelManyInput) scope(c access.Caller) error { return withinTopics(c, in.Body.Topic) }

func (s *server) cancelMany(ctx context.Context, in *cancelManyInput) (out CancelledMany, err error) {
	err = s.cursors.page(ctx, "cancel-many", &in.Body.Cursor, &out.Cursor, func() (err error) {
		out, err = s.local.CancelMany(ctx, in.Body)
		return err
	})
	return out, err
}
