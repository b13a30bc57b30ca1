package admin

import (
	"context"
	"database/sql"
	"errors"

	"gorm.io/gorm"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
)

// Operation is a change of many that the services make by themselves, a step at a time. Whichever
// process holds its lease makes the next step: a process that dies loses the lease, and the step is
// made again.
type Operation struct {
	ID     int64
	What   string `gorm:"size:32;serializer:text"`
	Topic  string `gorm:"size:300;serializer:text"` // "": several
	TaskID string `gorm:"size:255;serializer:text"` // of a timer
	Tenant string `gorm:"size:255;serializer:text"`
	Who    string `gorm:"size:255;serializer:text"`
	Via    string `gorm:"size:8;serializer:text"`
	User   string `gorm:"column:os_user;size:255;serializer:text"`
	State  string `gorm:"size:8;serializer:text"`
	Progress
	Created int64  // Unix ms, as the following
	Changed int64  // its last step
	Lease   int64  // until then its holder makes a step
	Holder  string `gorm:"size:64;serializer:text"`
}

// Operations are those of an installation, in its first database.
type Operations struct{ Admin }

// OperationsIn makes the Operations of a store.
func OperationsIn(st handle.Source) Operations { return Operations{New(st)} }

// Progress is what a step of an operation changes.
type Progress struct {
	Done, Total int64
	Request     []byte // what is asked for, and how far it has come
	Result      []byte // so far
	Why         string `gorm:"size:1000;serializer:text"` // the last error
	Entry       int64  `gorm:"-"`                         // the one in the audit log of who asked; 0: it counts by itself
	Changes     int64  `gorm:"-"`                         // how many were changed so far
}

// The states of an operation.
const (
	OperationRuns    = "running"
	OperationDone    = "done"
	OperationFailed  = "failed"
	OperationStopped = "stopped"
)

// Actor is who asked for it.
func (o *Operation) Actor() Actor { return Actor{Who: o.Who, Via: o.Via, User: o.User} }

const (
	// RunningOperations is how many operations of a tenant run at a time.
	RunningOperations = 10
	// EndedOperations is how many ended operations of a tenant are remembered.
	EndedOperations = 100
	// OperationLease is how long, in ms, a step is its holder's without a sign of life.
	OperationLease = 5_000
	// operationRetry is how long, in ms, a failed step is not made again.
	operationRetry = 10_000
	// operationStale is for how long, in ms, no step may have been made: the database was restored,
	// or no service ran. Nobody wants the rest of the change by then.
	operationStale = 3_600_000
)

var (
	// ErrOperations: the tenant has as many running operations as it may.
	ErrOperations = errors.New("10 operations are running for you: wait until one has ended, or stop one")
	// ErrNoOperation: there is no operation with the id.
	ErrNoOperation = errors.New("there is no operation with this id")
	// ErrOperationEnded: the operation does not run any more, or another process makes the step.
	ErrOperationEnded = errors.New("the operation has ended")
)

// operationsLock is the name of the row in meta that begins of operations lock.
var operationsLock = []byte("operations")

// Begin stores a new operation, with the audit entry of Auditing, and forgets the tenant's
// oldest ended ones. request makes its Request, with the id of that entry.
func (a Operations) Begin(ctx context.Context, o Operation, request func(entry int64) ([]byte, error)) (Operation, error) {
	err := a.h.Transact(ctx, func(tx *sql.Tx) error {
		if err := handle.EnsureMeta(ctx, tx, operationsLock, 0); err != nil {
			return err
		}
		var ignored int64
		if err := tx.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = ?"+a.h.Locking(handle.LockExclusive), operationsLock).Scan(&ignored); err != nil {
			return err
		}
		now, err := a.h.TimeIn(ctx, tx)
		if err != nil {
			return err
		}
		of := func(compare string) string { return "tenant = ? AND state " + compare + " ?" }
		tenant, running := []byte(o.Tenant), []byte(OperationRuns)
		var n int64
		if err := a.h.ColdIn(ctx, tx, "operations").Where(of("="), tenant, running).Count(&n).Error; err != nil {
			return err
		}
		if n >= RunningOperations {
			return ErrOperations
		}
		var old []int64
		if err := a.h.ColdIn(ctx, tx, "operations").Where(of("<>"), tenant, running).Order("id DESC").Offset(EndedOperations-1).Limit(2*EndedOperations).Pluck("id", &old).Error; err != nil {
			return err
		}
		if len(old) > 0 {
			if err := a.h.ColdIn(ctx, tx, "operations").Where("id IN ?", old).Delete(nil).Error; err != nil {
				return err
			}
		}
		o.ID, o.State, o.Created, o.Changed = 0, OperationRuns, now.UnixMilli(), now.UnixMilli()
		entry, err := a.h.Audit(ctx, tx, 0)
		if err == nil {
			o.Request, err = request(entry)
		}
		if err != nil {
			return err
		}
		return a.h.ColdIn(ctx, tx, "operations").Create(&o).Error
	})
	return o, wrap.Err(err, "storing an operation")
}

// List reads operations without their requests, the latest first: those below an id (0: all),
// at most so many.
func (a Operations) List(ctx context.Context, below int64, most int) (out []Operation, err error) {
	query := a.h.Cold(ctx, "operations").Omit("request").Order("id DESC").Limit(most)
	if below > 0 {
		query = query.Where("id < ?", below)
	}
	err = query.Find(&out).Error
	return out, wrap.Err(err, "reading the operations")
}

// Read reads one, or returns ErrNoOperation.
func (a Operations) Read(ctx context.Context, id int64) (out Operation, err error) {
	found := a.h.Cold(ctx, "operations").Where("id = ?", id).Limit(1).Find(&out)
	if found.Error == nil && found.RowsAffected == 0 {
		return out, ErrNoOperation
	}
	return out, wrap.Err(found.Error, "reading an operation")
}

