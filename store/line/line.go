// Package line serves the owner of a slot: taking and giving back slots, claiming, reading and
// settling tasks, starting runs of timers, and moving tasks to their slots while the number of
// slots changes. Slots under an epoch go in; tasks come out, and so does who won. Other packages
// put tasks into the line.
package line

import (
	"context"
	"database/sql"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/task"
)

// Line is a value without state of its own.
type Line struct {
	h       *handle.Handle
	reports Reports
	life    *string // see In
}

// New makes the Line of a store.
func New(st handle.Source, reports Reports) Line { return Line{h: handle.Of(st), reports: reports} }

// In returns a Line that claims in one life of the database, see store/life.go; nil: in any.
func (l Line) In(life *string) Line {
	l.life = life
	return l
}

// Reports decides and deletes the waiting reports on the tasks of transitions, in the transaction
// with the locked rows and slots. The intake, which takes reports in, knows the rules.
type Reports func(ctx context.Context, tx *sql.Tx, transitions []Transition, rows map[int64]Row, slots map[int]handle.Slot, now func() int64) (Reported, error)

// Reported is what reports make of transitions.
type Reported struct {
	Transitions []Transition // all, those that reports have changed as they are then
	Changed     map[int64]Transition
	Events      []schemas.Event // of the reports
}

// Waits tells whether the transition begins or ends a wait for a report.
func (e Transition) Waits(row task.Task) bool {
	return e.State == task.StateReport && !e.Recall || e.EndsWait && row.State == task.StateReport
}

// Stand turns a task's row into the waiting task on which reports are decided.
func (e Transition) Stand(row *task.Task, claimed int64) {
	if !e.EndsWait {
		row.State, row.Attempt, row.Class = e.State, max(e.Attempt, row.Attempt), e.Lane.Class()
	}
	row.Pos = max(e.Pos, claimed+1)
}
