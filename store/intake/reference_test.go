package intake

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/notyet/notyet/schemas"
)

// reference says what the contract says about tasks, request by request, in plain variables: no slots, no rows, no body
// format. It shares no code with the store but the requests themselves. Every slot is claimed and settled alike.
type reference struct {
	now           int64
	claimed, done int64
	tasks         map[string]*refTask
	letters       int
}

type refTask struct {
	state    string // as a person sees it; "" when nothing is known
	was      string // while claimed: the state before
	tomb     bool   // cancelled by a request with a version
	foretold bool   // no task was known when that cancel came
	version  int64
	due, pos int64
	created  int64
	attempt  int
	snoozed  int
	idle     bool // of a retry: nothing of it is under way
	value    string
	list     []string // of an appending merge; nil: value counts
	settings schemas.Settings
	queue    []any
}

func (t *refTask) ended() bool {
	switch t.state {
	case "", "delivered", "succeeded", "cancelled", "stopped", "dead":
		return true
	}
	return false
}

func (t *refTask) shown() string {
	if t.list != nil {
		return "[" + strings.Join(t.list, ",") + "]"
	}
	return t.value
}

func (m *reference) task(id string) *refTask {
	t := m.tasks[id]
	if t == nil {
		t = &refTask{version: -1}
		m.tasks[id] = t
	}
	return t
}

// take is what one batch brings about a task, behind whatever waits for it. It answers the states told. A request that waited
// and that a report has set free is looked at with the next batch, so that a report costs nothing for what waits behind it.
func (m *reference) take(id string, records ...any) (told []string) {
	t := m.task(id)
	queue := append(t.queue[:len(t.queue):len(t.queue)], records...)
	behind := !t.ended() && t.state != "pending" && slices.ContainsFunc(t.queue, func(q any) bool { _, ok := q.(*schemas.Request); return ok })
	if len(records) == 0 && t.stoppable() { // it is looked at
		behind = false
	}
	t.queue = nil
	for _, q := range queue {
		var state schemas.State
		wait := behind
		switch r := q.(type) {
		case schemas.Report:
			state, wait = m.report(t, r)
		case *schemas.Request:
			if !behind {
				state, wait = m.request(t, r)
			}
			behind = behind || wait
		}
		if wait {
			t.queue = append(t.queue, q)
		} else if state != "" {
			told = append(told, string(state))
		}
	}
	return told
}

// stoppable tells whether all that waits for a task is requests, and the first of them ends it now.
func (t *refTask) stoppable() bool {
	reports := slices.ContainsFunc(t.queue, func(q any) bool { _, ok := q.(schemas.Report); return ok })
	return !reports && len(t.queue) > 0 && t.queue[0].(*schemas.Request).Op == schemas.OpStop && t.waits()
}

func (t *refTask) waits() bool {
	return t.state == "waiting_report" || t.state == "waiting_retry" && t.idle
}

func (m *reference) request(t *refTask, r *schemas.Request) (state schemas.State, wait bool) {
	known := t.state != "" && !t.foretold
	held := t.tomb && r.Version == t.version && r.Op == schemas.OpSchedule
	switch {
	case t.state != "" && r.Version >= 0 && (r.Version < t.version || held):
		state = schemas.StateStale
	case r.Op == schemas.OpCancel:
		return m.cancel(t, r), false
	case r.Op == schemas.OpStop:
		return m.stop(t, r)
	case r.Op == schemas.OpFire:
		return m.fire(t, r), false
	case r.Settings.IfExists == schemas.Once && known:
		state = schemas.StateKept
	case !t.ended() && t.state != "pending":
		return "", true
	default:
		state = m.schedule(t, r)
	}
	final := state == schemas.StateStale
	if r.Op == schemas.OpSchedule && state != schemas.StateRejected && r.Settings.Events != schemas.EventsAll && !(final && r.Settings.Events == schemas.EventsFinal) {
		return "", false
	}
	return state, false
}

func (m *reference) schedule(t *refTask, r *schemas.Request) schemas.State {
	pending := t.state == "pending"
	s := r.Settings
	if pending && s.IfExists == schemas.Keep {
		return schemas.StateKept
	}
	state, created, due := schemas.StateScheduled, r.Accepted, r.Due
	value, list := string(r.Value), []string(nil)
	if s.IfExists == schemas.Merge {
		if pending {
			state, created = schemas.StateMerged, t.created
		}
		var ok bool
		if value, list, ok = combine(t, pending, s.Merge, value); !ok {
			m.letters++
			return schemas.StateRejected
		}
		if bound := created + s.MaxWait.Milliseconds(); s.MaxWait > 0 {
			due = min(due, bound)
		}
	}
	version := t.version
	if r.Version >= 0 {
		version = r.Version
	}
	*t = refTask{state: "pending", version: version, due: due, pos: max(due, m.claimed+1), created: created, value: value, list: list, settings: s, queue: t.queue}
	return state
}