// Take takes the lease of the running operation whose last step was longest ago. nil: none
// is to be had.
func (a Operations) Take(ctx context.Context, holder string) (*Operation, error) {
	now, err := a.h.Time(ctx)
	if err != nil {
		return nil, err
	}
	const isFree = "state = ? AND (lease <= ? OR lease > ?)" // the clock may have been set back
	free := []any{[]byte(OperationRuns), now.UnixMilli(), now.UnixMilli() + OperationLease + operationRetry}
	var found []Operation
	if err := a.h.Cold(ctx, "operations").Where(isFree, free...).Order("changed, id").Limit(1).Find(&found).Error; err != nil || len(found) == 0 {
		return nil, wrap.Err(err, "looking for operations")
	}
	o := &found[0]
	if o.Changed < now.UnixMilli()-operationStale {
		why := "no step was made for an hour: the database was restored, or no service ran; ask for it again"
		stale := a.h.Cold(ctx, "operations").Where("id = ?", o.ID).Where(isFree, free...).Updates(map[string]any{"state": []byte(OperationStopped), "why": []byte(why)})
		return nil, wrap.Err(stale.Error, "stopping an operation")
	}
	o.Lease, o.Holder = now.UnixMilli()+OperationLease, holder
	taken := a.h.Cold(ctx, "operations").Where("id = ?", o.ID).Where(isFree, free...).Updates(map[string]any{"lease": o.Lease, "holder": []byte(holder)})
	if taken.Error != nil || taken.RowsAffected == 0 {
		return nil, wrap.Err(taken.Error, "taking an operation")
	}
	return o, nil
}

// Hold keeps the lease, or returns ErrOperationEnded.
func (a Operations) Hold(ctx context.Context, o *Operation) error {
	now, err := a.h.Time(ctx)
	if err != nil {
		return err
	}
	held := a.h.Cold(ctx, "operations").Where("id = ? AND state = ? AND holder = ?", o.ID, []byte(OperationRuns), []byte(o.Holder)).Update("lease", now.UnixMilli()+OperationLease)
	if held.Error == nil && held.RowsAffected == 0 && !a.isHeld(ctx, o) { // MySQL counts only rows that it changes
		return ErrOperationEnded
	}
	return wrap.Err(held.Error, "holding an operation")
}

func (a Operations) isHeld(ctx context.Context, o *Operation) bool {
	now, err := a.Read(ctx, o.ID)
	return err != nil && !errors.Is(err, ErrNoOperation) || now.State == OperationRuns && now.Holder == o.Holder
}

// EndStep stores what a step has changed, and gives the lease back. With a state other than
// OperationRuns the operation has ended, and the audit entry of Auditing says so. Of an operation
// that was stopped meanwhile only the result grows, and of one that another process has taken
// nothing: ErrOperationEnded.
func (a Operations) EndStep(ctx context.Context, o *Operation, state string) error {
	ended := false
	err := a.h.Transact(ctx, func(tx *sql.Tx) error {
		now, err := a.h.TimeIn(ctx, tx)
		if err != nil {
			return err
		}
		o.State, o.Changed, o.Lease = state, max(now.UnixMilli(), o.Changed+1), 0
		if state == OperationRuns && o.Why != "" {
			o.Lease = now.UnixMilli() + operationRetry
		}
		mine := func(state string) *gorm.DB {
			return a.h.ColdIn(ctx, tx, "operations").Where("state = ? AND holder = ?", []byte(state), []byte(o.Holder))
		}
		stored := mine(OperationRuns).Select("state", "changed", "lease", "done", "total", "request", "result", "why").Updates(o)
		if ended = stored.RowsAffected == 0; ended && stored.Error == nil {
			stored = mine(OperationStopped).Select("done", "result").Updates(o)
		}
		if stored.Error == nil && stored.RowsAffected > 0 && o.Entry > 0 {
			stored = a.h.ColdIn(ctx, tx, "audit").Where("id = ? AND amount < ?", o.Entry, o.Changes).Update("amount", o.Changes)
		}
		if stored.Error == nil && !ended && state != OperationRuns {
			_, err = a.h.Audit(ctx, tx, o.Changes)
			return err
		}
		return stored.Error
	})
	if err == nil && ended {
		err = ErrOperationEnded
	}
	return wrap.Err(err, "storing the step of an operation")
}

// Stop stops a running one, with the audit entry of Auditing, or returns ErrNoOperation or
// ErrOperationEnded. changes counts what was changed, of a result. The step under way comes later.
func (a Operations) Stop(ctx context.Context, id int64, changes func(result []byte) int64) (out Operation, err error) {
	err = a.h.Transact(ctx, func(tx *sql.Tx) error {
		now, err := a.h.TimeIn(ctx, tx)
		if err != nil {
			return err
		}
		out = Operation{}
		found := a.h.ColdIn(ctx, tx, "operations").Raw("SELECT * FROM operations WHERE id = ?"+a.h.Locking(handle.LockExclusive), id).Scan(&out)
		switch {
		case found.Error != nil:
			return found.Error
		case found.RowsAffected == 0:
			return ErrNoOperation
		case out.State != OperationRuns:
			return ErrOperationEnded
		}
		out.State, out.Changed, out.Lease, out.Why = OperationStopped, now.UnixMilli(), 0, "" // nobody tries again
		if err := a.h.ColdIn(ctx, tx, "operations").Select("state", "changed", "lease", "why").Updates(&out).Error; err != nil {
			return err
		}
		_, err = a.h.Audit(ctx, tx, changes(out.Result))
		return err
	})
	return out, wrap.Err(err, "stopping an operation")
}
