package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/letters"
)

// fleetOperations are in the first database. Commands that have the databases themselves read,
// begin and stop them as the handlers do, with the same audit and limits.
type fleetOperations struct{ *databases }

// Operations returns a page of operations, the latest first.
func (f *fleetOperations) Operations(ctx context.Context, limit int, cursor string) (Operations, error) {
	return f.operations(ctx, limit, cursor, func(admin.Operation) bool { return true })
}

// operations leaves out what the caller may not see.
func (f *fleetOperations) operations(ctx context.Context, limit int, cursor string, sees func(admin.Operation) bool) (Operations, error) {
	out := Operations{Operations: []Operation{}}
	below, _ := strconv.ParseInt(cursor, 10, 64) // it is ours, or empty
	found, err := at(ctx, f.databases, f.members[0], inTurn(func(ctx context.Context, l *Local) ([]admin.Operation, error) {
		return admin.OperationsIn(l.store).List(ctx, below, limit)
	}))
	for _, o := range found {
		if sees(o) {
			out.Operations = append(out.Operations, newOperation(o))
		}
	}
	if len(found) > 0 && len(found) == limit {
		out.Cursor = strconv.FormatInt(found[len(found)-1].ID, 10)
	}
	return out, err
}

// Operation returns one operation, or admin.ErrNoOperation.
func (f *fleetOperations) Operation(ctx context.Context, id int64) (Operation, error) {
	o, err := f.operation(ctx, id)
	return newOperation(o), err
}

func (f *fleetOperations) operation(ctx context.Context, id int64) (admin.Operation, error) {
	return soon(ctx, f.databases, f.members[0], func(ctx context.Context, l *Local) (admin.Operation, error) {
		return admin.OperationsIn(l.store).Read(ctx, id)
	})
}

// StopOperation stops a running operation, or returns admin.ErrNoOperation or
// admin.ErrOperationEnded.
func (f *fleetOperations) StopOperation(ctx context.Context, id int64) (Operation, error) {
	o, err := f.operation(ctx, id)
	if err != nil {
		return Operation{}, err
	}
	return f.stopOperation(ctx, &o)
}

func (f *fleetOperations) stopOperation(ctx context.Context, o *admin.Operation) (Operation, error) {
	ctx = outcome(ctx, o, admin.OperationStopped)
	stopped, err := soon(ctx, f.databases, f.members[0], func(ctx context.Context, l *Local) (admin.Operation, error) {
		return admin.OperationsIn(l.store).Stop(ctx, o.ID, func(result []byte) int64 { return changes(o.What, result) })
	})
	if errors.Is(err, admin.ErrOperationEnded) {
		err = fmt.Errorf("%w (%s): nothing is left to be stopped", admin.ErrOperationEnded, cmp.Or(stopped.State, "it is not running"))
	}
	return newOperation(stopped), err
}

// BeginCancelMany is CancelMany as an operation.
func (f *fleetOperations) BeginCancelMany(ctx context.Context, r CancelMany) (Operation, error) {
	j, err := cancelJob(ctx, &r)
	return f.begin(ctx, j, err)
}

// BeginReplay replays the letters of a filter, all pages of them, as an operation.
func (f *fleetOperations) BeginReplay(ctx context.Context, w letters.Filter) (Operation, error) {
	filter := newLetterFilter(w)
	j, err := f.replayJob(ctx, &ReplayRequest{LetterFilter: filter, All: !filter.selects()})
	return f.begin(ctx, j, err)
}

// BeginPurge deletes the letters of a filter, all pages of them, as an operation.
func (f *fleetOperations) BeginPurge(ctx context.Context, w letters.Filter) (Operation, error) {
	filter := newLetterFilter(w)
	j, err := f.purgeJob(ctx, &PurgeRequest{LetterFilter: filter, All: !filter.selects()})
	return f.begin(ctx, j, err)
}

// BeginBackfill is BackfillTimer as an operation.
func (f *fleetOperations) BeginBackfill(ctx context.Context, topic, id string, r Backfill) (Operation, error) {
	j, err := f.backfillJob(ctx, topic, id, &r)
	return f.begin(ctx, j, err)
}

