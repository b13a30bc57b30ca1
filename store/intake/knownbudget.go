package intake

import (
	"database/sql"
	"errors"

	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// knownBudget is how much one transaction reads of the bodies of tasks and timers that it is about,
// and one more. A cancel or a report is small and may be about a task of megabytes, so what a batch
// brings does not bound what it reads.
const knownBudget = 32 << 20

// errKnown: a batch is about more than a transaction may read.
var errKnown = errors.New("what the batch is about is too much for one transaction")

// reads counts the body of a task or a timer that is known.
func (w *work) reads(body []byte) error {
	if w.known > knownBudget && w.several {
		return errKnown
	}
	w.known += len(body)
	return nil
}

func (w *work) scanTask(r *sql.Rows, t *task.Task) error {
	if err := tables.ScanTask(r, t); err != nil {
		return err
	}
	return w.reads(t.Body)
}

func (w *work) scanTimer(r *sql.Rows, t *task.Timer) error {
	if err := tables.ScanTimer(r, t); err != nil {
		return err
	}
	return w.reads(t.Body)
}
