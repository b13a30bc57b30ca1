package flight

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

type status uint8

const (
	entered    status = iota // its place is claimed, its body not yet read
	staged                   // waits for its instant, or for its target
	sending                  // with the producer
	announcing               // delivered, its last events with the producer
	leaving                  // its transition is on the way to the database
	settled                  // delivered, its last events published or stored
	left                     // out of its place, by a transition
)

// Task is one task in flight. There may be millions after an outage, so it is small until its body is read. To the
// loops it is a handle. flight.mu guards its fields; BodiesRead alone writes those of a task whose body is not read, and of its content
// before the task has it.
type Task struct {
	slot       *ownedSlot
	seq        int64
	pos        int64
	at         int64 // when to release it, Unix ms; the latest such time until its body is read
	order      int64 // tasks of one instant go by it: their due times, as far as those are known before their bodies are read
	lane       task.Lane
	status     status
	lateAnswer bool // set aside, and its answer has come since: the task is about to end
	isProbe    bool // its body was read to ask an unresponsive target with
	ungated    bool // not one of a gate's tasks, though its lane is: see Judged
	wasHeld    bool // and called back
	passed     bool // its target's gate has let it through: see gate
	doubt      bool // an earlier owner may have sent it

	parkedAt *outletKey // where it is to ask, until it is known where it goes

	*content // nil until its body is read
}

// content is what the row of a task says of it. BodiesRead makes it.
type content struct {
	topic     string
	id        string
	due       int64
	attempt   int // deliveries made
	replay    int
	state     task.State
	settings  schemas.Settings
	body      []byte
	record    *kgo.Record       // nil: there is nothing to send
	call      *callback.Request // set: record is sent as this HTTP request
	size      int
	missed    bool      // a run that is too late, and dropped if a later one is on its way
	started   bool      // a run that may be released, whatever comes: the database has said so
	counted   bool      // by the dispatcher's staging
	atGate    int64     // since when it waits at its target's gate, Unix ms
	outletKey outletKey // where it was last sent, or waits to be
	trace     *traced   // of an attempt whose caller is traced; otherwise nil
	with      *Outlet   // counts it among what its producer holds; nil while none does
	owes      *Outlet   // counts it among what is unsettled; nil while none does
	acked     time.Time // when its delivery was acknowledged, by the monotonic clock
}

// sendNumber names the attempt that is to be made, among all that the task ever sees.
func (c *content) sendNumber() int32 { return task.SendNumber(c.replay, c.attempt+1) }

// maybeSent says that the task may have been delivered already: an earlier owner claimed it, or it was with the producer when it was
// set aside, or its consumer is to get it once more. To such a task nothing else may happen: it is sent, however late.
func (t *Task) maybeSent() bool {
	return t.doubt || t.content != nil && t.state == task.StateRetry
}

// dropContent lets go of what takes memory.
func (t *Task) dropContent() {
	t.record, t.body = nil, nil
	if t.call != nil { // it still says that the task is a callback; the request on its way has the other one
		t.call = &callback.Request{}
	}
}

// Topic is the target of a task whose body is read.
func (t *Task) Topic() string { return t.topic }

// At is when the task was to be released.
func (t *Task) At() time.Time { return time.UnixMilli(t.at) }

// TraceSent makes the span of an attempt that Kafka has answered. It must come before Answered: then the task is the settle loop's.
func (t *Task) TraceSent(now time.Time, r *kgo.Record, err error) { t.trace.sent(t, now, r, err) }

// TraceCalled makes the span of a callback, likewise. A request that was never made is no attempt.
func (t *Task) TraceCalled(method string, now time.Time, o callback.Outcome) {
	t.trace.called(t, method, now, o)
}
