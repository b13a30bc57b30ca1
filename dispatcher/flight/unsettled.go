package flight

import (
	"time"

	"github.com/notyet/notyet/schemas"
)

// unsettled knows the deliveries that are not durable yet. The next owner of their slots would make
// them again if this dispatcher died now, so they are bounded: to as many as the database settles
// within settledWithin.
//
// A delivery with a report costs the database a row. Tasks with reports are counted from when they
// are sent until they are out of their places, and each outlet may have a part of the room left, as
// of the room for bodies (see hasRoom). So where more is delivered than settled, the outlets with
// reports wait for the database, each for itself.
//
// A task that simply ends costs nothing. But it is not durable before all tasks in front of it in
// its slot have gone too. One held up like that for pinnedFor leaves its slot by itself.
type unsettled struct {
	owed       int     // tasks that are to wait for a report: sent, and not yet out of their places
	pace       float64 // how many tasks a second the latest transitions took out of their places
	deliveries []*Task // in the order of their acknowledgements; the first is not durable
}

const (
	settledWithin = 1500 * time.Millisecond
	// firstPace is the pace until one is known, which takes some rounds.
	firstPace = 1000
	// slowestPace is the assumed pace where the database does next to nothing: some tasks must be
	// sent to find out.
	slowestPace = 100
	// pinnedFor is how long a delivered task waits for those before it in its slot.
	pinnedFor = time.Second
	// pinnedMost is how many leave their slots in one round of settling. More would take the
	// database's time from the tasks in front.
	pinnedMost = 250
	// fewTransitions cost the database about as much as one.
	fewTransitions = 100
)

// settledIn notes how long the database took for n transitions.
func (u *unsettled) settledIn(n int, took time.Duration) {
	pace := float64(max(n, fewTransitions)) / max(took, time.Millisecond).Seconds()
	u.pace = max(u.pace+(pace-u.pace)/4, slowestPace)
}

// room is for how many more tasks that are to wait for a report there is room.
func (u *unsettled) room() int { return int(u.pace*settledWithin.Seconds()) - u.owed }

// begins counts a task with a report, sent through an outlet.
func (u *unsettled) begins(t *Task, g *Outlet) {
	if t.settings.Ack == schemas.AckReport && t.owes == nil {
		t.owes = g
		g.owed++
		u.owed++
	}
}

// ends stops counting a task: it is out of its place, or stays undelivered, or nobody here knows
// the task any more.
func (u *unsettled) ends(t *Task) {
	if t.content != nil && t.owes != nil {
		t.owes.owed--
		u.owed--
		t.owes = nil
	}
}

// delivered notes that a task was acknowledged.
func (u *unsettled) delivered(t *Task) {
	if !t.slot.abandoned {
		t.acked = time.Now()
		u.deliveries = append(u.deliveries, t)
	}
}

// durable says whether the next owner of the slot would not send the task again.
func (t *Task) durable() bool {
	return t.status == left || t.slot.abandoned || t.pos <= t.slot.done
}

// forgetDurable forgets the first deliveries, up to one that is not durable.
func (u *unsettled) forgetDurable() {
	n := 0
	for n < len(u.deliveries) && u.deliveries[n].durable() {
		u.deliveries[n] = nil
		n++
	}
	if u.deliveries = u.deliveries[n:]; len(u.deliveries) == 0 {
		u.deliveries = nil
	}
}

// oldest is how long ago the first of the deliveries was made that are not durable.
func (u *unsettled) oldest() time.Duration {
	if u.forgetDurable(); len(u.deliveries) == 0 {
		return 0
	}
	return time.Since(u.deliveries[0].acked)
}

// Delivery is a delivered task, with last events to be told.
type Delivery struct {
	task *Task
	at   int64 // when it was acknowledged, Unix ms: long ago, where the send log proves it
}

// unannounced are deliveries whose last events nobody has yet.
type unannounced struct {
	published map[*Task]announcement // with the producer of events; its promises take them out
	deferred  []Delivery             // to be stored instead
}

// announcement is a delivery whose last events are with the producer.
type announcement struct {
	at    int64
	since time.Time
}
