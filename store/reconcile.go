package store

import (
	"context"
	"fmt"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// Proof is what is known from elsewhere about a task that an older database takes for one that is still to be sent.
type Proof struct {
	Taken   int64  // Unix ms: when a dispatcher noted that it was about to send it; nobody could change it any more
	Replay  int    // the newest delivery: the replay that it belongs to
	Attempt int    // and its number, from 1
	At      int64  // Unix ms: when Kafka answered
	Refused string // why Kafka refused it for good; empty: it was acknowledged
}

// Evidence answers proofs, after a database was set back. It must know the task by more than its seq: two sources
// whose numbers collide, made again after the backup, may have exchanged them. It is asked inside transactions, so it must answer at once.
type Evidence interface {
	Of(t *task.Task) (Proof, bool)
}

// SetEvidence has the evidence take part in what Apply decides from now on: a task that is proven to
// have been sent ends, or waits for its report, before a request that came after that. For tasks
// that no request is about, see SettleProven. The store must not be used by others at the same time.
func (s *Store) SetEvidence(e Evidence) { s.evidence = e }

// claimMargin, in ms, covers how far a dispatcher takes tasks ahead of their due time, and the
// difference of two clocks. A request accepted within this margin before the claim counts as late. At
// worst both take effect; the opposite mistake would lose the request.
const claimMargin = 1000

// proven answers the proof that there is for a task and that goes beyond what its row knows.
func proven(e Evidence, t *task.Task) (Proof, bool) {
	p, ok := e.Of(t)
	return p, ok && (p.Replay > t.Replay || p.Replay == t.Replay && p.Attempt > t.Attempt)
}

// applyEvidence brings a task to where its deliveries had taken it before the change c came (nil: by
// now).
func (w *work) applyEvidence(id *identity, c *task.Change) {
	if w.store.evidence == nil || id.now == nil || w.phase(id) == task.Ended {
		return
	}
	p, ok := proven(w.store.evidence, id.now)
	if !ok || c != nil && c.Request != nil && precededClaim(c.Request, p) {
		return
	}
	body, err := schemas.DecodeBody(id.now.Body)
	if err != nil {
		return // it cannot have been sent
	}
	t := *id.now
	t.Replay, t.Attempt = p.Replay, p.Attempt
	event := schemas.Event{Topic: t.Topic, ID: t.ID, Due: t.Due, At: w.now, Attempt: t.Attempt, Lateness: max(p.At-t.Due, 0)}
	switch {
	case p.Refused != "":
		t.Attempt-- // one that was refused does not count as made
		event.State, event.Attempt, event.Lateness = schemas.StateDead, t.Attempt, 0
		event.Kind, event.Reason = schemas.KindUndeliverable, "kafka refused it: "+p.Refused
		w.dead = append(w.dead, task.NewDeadLetter(t, event.Kind, event.Reason, w.now))
		t.Slot, t.Pos, t.State = task.OutOfLine, w.now, task.StateDead
	case body.Settings.Ack == schemas.AckReport:
		event.State = schemas.StateDispatched
		t.Pos, t.State, t.Lane = p.At+body.Settings.AckTimeout.Milliseconds(), task.StateReport, task.LaneOf(t.Topic, task.ClassRetried)
	default:
		event.State = schemas.StateSucceeded
		t.Slot, t.Pos, t.State = task.OutOfLine, w.now, task.StateSucceeded
	}
	id.now = &t
	if task.Published(body.Settings.Events, event.State) {
		w.proven = append(w.proven, event)
	}
}

// precededClaim tells whether a request came before its task was claimed and left it in the line. Any
// other request has come later: otherwise there would have been no delivery.
func precededClaim(r *schemas.Request, p Proof) bool {
	stays := r.Op == schemas.OpFire || r.Op == schemas.OpSchedule && (r.Settings.IfExists == schemas.Keep || r.Settings.IfExists == schemas.Once)
	return stays && r.Accepted < p.Taken-claimMargin
}

// SettleProven takes those of these tasks that are proven to have been sent to where their deliveries had taken them. Every
// request that the intake holds must have been applied: an older one would be judged as one that came too late.
func (s *Store) SettleProven(ctx context.Context, tasks []task.Task, now int64) error {
	var b Batch
	for _, t := range tasks {
		b.Resolve = append(b.Resolve, task.Ident(t.Topic, t.ID))
	}
	if _, err := s.apply(ctx, b, now, true); err != nil {
		return fmt.Errorf("settling %d tasks that were sent: %w", len(tasks), err)
	}
	return nil
}

// Unsent reads, of the given seqs, the tasks that are proven to have been sent and that the tables take for ones that are
// still to be. There is one statement for all seqs: give it some hundreds.
func (s *Store) Unsent(ctx context.Context, seqs []int64, e Evidence) ([]task.Task, error) {
	rows, err := fetch(ctx, s.db, scanTask, "SELECT "+taskColumns+" FROM tasks WHERE seq IN ("+marks(len(seqs))+") AND pos > (SELECT done FROM slots s WHERE s.slot = tasks.slot)", args(seqs)...)
	if err != nil {
		return nil, fmt.Errorf("looking for tasks that were sent: %w", err)
	}
	out := rows[:0]
	for _, t := range rows {
		if _, ok := proven(e, &t); ok {
			out = append(out, t)
		}
	}
	return out, nil
}
