package deadletter

import (
	"context"
	"strings"

	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/letters"
)

// auditing makes the store note a change of the letters of a filter.
func auditing(ctx context.Context, what string, f letters.Filter) context.Context {
	return admin.Auditing(ctx, admin.AuditEntry{What: what, Topic: f.Topic, TaskID: f.TaskID, Detail: admin.AuditDetail(map[string]any{
		"ids": f.IDs, "kind": f.Kind, "topic": f.Topic, "task_id": f.TaskID, "tag": f.Tag, "reason": f.Reason, "since": f.Since, "until": f.Until, "replayed": f.Replayed, "after": f.After,
	})})
}

// operator is the replaying actor, as the letters keep the name.
func (l *Local) operator(ctx context.Context) string {
	if actor, ok := admin.ActorFrom(ctx); ok {
		return actor.String()
	}
	return l.by
}

// noteReconcile notes a reconciliation and its findings before the first change: an interrupted one
// has changed something too.
func (l *Local) noteReconcile(ctx context.Context, r Reconcile, found Reconciled) error {
	actor, ok := admin.ActorFrom(ctx)
	if !ok {
		return nil
	}
	return admin.New(l.store).Audit(ctx, []admin.AuditEntry{{Actor: actor, What: "reconcile", Count: int64(found.Left), Detail: admin.AuditDetail(map[string]any{
		"send_logs": strings.Join(r.Logs, ", "), "since": found.Since, "topics": r.Topics,
	})}})
}