// combine merges values of the two kinds that the model draws: {"n":…}, and texts that are not JSON.
func combine(t *refTask, pending bool, mode schemas.MergeMode, value string) (string, []string, bool) {
	var n, before int
	_, err := fmt.Sscanf(value, `{"n":%d}`, &n)
	switch mode {
	case schemas.MergeLast:
		return value, nil, true
	case schemas.MergeAppend:
		if err != nil {
			return "", nil, false
		}
		if !pending {
			return "", []string{value}, true
		}
		if t.list != nil {
			return "", append(t.list[:len(t.list):len(t.list)], value), true
		}
		_, err = fmt.Sscanf(t.value, `{"n":%d}`, &before)
		return "", []string{t.value, value}, err == nil
	}
	if pending && err == nil {
		_, err = fmt.Sscanf(t.shown(), `{"n":%d}`, &before)
	}
	return fmt.Sprintf(`{"n":%d}`, before+n), nil, err == nil
}

func (m *reference) cancel(t *refTask, r *schemas.Request) schemas.State {
	switch {
	case t.state == "" && r.Version < 0:
		return schemas.StateNotFound
	case t.state == "":
		t.created, t.foretold = r.Accepted, true
	case t.state != "pending" && t.state != "cancelled":
		return t.tooLate()
	}
	if t.state != "cancelled" || r.Version >= 0 {
		t.tomb = r.Version >= 0
	}
	if r.Version >= 0 {
		t.version = r.Version
	}
	t.state = "cancelled"
	return schemas.StateCancelled
}

func (m *reference) stop(t *refTask, r *schemas.Request) (state schemas.State, wait bool) {
	switch {
	case t.state == "" || t.state == "pending" || t.state == "cancelled":
		return m.cancel(t, r), false
	case t.state != "stopped" && t.ended():
		return schemas.StateTooLate, false
	case t.state != "stopped" && !t.waits():
		return "", true
	}
	if t.state != "stopped" || r.Version >= 0 {
		t.tomb = r.Version >= 0
	}
	if r.Version >= 0 {
		t.version = r.Version
	}
	t.state = "stopped"
	return schemas.StateStopped, false
}

func (m *reference) fire(t *refTask, r *schemas.Request) schemas.State {
	switch t.state {
	case "", "cancelled":
		return schemas.StateNotFound
	case "pending":
		t.due, t.pos = m.now, max(m.now, m.claimed+1)
		if r.Version >= 0 {
			t.version = r.Version
		}
		return schemas.StateFired
	case "waiting_retry":
		if !t.idle {
			break
		}
		t.pos = max(m.now, m.claimed+1)
		if r.Version >= 0 {
			t.version = r.Version
		}
		return schemas.StateFired
	}
	return t.tooLate()
}

// tooLate keeps a task that is given back from being pending again.
func (t *refTask) tooLate() schemas.State {
	if t.was == "pending" {
		t.was = "waiting_retry"
	}
	return schemas.StateTooLate
}

func (m *reference) report(t *refTask, r schemas.Report) (state schemas.State, wait bool) {
	if t.ended() || t.state == "pending" || t.settings.Ack != schemas.AckReport {
		return "", false
	}
	if t.state == "claimed" {
		return "", r.Attempt <= t.attempt+1
	}
	late := r.Attempt < t.attempt || t.state == "waiting_retry"
	snoozes := r.Status == schemas.StatusSnooze && t.snoozed < schemas.MaxSnoozes
	switch {
	case r.Attempt > t.attempt, late && r.Status != schemas.StatusOK:
		return "", false
	case r.Status == schemas.StatusOK:
		t.state, state = "succeeded", schemas.StateSucceeded
	case r.Status == schemas.StatusFail, !snoozes && t.attempt-t.snoozed >= t.settings.MaxAttempts:
		t.state, state = "dead", schemas.StateDead
		m.letters++
	default:
		if snoozes {
			t.snoozed++
		}
		pause := t.settings.Backoff.First
		if r.RetryAfter >= 0 {
			pause = r.RetryAfter
		}
		if t.attempt >= 10 { // a task may not come again and again without a rest
			pause = max(pause, 100*time.Millisecond)
		}
		t.state, t.idle, state = "waiting_retry", true, schemas.StateRetrying
		t.pos = max(m.now+pause.Milliseconds(), m.claimed+1)
	}
	if t.settings.Events == schemas.EventsNone || t.settings.Events == schemas.EventsFinal && state == schemas.StateRetrying {
		state = ""
	}
	return state, false
}

// await decides the reports that were there before the wait for them began.
func (m *reference) await(t *refTask) (told []string) {
	t.queue = slices.DeleteFunc(t.queue, func(q any) bool {
		r, ok := q.(schemas.Report)
		if ok {
			if state, _ := m.report(t, r); state != "" {
				told = append(told, string(state))
			}
		}
		return ok
	})
	return told
}

// forget ends the memory of what has ended. What waits for a task goes on waiting.
func (m *reference) forget() {
	for id, t := range m.tasks {
		if t.ended() {
			m.tasks[id] = &refTask{version: -1, queue: t.queue}
		}
	}
}

// claim gives the owner everything up to pos.
func (m *reference) claim(pos int64) {
	m.claimed = pos
	for _, t := range m.tasks {
		if !t.ended() && t.state != "claimed" && t.pos <= pos {
			t.state, t.was = "claimed", t.state
		}
	}
}
