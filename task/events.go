package task

import "github.com/notyet/notyet/schemas"

// Published tells whether a task with this setting has the state published on the results topic.
func Published(e schemas.Events, state schemas.State) bool {
	switch {
	case state == schemas.StateRejected, e == schemas.EventsAll:
		return true
	case e == schemas.EventsFinal:
		return state.Final()
	}
	return false
}