// begin stores the operation of a job, with an entry in the audit log, unless the job was refused.
func (f *fleetOperations) begin(ctx context.Context, j *job, refused error) (Operation, error) {
	if refused != nil {
		return Operation{}, refused
	}
	request, err := json.Marshal(j)
	if err != nil {
		return Operation{}, err
	}
	withEntry := func(entry int64) ([]byte, error) {
		j.Entry = entry
		return json.Marshal(j)
	}
	actor, _ := admin.ActorFrom(ctx)
	o := admin.Operation{What: j.what(), Topic: j.topic(), TaskID: j.Timer, Tenant: tenantOf(access.From(ctx)), Who: actor.Who, Via: actor.Via, User: actor.User}
	o.Result, o.Total = []byte("{}"), j.total
	detail := admin.AuditDetail(map[string]any{"operation": j.what(), "request": string(request)})
	ctx = admin.Auditing(ctx, admin.AuditEntry{What: "operation", Topic: o.Topic, TaskID: o.TaskID, Detail: detail})
	o, err = soon(ctx, f.databases, f.members[0], func(ctx context.Context, l *Local) (admin.Operation, error) {
		return admin.OperationsIn(l.store).Begin(ctx, o, withEntry)
	})
	if errors.Is(err, admin.ErrOperations) {
		err = admin.ErrOperations // all that there is to say
	}
	return newOperation(o), err
}

// The requests are checked as those without async are, before the operation exists.

// errDry: a dry run needs no operation, and an operation would look like the deed.
var errDry = wrong("dry_run", "true", "changes nothing, so no operation is needed: leave it or async out")

func notDry(dry bool) error {
	if dry {
		return errDry
	}
	return nil
}

func cancelJob(ctx context.Context, r *CancelMany) (*job, error) {
	j := newJob(ctx)
	j.Cancel = r
	return j, cmp.Or(notDry(r.DryRun), r.check())
}

func (f *fleetOperations) replayJob(ctx context.Context, r *ReplayRequest) (*job, error) {
	j := newJob(ctx)
	j.Replay = r
	return j, cmp.Or(notDry(r.DryRun), f.bound(ctx, &r.LetterFilter, r.All, r.Limit))
}

func (f *fleetOperations) purgeJob(ctx context.Context, r *PurgeRequest) (*job, error) {
	j := newJob(ctx)
	j.Purge = r
	return j, cmp.Or(notDry(r.DryRun), f.bound(ctx, &r.LetterFilter, r.All, r.Limit))
}

// mostIDs is how many letters a request names, as its schema says.
const mostIDs = 1000

// bound checks a filter, and leaves out the letters of later deaths: nobody has asked for these.
func (f *fleetOperations) bound(ctx context.Context, w *LetterFilter, all bool, limit int) error {
	if limit != 0 {
		return wrong("limit", strconv.Itoa(limit), "bounds one page, and an operation makes all of them: leave limit out")
	}
	if len(w.IDs) > mostIDs {
		return wrong("ids", "", fmt.Sprintf("are more than %d: name fewer, or set a filter", mostIDs))
	}
	if err := guard(*w, all); err != nil {
		return err
	}
	now, err := f.time(ctx, f.members[0])
	if until := w.Until.Millis(); err == nil && (until == 0 || until > now.UnixMilli()) {
		w.Until = At(now.UnixMilli() + 1)
	}
	return err
}

func (f *fleetOperations) backfillJob(ctx context.Context, topic, id string, r *Backfill) (*job, error) {
	if err := notDry(r.DryRun); err != nil {
		return nil, err
	}
	j := newJob(ctx)
	dry := *r
	dry.DryRun = true
	would, err := (*fleetTimers)(f).BackfillTimer(context.WithValue(ctx, budgetKey{}, time.Second), topic, id, dry)
	j.Backfill, j.Target, j.Timer, j.Counted = r, topic, id, true
	if would.Next == 0 {
		j.total = int64(would.Made + would.Existing + would.Coming + would.Forgotten)
	}
	if err == nil && r.To == (Instant{}) { // now is when it was asked for
		var now time.Time
		now, err = f.time(ctx, f.of(topic)[0])
		r.To = At(now.UnixMilli())
	}
	return j, err
}
