package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
)

// Operator makes the steps of operations. Each service has one; the lease of an operation says
// whose its next step is. A step is what the request without async does, with the cursor of the
// step before: a step that is made twice, because its process died before it was stored, harms
// nothing.
type Operator struct {
	fleet  *Fleet
	holder string
	log    *zap.Logger
}

// NewOperator returns an Operator over the databases.
func NewOperator(fleet *Fleet, log *zap.Logger) *Operator {
	return &Operator{fleet, rand.Text(), log}
}

const (
	// operateEvery is how often a service looks for operations.
	operateEvery = 500 * time.Millisecond
	// operators is how many steps a service makes at a time, so that a slow one does not hold up
	// all others.
	operators = 2
	// stepFor is how long a step changes things. Then its progress is stored, and the operation
	// whose last step was longest ago is next.
	stepFor = time.Second
	// stepWithin bounds a step with its waits.
	stepWithin = time.Minute
	// holdEvery is how often the lease of a step is kept, and how soon a step hears of its stop.
	holdEvery = time.Second
	// decidedWithin is how long a stopped cancel waits for scanners that decide its last step.
	decidedWithin = 2 * time.Second
	// endWithin bounds the storing of a step.
	endWithin = 5 * time.Second
	// countSteps is how many steps count. Then the total stays unknown.
	countSteps = 15
)

// Run makes steps until ctx ends.
func (o *Operator) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for range operators {
		all.Go(func() {
			loop.Every(ctx, operateEvery, func(ctx context.Context) {
				for o.next(ctx) {
				}
			})
		})
	}
	all.Wait()
	return nil
}

