// Package history is the record of a fault run: every request, everything that the broker and the
// database show of it, and every fault. The harness writes it and the checker reads it; they share
// nothing else.
//
// All times are Unix ms, by the clock of the machine on which all servers run. Those of records are the
// broker's (LogAppendTime), or, on some targets, what the sender says (CreateTime).
package history

import (
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// History is a whole run.
type History struct {
	Run        Run
	Ops        []Op
	Deliveries []Delivery
	Events     []Event
	Reports    []Report
	Letters    []Letter
	Looks      []Look
	Faults     []Fault
	Slots      []SlotSample
	Offsets    []OffsetSample
	Sent       []Sent
	Rest       Rest
}

// Run describes the run.
type Run struct {
	Seed    uint64 `json:"seed"`
	Commit  string `json:"commit"`
	Intake  string `json:"intake"`
	Slots   int    `json:"slots"`
	Session int64  `json:"session"` // ZooKeeper session, ms
	Start   int64  `json:"start"`   // when the load began
	End     int64  `json:"end"`     // when everything was drained and the targets were read

	Retention int64 `json:"retention,omitempty"` // how long what has ended is remembered, ms; 0: longer than the run

	Machines []string `json:"machines,omitempty"` // what the clocks of each process's machine showed at the end

	Problems []string `json:"unrest,omitempty"` // why it did not become whole or reach rest, and processes that exited by themselves
}

// What a client requested.
const (
	Schedule = "schedule"
	Cancel   = "cancel"
	Fire     = "fire"
	Stop     = "stop"
)

// What a schedule does to a task that has its identity already. "" replaces it.
const (
	Keep  = "keep"
	Once  = "once"
	Merge = "merge"
)

// How a merge combines values. "" keeps the last one.
const (
	Append = "append"
	Sum    = "sum"
)

// The outcome for the client. A request with an unknown outcome may have been accepted or not; it
// never counts as lost.
const (
	OK      = "ok"
	Failed  = "failed"
	Unknown = "unknown"
)

// Op is one request of a client. Its record's value contains its number, which identifies the
// request in everything that arrives.
type Op struct {
	N         int64  `json:"n"`
	Kind      string `json:"kind"`
	Topic     string `json:"topic"`
	ID        string `json:"id,omitempty"` // "": none given
	Key       string `json:"key"`
	Due       int64  `json:"due,omitempty"`   // as requested; 0 with Delay
	Delay     int64  `json:"delay,omitempty"` // ms, from Accepted
	Version   int64  `json:"version"`         // -1: none
	High      bool   `json:"high,omitempty"`  // priority
	AllEvents bool   `json:"told,omitempty"`  // notyet-events: all
	Invalid   bool   `json:"invalid,omitempty"`
	MayDie    bool   `json:"mortal,omitempty"`  // a fault targets it or its topic: it may become a dead letter
	Hostile   string `json:"hostile,omitempty"` // which limit it exceeds
	Hash      uint64 `json:"hash"`              // of key, value and the caller's headers; without the value where values are combined

	AckTimeout  int64   `json:"ack_timeout,omitempty"` // ms; 0: ack none
	MaxAttempts int     `json:"max_attempts,omitempty"`
	Backoff     int64   `json:"backoff,omitempty"`      // ms, fixed
	Steps       []int64 `json:"steps,omitempty"`        // ms, instead
	MaxLateness int64   `json:"max_lateness,omitempty"` // ms; 0: none

	IfExists string `json:"if_exists,omitempty"` // Keep, Once, Merge
	Merge    string `json:"merge,omitempty"`     // Append, Sum
	MaxWait  int64  `json:"max_wait,omitempty"`  // ms; 0: none

	Storm bool `json:"storm,omitempty"` // one of many about its identity, which only the order of all of them can judge

	At      int64  `json:"at"` // when the client sent it, by the client's clock
	Outcome string `json:"outcome"`

	// Its position in the intake, read at the end. Accepted is 0 if it is not there.
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
	Accepted  int64 `json:"accepted"`
}

// DueAt returns when the op's task is due.
func (o *Op) DueAt() int64 {
	if o.Due == 0 {
		return o.Accepted + o.Delay
	}
	return o.Due
}

// Delivery is one record on a target topic.
type Delivery struct {
	Op        int64  `json:"op"` // 0: its value names none; of combined values the last one
	Topic     string `json:"topic"`
	ID        string `json:"id"`
	Key       string `json:"key"` // notyet-delivery
	Attempt   int    `json:"attempt"`
	Replay    int    `json:"replay,omitempty"`
	Due       int64  `json:"due"`
	At        int64  `json:"at"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Hash      uint64 `json:"hash"`

	// Stamp is the time that the sender gave it, on a target of CreateTime. At is then the earliest at
	// which it can have come, by that and by what stands before it.
	Stamp int64 `json:"stamp,omitempty"`

	Merged []int64 `json:"merged,omitempty"` // the requests whose values are combined in it, as often as they are
}

// Event is one record on the results topic.
type Event struct {
	Topic   string `json:"topic"`
	ID      string `json:"id"`
	State   string `json:"state"`
	Due     int64  `json:"due"`
	At      int64  `json:"at"`
	Attempt int    `json:"attempt"`
	Decided int64  `json:"decided,omitempty"` // when it was decided, as it says itself; 0: nobody knows
	Request string `json:"request,omitempty"` // the place of the request that it answers; "": none
}

// Since is when the event was decided, at the latest: it was on its way to the topic then.
func (e *Event) Since() int64 {
	if e.Decided == 0 {
		return e.At
	}
	return min(e.Decided, e.At)
}

// Report is one record on the reports topic.
type Report struct {
	Topic      string `json:"topic"`
	ID         string `json:"id"`
	Attempt    int    `json:"attempt"`
	Status     string `json:"status"`
	RetryAfter int64  `json:"retry_after"` // ms; -1: none
	At         int64  `json:"at"`
	Delivery   string `json:"delivery,omitempty"` // the delivery that it names
}

// Look is what a client was shown when it asked for a task, between two instants.
type Look struct {
	Topic   string `json:"topic"`
	ID      string `json:"id"`
	State   string `json:"state,omitempty"` // as the API names it; "": no task was found
	Due     int64  `json:"due,omitempty"`
	Version int64  `json:"version"`      // -1: none
	Op      int64  `json:"op,omitempty"` // the request whose value was shown; 0: not known
	Call    int64  `json:"call"`
	Return  int64  `json:"return"`
}

// Same reports whether both show the same.
func (l *Look) Same(other *Look) bool {
	a, b := *l, *other
	a.Call, a.Return, b.Call, b.Return = 0, 0, 0, 0
	return a == b
}

// Letter is one dead letter.
type Letter struct {
	Topic   string `json:"topic"`
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Reason  string `json:"reason"`
	Attempt int    `json:"attempt"`
	DiedAt  int64  `json:"died_at"`
}

// Fault is one fault, from its start until the cluster worked again.
type Fault struct {
	N        int       `json:"n"`
	Kind     string    `json:"kind"`
	Target   string    `json:"target"`
	Start    int64     `json:"start"`
	End      int64     `json:"end"`
	Overlap  bool      `json:"overlap,omitempty"`  // a process was disturbed while a server failed
	Doubles  bool      `json:"doubles"`            // it may cause second copies
	Disorder bool      `json:"disorder"`           // it may delay tasks one by one
	Rewinds  bool      `json:"rewinds"`            // it restores the database
	Setbacks []Setback `json:"setbacks,omitempty"` // when, if it is known better than by Start and End
	Killed   string    `json:"killed,omitempty"`   // the member that was killed, for takeover times
	Beside   bool      `json:"beside,omitempty"`   // it only affects a side path: deliveries continue
	Only     []string  `json:"only,omitempty"`     // it only holds up deliveries to these: a topic, or topic/partition
	Attack   *Attack   `json:"attack,omitempty"`   // what one tenant had beside another one that attacks
	Effect   bool      `json:"effect"`             // an effect was observed
	Evidence string    `json:"evidence"`           // how it was observed
}

// Attack is what a tenant that attacks left, and what others had beside it. Times are ms.
type Attack struct {
	Rows    int64   `json:"rows"`              // tasks of the attacker in the database
	Most    int64   `json:"most"`              // how many its quotas allow
	Asked   int     `json:"asked"`             // callbacks that another tenant asked for
	Late    []int64 `json:"late"`              // how late those were that came
	Answers []int64 `json:"answers"`           // how long an administrator waited for answers
	Refused []int   `json:"refused,omitempty"` // what else an administrator was answered; 0: nothing
}

// Setback is one time that the database lost its last commits. It goes on from a state that it had between From and Kept. It was gone at Gone, and
// back at Back.
type Setback struct {
	From int64 `json:"from"`
	Kept int64 `json:"kept"`
	Gone int64 `json:"gone"`
	Back int64 `json:"back"`
}

// SetBack returns the set-backs of a fault.
func (f *Fault) SetBack() []Setback {
	if f.Rewinds && len(f.Setbacks) == 0 {
		return []Setback{{From: f.Start, Kept: f.End, Gone: f.Start, Back: f.End}}
	}
	return f.Setbacks
}

// HoldsUp reports whether the fault may delay a delivery. d may be nil: any.
func (f *Fault) HoldsUp(d *Delivery) bool {
	if f.Beside {
		return false
	}
	return len(f.Only) == 0 || d != nil && (slices.Contains(f.Only, d.Topic) || slices.Contains(f.Only, fmt.Sprintf("%s/%d", d.Topic, d.Partition)))
}

// DatabaseSlots is the number that is added to a slot for each database before its own.
const DatabaseSlots = 1000

// SlotSample is a slot's row at one instant.
type SlotSample struct {
	At      int64  `json:"at"`
	Slot    int    `json:"slot"`
	Epoch   int64  `json:"epoch"`
	Owner   string `json:"owner"`
	Claimed int64  `json:"claimed"`
	Done    int64  `json:"done"`
	Gone    bool   `json:"gone,omitempty"` // its row was forgotten: it had been given up
}

// OffsetSample is what the group had committed for a partition and, read after that, what the
// database had.
type OffsetSample struct {
	At        int64  `json:"at"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"`
	Stored    int64  `json:"stored"`
	Database  int    `json:"database,omitempty"`
}

// Sent is one entry of a dispatcher's send log: an intent, or with Outcome the outcome of one.
type Sent struct {
	Log       string `json:"log"`
	Seq       int64  `json:"seq"`
	Attempt   int    `json:"attempt"`
	Outcome   bool   `json:"outcome,omitempty"`
	At        int64  `json:"at"`
	Topic     string `json:"topic,omitempty"`
	ID        string `json:"id,omitempty"`
	Slot      int    `json:"slot,omitempty"`
	Epoch     int64  `json:"epoch,omitempty"`
	Acked     bool   `json:"acked,omitempty"`
	Partition int32  `json:"partition,omitempty"`
	Offset    int64  `json:"offset,omitempty"`
}

// Entry is a position in a slot's order.
type Entry struct {
	Slot int   `json:"slot"`
	Pos  int64 `json:"pos"`
	Seq  int64 `json:"seq"`
}

// Pending is the row of a pending task.
type Pending struct {
	Entry
	Topic string `json:"topic"`
	ID    string `json:"id"`
}

// Rest is the state at the end, without work in progress.
type Rest struct {
	Until   int64     `json:"until"` // the index should hold entries with positions up to here
	Took    int64     `json:"took"`  // ms from the end of all work until index and database agreed
	Index   []Entry   `json:"index"`
	Pending []Pending `json:"pending"`

	Slots     []int `json:"slots,omitempty"`     // their number in each database; empty: not known
	Indexless bool  `json:"indexless,omitempty"` // the database is the index
}

// Drift returns the entries that the index should not hold, and those that it lacks.
func (r *Rest) Drift() (extra, missing []Entry) {
	if r.Indexless {
		return nil, nil
	}
	want := map[Entry]bool{}
	for _, p := range r.Pending {
		if p.Pos <= r.Until {
			want[p.Entry] = true
		}
	}
	for _, e := range r.Index {
		if e.Pos <= r.Until && !want[e] {
			extra = append(extra, e)
		}
		delete(want, e)
	}
	for e := range want {
		missing = append(missing, e)
	}
	return extra, missing
}

// Agrees reports whether the index holds exactly the pending tasks.
func (r *Rest) Agrees() bool {
	extra, missing := r.Drift()
	return len(extra)+len(missing) == 0
}

// Hash identifies a body: key, value and headers, each in its order.
func Hash(key, value []byte, headers ...[]byte) uint64 {
	h := xxhash.New()
	for _, part := range append([][]byte{key, value}, headers...) {
		_, _ = h.Write(part)
		_, _ = h.WriteString("\x00")
	}
	return h.Sum64()
}
