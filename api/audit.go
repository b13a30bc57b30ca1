package api

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
)

// AuditEntry is one change through the API or the command line.
type AuditEntry struct {
	ID    int64           `json:"id"`
	At    int64           `json:"at"              doc:"Unix ms"`
	Who   string          `json:"who"             doc:"name of the token; jwt: and the name of a caller whom the issuer in http.jwt knows; user@host of a command that works on the database itself; not signed in: of callers who were refused"`
	Via   string          `json:"via"             doc:"api or cli"`
	User  string          `json:"user,omitempty"  doc:"of a command that used a token: user@host, as it says"`
	What  string          `json:"what"            doc:"schedule, cancel, stop, fire, replay, purge, operation, reconcile, sign-in refused, …"`
	Topic string          `json:"topic,omitempty" doc:"target topic; absent: several"`
	Task  string          `json:"task,omitempty"  doc:"id of the task; absent: several, or not known before Kafka had the request"`
	Count int64           `json:"count"           doc:"how many were changed; of a request that goes through Kafka, how many it asks to change"`
	Extra json.RawMessage `json:"filter"          doc:"the filter, or what else was said; long values are cut"`
}

func newAuditEntry(e admin.AuditEntry) AuditEntry {
	valid := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
	out := AuditEntry{
		ID: e.ID, At: e.At, Who: valid(e.Who), Via: e.Via, User: valid(e.User), What: e.What, Topic: valid(e.Topic), Task: valid(e.TaskID), Count: e.Count,
		Extra: json.RawMessage(e.Detail),
	}
	if !json.Valid(out.Extra) {
		out.Extra = json.RawMessage("{}")
	}
	return out
}

// AuditLog is a page of the audit log. A page can be short or empty without being the last.
type AuditLog struct {
	Entries []AuditEntry `json:"audit"`
	Cursor  string       `json:"cursor,omitempty" doc:"give it back for the next page; absent: that was the last"`
	Partial
}

// AuditFilter selects entries of the audit log.
type AuditFilter struct {
	Who    string  `query:"who"    doc:"only changes by this token, or user@host"`
	What   string  `query:"what"   doc:"only changes of this kind, such as cancel"`
	Topic  string  `query:"topic"  doc:"only changes about this target topic"`
	TaskID string  `query:"id"     doc:"only changes of the task with this id"`
	From   Instant `query:"from"   doc:"only changes at or after: RFC 3339 or Unix ms"`
	To     Instant `query:"to"     doc:"only changes before"`
	Limit  int     `query:"limit"  default:"100"                                                       maximum:"1000" minimum:"1"`
	Cursor string  `query:"cursor" doc:"that of the page before"                                      maxLength:"1000"`
	// Allowed reports whether an entry about the topic may be listed. nil: all.
	Allowed func(topic string) bool
}

const auditCursor = "%d.%d"

// Audit returns a page of the audit log, the newest entries first.
func (l *Local) Audit(ctx context.Context, f AuditFilter) (AuditLog, error) {
	wanted := look.AuditFilter{Who: f.Who, What: f.What, Topic: schemas.TargetName(f.Topic), TaskID: f.TaskID, From: f.From.Millis(), To: f.To.Millis(), Limit: f.Limit, Allowed: f.Allowed}
	if f.Cursor != "" {
		after, err := parseAuditCursor(f.Cursor)
		if err != nil {
			return AuditLog{}, err
		}
		wanted.After = after
	}
	out := AuditLog{Entries: []AuditEntry{}}
	page, err := listing(ctx, l, func(ctx context.Context) (look.AuditPage, error) { return look.New(l.store).ListAudit(ctx, wanted) })
	for _, e := range page.Entries {
		out.Entries = append(out.Entries, newAuditEntry(e))
	}
	if page.More != nil {
		out.Cursor = formatAuditCursor(*page.More)
	}
	return out, err
}

func formatAuditCursor(p look.AuditPlace) string { return fmt.Sprintf(auditCursor, p.At, p.ID) }

func parseAuditCursor(text string) (*look.AuditPlace, error) {
	var p look.AuditPlace
	if _, err := fmt.Sscanf(text, auditCursor, &p.At, &p.ID); err != nil || formatAuditCursor(p) != text {
		return nil, wrong("cursor", text, "is none that this list has answered: give back the one of the page before, or leave it out")
	}
	return &p, nil
}

// Audit returns a page of the audit log.
func (c *Client) Audit(ctx context.Context, f AuditFilter) (AuditLog, error) {
	return get[AuditLog](ctx, c, "/audit", f, nil)
}

func (f *AuditFilter) scope(c access.Caller) error { return withinListed(c, f.Topic) }

func (s *server) listAudit(ctx context.Context, f *AuditFilter) (out AuditLog, err error) {
	f.Allowed = allowed(ctx)
	err = s.cursors.page(ctx, "audit", &f.Cursor, &out.Cursor, func() (err error) {
		out, err = s.fleet.Audit(ctx, *f)
		return err
	})
	return out, err
}

// Noted is a request for the audit log.
type Noted struct {
	What  string `json:"what"           doc:"op of the request"                         enum:"schedule,cancel,stop,fire,timer,timer-enable,timer-disable,timer-delete"`
	Topic string `json:"topic"          doc:"target topic"                              maxLength:"300"`
	Task  string `json:"task,omitempty" doc:"id of the task, where the caller gave one" maxLength:"255"`
}

type noteInput struct{ Body Noted }

func (in *noteInput) scope(c access.Caller) error { return withinTopics(c, in.Body.Topic) }

func (s *server) noteRequest(ctx context.Context, in *noteInput) (*struct{}, error) {
	actor, _ := admin.ActorFrom(ctx)
	e := admin.AuditEntry{Actor: actor, What: in.Body.What, Topic: in.Body.Topic, TaskID: in.Body.Task, Detail: "{}", Count: 1}
	return nil, s.fleet.note(ctx, e)
}

// Note writes a request into the audit log of the service.
func (c *Client) Note(ctx context.Context, n Noted) error {
	_, err := post[struct{}](ctx, c, "/audit", n, nil)
	return err
}
