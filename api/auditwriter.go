package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
)

// Limits of the waiting entries, and how long a caller waits for its own.
const (
	auditWaiting = 5000
	auditPiece   = 500
	auditTimeout = 5 * time.Second
)

// auditor writes the entries about requests through Kafka, before the sending. Callers that come
// while one statement runs share the next one. So all callers use one connection to the database.
type auditor struct {
	audit func(context.Context, []admin.AuditEntry) error

	mu      sync.Mutex
	waiting []*auditWrite
	writing bool
}

type auditWrite struct {
	entry admin.AuditEntry
	done  chan error // has room for one
}

// write returns once the entry is stored. After an error the entry may be stored or not.
func (a *auditor) write(ctx context.Context, e admin.AuditEntry) error {
	w := &auditWrite{e, make(chan error, 1)}
	a.mu.Lock()
	if len(a.waiting) >= auditWaiting {
		a.mu.Unlock()
		return fmt.Errorf("%w (%d others wait for it)", ErrAudit, auditWaiting)
	}
	a.waiting = append(a.waiting, w)
	if !a.writing {
		a.writing = true
		go a.run()
	}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w (the database has not answered in %s)", ErrAudit, auditTimeout)
	}
}

func (a *auditor) run() {
	for {
		a.mu.Lock()
		part := a.waiting[:min(len(a.waiting), auditPiece)]
		a.waiting = a.waiting[len(part):]
		if len(part) == 0 {
			a.waiting, a.writing = nil, false
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		entries := make([]admin.AuditEntry, len(part))
		for i, w := range part {
			entries[i] = w.entry
		}
		ctx, cancel := context.WithTimeout(context.Background(), auditTimeout)
		err := a.audit(ctx, entries)
		cancel()
		if err != nil {
			err = fmt.Errorf("%w (%w)", ErrAudit, err)
		}
		for _, w := range part {
			w.done <- err
		}
	}
}

// noteRecord writes the entry about a record for an intake topic.
func (f *Fleet) noteRecord(ctx context.Context, r *kgo.Record) error {
	actor, _ := admin.ActorFrom(ctx)
	e, err := Requested(r)
	if err != nil {
		return err
	}
	e.Actor = actor
	return f.note(ctx, e)
}

// Requested returns the entry about a record for an intake topic, without its actor.
func Requested(r *kgo.Record) (admin.AuditEntry, error) {
	req, err := schemas.Decode(r, anyLimits)
	if err != nil {
		return admin.AuditEntry{}, fmt.Errorf("reading what is to be published: %w", err)
	}
	e := admin.AuditEntry{What: req.Op.String(), Topic: req.Topic, TaskID: req.ID, Count: 1}
	if !req.GivenID {
		e.TaskID = "" // made of the position that it has once Kafka has it
	}
	detail := map[string]any{"due": req.Due, "intake": r.Topic}
	if req.Version >= 0 {
		detail["version"] = fmt.Sprint(req.Version)
	}
	e.Detail = admin.AuditDetail(detail)
	return e, nil
}
