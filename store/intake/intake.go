// Package intake takes in changes of tasks: requests and reports with the offsets they came from, runs of timers,
// replays, cancels of many. A change goes in; the events about it and the task's place for the index come out. All
// changes are decided by the same rules, and take the same locks in the same order.
package intake

import (
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/task"
)

// Intake is a value. What it remembers belongs to the store: all that are made of one store have it in common.
type Intake struct {
	h *handle.Handle
	*memory
}

// memory is what a process remembers.
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
// task than its seq: two sources that were made again after the backup may have exchanged their
// numbers. It is asked inside transactions, so it must answer at once.
type Evidence interface {
	Of(t *task.Task) (task.Proof, bool)
}

// SetEvidence has the evidence take part in what every Intake of the store decides from now on: a task
// that is proven to have been sent ends, or waits for its report, before a request that came after that.
// For tasks that no request is about, see SettleProven. The store must not be used by others at the same time.
func (in Intake) SetEvidence(e Evidence) { in.evidence = e }
