package flight

import (
	"cmp"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/dispatcher/flight/target"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// A task, its slot and its outlet name one another, so their types stand together here. The methods
// of each type stand in the file of their step.

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

// Task is one task in flight. There may be millions after an outage, so a task is small until its
// body is read. To the loops a task is a handle. machine.mu guards the fields; Batch.Read alone
// writes those of a task without a body, and its content before the task has the content.
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

	parkedAt *Outlet // where it is to ask, until it is known where it goes

	*content // nil until its body is read
}

// content is what the row of a task says. Batch.Read makes it.
type content struct {
	topic     string
	tenant    string // the intake that the task came through; "" of a timer's run
	id        string
	due       int64
	attempt   int // deliveries made
	replay    int
	state     task.State
	idle      bool // nothing of it was under way when it came to its place
	snoozed   int
	settings  schemas.Settings
	body      []byte
	record    *kgo.Record       // nil: there is nothing to send
	call      *callback.Request // set: record is sent as this HTTP request
	size      int
	missed    bool        // a run that is too late, and dropped if a later one is on its way
	started   bool        // a run that may be released, whatever comes: the database has said so
	counted   bool        // by the dispatcher's staging
	arrived   bool        // this attempt did, or may have: so says the answer to it
	atGate    int64       // since when it waits at its target's gate, Unix ms
	asks      *target.Bar // it is sent to ask there; nil: it is sent as any other
	outletKey outletKey   // where it was last sent, or waits to be
	trace     *traced     // of an attempt whose caller is traced; otherwise nil
	with      *Outlet     // counts it among what its producer holds; nil while none does
	owes      *Outlet     // counts it among what is unsettled; nil while none does
	acked     time.Time   // when its delivery was acknowledged, by the monotonic clock
}

// ownedSlot is a slot of ours: its offsets as the database has them, and every task between them.
// Next to each field stands its writer.
type ownedSlot struct {
	number  int
	epoch   int64
	claimed int64 // claimTo: of a claim, or of one whose reply was lost
	before  int64 // likewise: claimed before the latest claim
	done    int64 // closeTo

	tasks []*Task // (done, claimed], in the order of pos; enter adds, closeTo takes away
	head  int     // tasks before it are closed

	next   int64 // the first place beyond claimed that is known to hold a task
	urgent int64 // the earliest due time that a wake has told of
	looked bool  // the database was asked for next since claimed was moved

	parked map[int64]*parked // by seq; see parked

	// Took and SlotsSeen write these: see claimmost.go and owning.go.
	turn      int64     // at which the slot was last seen
	claimMost int64     // no claim goes beyond it
	callMost  int64     // no held task beyond it is called back
	raised    time.Time // callMost was

	claiming  bool      // claimed is being moved, or may not move: Claims.Begin, CatchUp, Changing.Begin set it
	leaving   time.Time // since when the slot is to be given away; zero: it is not
	releasing bool      // it was given back, or may have been: it cannot stay
	abandoned bool      // no longer ours: what comes in for it is thrown away; see abandon
}

// Outlet is one partition of a target, in use, and its state. A target may have many: an outlet
// does not answer, or is full; an operator pauses or limits a target.
type Outlet struct {
	outletKey
	sending int                  // records with a producer
	bytes   int                  // their size
	owed    int                  // tasks that are to wait for a report: see unsettled
	since   time.Time            // of the last sign of life, or of the first record sent after a rest
	waiting []*Task              // due, but the outlet has enough in flight
	parked  map[*parked]struct{} // put off until its bar opens
	silence target.Bar           // closed while it does not answer
	refusal target.Bar           // closed while the whole topic refuses records when it answers; of partition -1
	origin  *target.Origin       // it takes HTTP callbacks
	unmet   *unmet               // counts it: no producer has met its topic
	answers int                  // of an origin, since the last look at it
	pace    int                  // how many it gave in the second before that look

	suspects []Sendable // refused, perhaps on another's account
	trying   bool       // somebody is at them
}

// outletKey names where records succeed or fail together: a partition of a target topic, or an
// origin. Records without a key, and those of a topic without known partitions, have the partition
// -1, which stands for all partitions.
type outletKey struct {
	topic     string
	partition int32
}

// parked is a slot's memory of a task put off because its outlet is closed: enough to put the task
// off again without its body, and to call it back when the outlet is open. Others may end such a
// task, but only the owner of the slot changes it. So the memory stays true as long as the slot is
// owned.
type parked struct {
	slot    *ownedSlot
	seq     int64
	outlet  *Outlet
	at      int64 // not released before, Unix ms
	expires int64 // from then on it is too late for it; 0: never
	attempt int
	lane    task.Lane
}

