package intake

import (
	"context"
	"database/sql"
	"errors"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// When targets move to another database, their tasks follow. One transaction of the former database
// takes tasks at rest out of its line, and puts them into table leaving. So no dispatcher there can
// claim them. The other database then stores what is in leaving, in that order, beside the last
// number that it has stored. So a task stands in one line at most, and a killed mover loses none.

// Moves are an Intake that targets leave, or come to.
type Moves struct{ Intake }

// Following is a move whose tasks follow: the number and the token of its rule.
type Following struct {
	N     int
	Token string
	// Nowhere: all have followed before, and the former database was set back. Its tasks are
	// elsewhere, or were delivered. So they also leave where they count as claimed.
	Nowhere bool
	// Life is that of the former database before the new one told how much has arrived. In another
	// life the former one may have forgotten numbers, and would give them twice.
	Life string
}

// ErrNoMove: the rule is not there, or not as far as it has to be.
var ErrNoMove = errors.New("the move of these targets was taken back, or is not known here")

// ErrForgotten: the former database was started anew since the new one told how much has arrived.
var ErrForgotten = errors.New("the former database was started anew: what it has forgotten of the move is not known")

const (
	// followRows and followBytes bound a transaction. Claims wait for its locks.
	followRows  = 250
	followBytes = 4 << 20
)

// leaver is what table leaving has in a row: a task, also one that has ended; a timer, with the run
// that others wait for; a dead letter; or a change that waits for a task.
type leaver struct {
	Timer   *leftTimer
	Letter  *task.DeadLetter
	Task    *task.Task
	Ident   []byte
	Report  bool
	Seq     int64
	Request []byte
	With    int64 // of a run whose timer was not deleted when it left: when that was
}

// Leaver is a row of table leaving.
type Leaver struct {
	Num  int64
	data []byte
}

// move locks the row of the rule, and returns a column of it. All that follows has this lock first.
func (in Moves) move(ctx context.Context, tx *sql.Tx, f Following, column string, held bool) (int64, error) {
	where := ""
	if held {
		where = " AND held = 1"
	}
	value, there, err := tables.One[int64](ctx, tx, "SELECT "+column+" FROM homes WHERE n = ? AND token = ?"+where+in.h.Locking(handle.LockExclusive), f.N, []byte(f.Token))
	if err == nil && !there {
		err = ErrNoMove
	}
	return value, err
}

// Life returns the database's life: see Following.
func (in Moves) Life(ctx context.Context) (string, error) {
	return in.lifeIn(ctx, in.h.Reads())
}

func (in Moves) lifeIn(ctx context.Context, q dialect.Querier) (string, error) {
	life, _, err := tables.One[string](ctx, q, "SELECT "+in.h.Life)
	return life, wrap.Err(err, "reading the life of a former database")
}

// Progress returns the last number that has left this database, and the last one stored in it.
func (in Moves) Progress(ctx context.Context, f Following) (taken, arrived int64, err error) {
	err = in.h.Reads().QueryRowContext(ctx, "SELECT taken, arrived FROM homes WHERE n = ? AND token = ?", f.N, []byte(f.Token)).Scan(&taken, &arrived)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoMove
	}
	return taken, arrived, wrap.Err(err, "reading how many tasks have followed")
}