// next makes one step. False: there is none to be made now.
func (o *Operator) next(ctx context.Context) bool {
	l := o.fleet.members[0].local.Load()
	if l == nil {
		return false
	}
	db := admin.OperationsIn(l.store)
	bound, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	op, err := db.Take(bound, o.holder+strconv.FormatInt(time.Now().UnixNano(), 36))
	if err != nil && ctx.Err() == nil {
		o.log.Debug("operations cannot be read", zap.Error(err))
	}
	if op == nil || err != nil {
		return false
	}
	state, err := o.step(ctx, db, op)
	if op.Why = ""; err != nil && ctx.Err() == nil {
		op.Why = err.Error()
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	end = outcome(admin.WithActor(end, op.Actor()), op, state)
	failed := db.EndStep(end, op, state)
	if errors.Is(failed, admin.ErrOperationEnded) {
		return true // it was stopped
	}
	if failed != nil {
		o.log.Warn("the step of an operation cannot be stored, and will be made again", zap.Int64("operation", op.ID), zap.Error(failed))
		return false
	}
	return err == nil && ctx.Err() == nil
}

// step makes a step and keeps the lease meanwhile.
func (o *Operator) step(ctx context.Context, db admin.Operations, op *admin.Operation) (state string, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	held := *op // the step changes op
	var holding sync.WaitGroup
	defer holding.Wait()
	defer stop(nil)
	holding.Go(func() {
		for loop.Rest(ctx, holdEvery) == nil {
			if err := db.Hold(ctx, &held); errors.Is(err, admin.ErrOperationEnded) {
				stop(err)
			}
		}
	})
	if shownFigures[op.What] == nil {
		return admin.OperationRuns, fmt.Errorf("this service does not know %q: one of a later release goes on", op.What)
	}
	var j job
	if err := json.Unmarshal(op.Request, &j); err != nil {
		return admin.OperationFailed, err
	}
	caller := access.Caller{Name: op.Who, Tenant: op.Tenant}
	if j.Reserve {
		caller.Role, caller.Topics = access.Admin, access.Everything
	}
	changing := admin.Noted(admin.WithActor(access.With(ctx, caller), op.Actor()), o.entry(&j))
	ended, err := o.work(context.WithValue(changing, budgetKey{}, stepFor), &j, op)
	stopped := errors.Is(context.Cause(ctx), admin.ErrOperationEnded)
	sound := context.WithoutCancel(ctx)
	if stopped && j.Cancel != nil {
		_ = loop.Rest(sound, decidedWithin)
	}
	err = cmp.Or(err, o.correct(sound, db, &j, op))
	op.Entry, op.Changes = j.Entry, changes(op.What, op.Result)
	if request, failed := json.Marshal(&j); failed == nil {
		op.Request = request
	}
	if op.Total > 0 {
		op.Total = max(op.Total, op.Done)
	}
	var status huma.StatusError
	switch {
	case err == nil && ended && !stopped:
		op.Total = op.Done
		return admin.OperationDone, nil
	case err != nil && errors.As(problem(err), &status) && status.GetStatus() < http.StatusInternalServerError:
		return admin.OperationFailed, err // no other try would end otherwise
	}
	return admin.OperationRuns, err
}

// entry is where the changes of a job count. Several databases have a log each, and count nowhere.
func (o *Operator) entry(j *job) int64 {
	if len(o.fleet.members) > 1 {
		return 0
	}
	return j.Entry
}

// correct brings the result up to the count in the audit log.
func (o *Operator) correct(ctx context.Context, db admin.Operations, j *job, op *admin.Operation) error {
	n := int64(0)
	if entry := o.entry(j); entry > 0 && j.Counted {
		ctx, cancel := context.WithTimeout(ctx, endWithin)
		defer cancel()
		var err error
		if n, err = db.AuditCount(ctx, entry); err != nil {
			return err
		}
	}
	more := func(counted int64) int64 {
		lacking := max(n-counted, 0)
		op.Done += lacking
		return counted + lacking
	}
	switch {
	case n == 0:
		return nil
	case j.Cancel != nil:
		return add(op, func(all *CancelledMany) {
			all.Cancelled = more(all.Cancelled)
			all.Matched = max(all.Matched, all.Cancelled+all.TooLate)
		})
	case j.Replay != nil:
		return add(op, func(all *ReplayedMany) { all.Replayed = more(all.Replayed) })
	case j.Purge != nil:
		return add(op, func(all *deadletter.Purged) { all.Deleted = more(all.Deleted) })
	}
	return add(op, func(all *Backfilled) { // a repeated step finds the runs of the first try
		again := min(max(int(n)-all.Made, 0), all.Existing)
		all.Made, all.Existing = all.Made+again, all.Existing-again
	})
}

// work counts, or changes some more. ended: nothing is left.
func (o *Operator) work(ctx context.Context, j *job, op *admin.Operation) (ended bool, err error) {
	if !j.Counted {
		err = o.count(ctx, j, op)
		return false, err
	}
	ends := time.Now().Add(stepFor)
	switch {
	case j.Cancel != nil:
		ended, err = o.cancel(ctx, j.Cancel, op)
	case j.Replay != nil:
		for !ended && err == nil && time.Now().Before(ends) {
			ended, err = o.replay(ctx, j.Replay, op)
		}
	case j.Purge != nil:
		for !ended && err == nil && time.Now().Before(ends) {
			ended, err = o.purge(ctx, j.Purge, op)
		}
	default:
		ended, err = o.backfill(ctx, j, op)
	}
	return ended, err
}

// count goes on with the counting.
func (o *Operator) count(ctx context.Context, j *job, op *admin.Operation) error {
	var n int64
	var next string
	var missing []int
	var err error
	if j.Cancel != nil {
		r := *j.Cancel
		r.DryRun = true
		if j.CountFrom != "" {
			r.Cursor = j.CountFrom
		}
		var out CancelledMany
		out, err = o.fleet.CancelMany(ctx, r)
		n, next, missing = out.Matched, out.Cursor, out.Missing
	} else {
		f := LetterFilter{}
		var after int64
		if j.Replay != nil {
			f, after = j.Replay.LetterFilter, j.Replay.After
		} else {
			f, after = j.Purge.LetterFilter, j.Purge.After
		}
		if j.CountFrom != "" {
			after, _ = strconv.ParseInt(j.CountFrom, 10, 64) // it is ours
		}
		n, after, missing, err = o.fleet.countInTurn(ctx, f.store(0, after))
		if after > 0 {
			next = strconv.FormatInt(after, 10)
		}
	}
	switch {
	case err != nil:
		return err
	case len(missing) > 0: // the total stays unknown: the other databases' part does not wait
		j.Counted = true
		return nil
	}
	j.CountedSoFar += n
	j.Counts++
	j.CountFrom, j.Counted = next, next == "" || j.Counts >= countSteps
	if next == "" {
		op.Total = j.CountedSoFar
	}
	return nil
}

// add brings a step's answer into the result of all steps.
func add[T any](op *admin.Operation, merge func(all *T)) error {
	var all T
	if err := json.Unmarshal(op.Result, &all); err != nil {
		return err
	}
	merge(&all)
	result, err := json.Marshal(&all)
	op.Result = result
	return err
}

func (o *Operator) cancel(ctx context.Context, r *CancelMany, op *admin.Operation) (ended bool, err error) {
	out, err := o.fleet.CancelMany(ctx, *r)
	op.Done += out.Matched
	lacks := lacking(out.Missing)
	ended = out.Cursor == "" && lacks == nil && err == nil
	if lacks == nil && out.Cursor != "" {
		r.Cursor = out.Cursor
	}
	return ended, errors.Join(err, lacks, add(op, func(all *CancelledMany) {
		all.Cancelled, all.TooLate, all.Matched = all.Cancelled+out.Cancelled, all.TooLate+out.TooLate, all.Matched+out.Matched
	}))
}

func (o *Operator) replay(ctx context.Context, r *ReplayRequest, op *admin.Operation) (ended bool, err error) {
	filter := r.store(r.Limit, r.After)
	filter.Settled = op.Created // a step that is made twice replays nothing twice
	out, err := o.fleet.replayPage(ctx, filter, r.UpTo, false, changing[deadletter.Page])
	if err != nil {
		return false, err
	}
	lacks := lacking(out.Missing)
	if lacks == nil {
		r.After, r.UpTo = out.Next, out.UpTo
	} else { // the page comes again, with the letters that are skipped
		out.Letters = slices.DeleteFunc(out.Letters, func(l intake.Replayed) bool { return l.Skipped != "" })
	}
	op.Done += int64(len(out.Letters))
	return out.Next == 0 && lacks == nil, errors.Join(lacks, add(op, func(all *ReplayedMany) {
		for _, l := range out.Letters {
			if l.Skipped == "" {
				all.Replayed++
			} else {
				all.Skipped++
			}
		}
		letters := append(all.Letters, out.Letters...)
		out.Letters = letters[max(0, len(letters)-lettersShown):]
		out.At, out.Missing = cmp.Or(all.At, out.At), nil
		all.Page = out
	}))
}

// lettersShown is how many letters the result of a replay has.
const lettersShown = 100

// ReplayedMany is the result of a replay that is an operation.
type ReplayedMany struct {
	deadletter.Page       // with the last letters
	Replayed        int64 `json:"replayed"`
	Skipped         int64 `json:"skipped"`
}

func (o *Operator) purge(ctx context.Context, r *PurgeRequest, op *admin.Operation) (ended bool, err error) {
	out, err := o.fleet.purgePage(ctx, r.store(r.Limit, r.After), r.UpTo, changing[deadletter.Purged])
	op.Done += out.Deleted
	lacks := lacking(out.Missing)
	if lacks == nil && err == nil {
		r.After, r.UpTo = out.Next, out.UpTo
	}
	return out.Next == 0 && lacks == nil && err == nil, errors.Join(err, lacks, add(op, func(all *deadletter.Purged) {
		out.Deleted, out.Missing = out.Deleted+all.Deleted, nil
		*all = out
	}))
}

func (o *Operator) backfill(ctx context.Context, j *job, op *admin.Operation) (ended bool, err error) {
	r := *j.Backfill
	r.From = cmp.Or(j.Next, r.From)
	out, err := o.fleet.BackfillTimer(ctx, j.Target, j.Timer, r)
	if out.Next > 0 {
		j.Next = At(out.Next)
	}
	op.Done += int64(out.Made + out.Existing + out.Coming + out.Forgotten)
	return out.Next == 0, errors.Join(err, add(op, func(all *Backfilled) {
		all.Made, all.Existing, all.Coming, all.Forgotten, all.BeforeSet = all.Made+out.Made, all.Existing+out.Existing, all.Coming+out.Coming, all.Forgotten+out.Forgotten, all.BeforeSet+out.BeforeSet
	}))
}

// lacking is the error of a step that some databases did not answer: it is made again.
func lacking(missing []int) error {
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("databases %v do not answer: the operation goes on when they do", missing)
}