// Sendable is a task to be sent now, with its record: the task may be abandoned on the way to the
// producer.
type Sendable struct {
	Task    *Task
	Record  *kgo.Record
	IsProbe bool // its outlet does not answer: it is sent apart

	Call *callback.Request // of a callback
}

// sendNumber names the next attempt, among all attempts of the task ever.
func (c *content) sendNumber() int32 { return task.SendNumber(c.replay, c.attempt+1) }

// maybeSent says whether the task may have been delivered already: an earlier owner claimed it, or
// it was with the producer when set aside, or its consumer is to get it once more. To such a task
// nothing else may happen: it is sent, however late.
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

// Tenant is the intake of a task that is to be sent.
func (t *Task) Tenant() string { return t.tenant }

// At is when the task was to be released.
func (t *Task) At() time.Time { return time.UnixMilli(t.at) }

// TraceSent makes the span of an attempt answered by Kafka. It must come before Answered: then the
// task is the settle loop's.
func (t *Task) TraceSent(now time.Time, r *kgo.Record, err error) { t.trace.sent(t, now, r, err) }

// TraceCalled makes the span of a callback, likewise. A request that was never made is no attempt.
func (t *Task) TraceCalled(method string, now time.Time, o callback.Outcome) {
	t.trace.called(t, method, now, o)
}

// traced is for the spans of an attempt. The task's present loop writes it: the fetch loop, then
// the sender. A nil *traced is for a caller who is not traced; its methods do nothing.
type traced struct {
	caller  *tracing.Caller
	key     string // of the delivery
	fetched time.Time
	began   time.Time // when it was handed to the client
}

// newTraced returns nil for a caller that is not traced.
func newTraced(caller *tracing.Caller, key string) *traced {
	if caller == nil {
		return nil
	}
	now := time.Now()
	return &traced{caller: caller, key: key, fetched: now, began: now}
}

// begins notes that the task is handed to the client now.
func (d *traced) begins() {
	if d != nil {
		d.began = time.Now()
	}
}

// sent takes the producer's answer, and must come before the outcome is passed on: then the task is
// another loop's.
func (d *traced) sent(t *Task, now time.Time, r *kgo.Record, err error) {
	if d != nil {
		made := d.delivery(t, now, tracing.Failure(err))
		made.Tombstone = r.Value == nil
		d.caller.Sent(made, r.Partition, r.Offset)
	}
}

// called takes the outcome of a callback, likewise. A request that was never made is no attempt.
func (d *traced) called(t *Task, method string, now time.Time, o callback.Outcome) {
	if d == nil || o.Verdict == callback.NotSent {
		return
	}
	failure := ""
	switch {
	case o.Verdict == callback.Delivered:
	case o.Status != 0:
		failure = strconv.Itoa(o.Status)
	default:
		failure = o.Failure
	}
	d.caller.Called(d.delivery(t, now, failure), cmp.Or(method, schemas.DefaultMethod), o.Status)
}

// delivery describes the attempt; now is the database's time, as lateness has it.
func (d *traced) delivery(t *Task, now time.Time, failure string) tracing.Delivery {
	return tracing.Delivery{
		Target: t.topic, ID: t.id, Key: d.key, Due: t.due, Lateness: max(now.UnixMilli()-t.at, 0), Attempt: t.attempt + 1, Replay: t.replay,
		Fetched: d.fetched, Sent: d.began, Answered: time.Now(), Failure: failure,
	}
}

// Proofs are attempts delivered by the word of the send log, and when, by the seq of a task in
// doubt. Each is dropped with its first use or with its task, so there are never more than tasks in
// doubt.
type Proofs map[int64]map[sendlog.Proof]int64

// take returns when the next attempt of a task was delivered, if it was, and forgets all proofs of
// the seq. The task must be the sent one, by name and content.
func (p Proofs) take(t *Task) (at int64, ok bool) {
	of := p[t.seq]
	if of == nil {
		return 0, false
	}
	delete(p, t.seq)
	at, ok = of[sendlog.Proof{Subject: sendlog.SubjectOf(t.seq, t.topic, t.id, xxhash.Sum64(t.body)), Attempt: t.sendNumber()}]
	return at, ok
}

func (p Proofs) forget(seq int64) { delete(p, seq) }

// ProofsOf gathers what the send log proves of tasks in doubt, for Took.
func ProofsOf(acked map[sendlog.Proof]sendlog.Outcome) Proofs {
	found := Proofs{}
	for proof, o := range acked {
		if found[proof.Seq] == nil {
			found[proof.Seq] = map[sendlog.Proof]int64{}
		}
		found[proof.Seq][proof] = o.At
	}
	return found
}
