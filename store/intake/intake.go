// Package intake takes in changes of tasks: requests and reports with their offsets, runs of
// timers, replays, cancels of many. A change goes in; the events about it and the task's place for
// the index come out. The same rules decide all changes, under the same locks in the same order.
package intake

import (
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/task"
)

// Intake is a value. Its memory belongs to the store, and is common to all Intakes of one store.
type Intake struct {
	h *handle.Handle
	*memory
}

type memory struct {
	known    knownSources
	runs     runNumbers
	pace     makePace
	evidence Evidence // set in a recovery only
}

// New makes the Intake of a store.
func New(st handle.Source) Intake {
	h := handle.Of(st)
	return Intake{h, h.Memory(func() any { return new(memory) }).(*memory)}
}

// Evidence returns proofs, after a database was restored from a backup. It must compare more of the
// task than the seq: two sources made again after the backup may have exchanged their numbers. It
// must answer at once: transactions wait.
type Evidence interface {
	Of(t *task.Task) (task.Proof, bool)
}

// SetEvidence has the evidence take part in all decisions of the store's Intakes from now on: a
// task proven to have been sent ends, or waits for its report, before later requests. For tasks
// without a request, see SettleProven. Nobody else may use the store at the same time.
func (in Intake) SetEvidence(e Evidence) { in.evidence = e }
