package intake

import (
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// nowUnsure turns the phase of a task that is not claimed into Unsure, if its slot is. In a recovery
// no dispatcher runs.
func (w *work) nowUnsure(t *task.Task, ph task.Phase) task.Phase {
	if (ph == task.Pending || ph == task.Between) && w.slots[t.Slot].Unsure && w.intake.evidence == nil {
		return task.Unsure
	}
	return ph
}

// mayBeForgotten tells whether a change is a cancel that would be remembered for a task of which nothing
// is known, while a slot is unsure: the database may have forgotten the task, and a dispatcher have it.
// Nothing waits for an unknown task, because a request that only schedules does not look whether
// something waits.
func (w *work) mayBeForgotten(t *task.Task, c task.Change) bool {
	if t != nil || c.Request == nil || c.Request.Op != schemas.OpCancel || c.Request.Version < 0 || w.intake.evidence != nil {
		return false
	}
	for _, s := range w.slots {
		if s.Unsure {
			return true
		}
	}
	return false
}
