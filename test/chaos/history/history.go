// Package history is what a fault run leaves behind: every request, everything that came of it as the broker and the
// database show it, and every fault. The harness writes it, the checker reads it, and neither knows more of the other.
//
// All times are Unix ms. Those of records are the broker's (LogAppendTime), so that they compare.
package history

import "github.com/cespare/xxhash/v2"

// History is a whole run.
type History struct {
	Run        Run
	Ops        []Op
	Deliveries []Delivery
	Events     []Event
	Reports    []Report
	Letters    []Letter
	Faults     []Fault
	Slots      []SlotSample
	Offsets    []OffsetSample
	Sent       []Sent
	Rest       Rest
}

// Run is what the rest is measured by.
type Run struct {
	Seed    uint64 `json:"seed"`
	Commit  string `json:"commit"`
	Intake  string `json:"intake"`
	Slots   int    `json:"slots"`
	Session int64  `json:"session"` // ZooKeeper session, ms
	Start   int64  `json:"start"`   // load began
	End     int64  `json:"end"`     // everything drained, targets read

	Unrest []string `json:"unrest,omitempty"` // why it did not become whole or come to rest, and processes that ended by themselves
}

// What a client asked for.
const (
	Schedule = "schedule"
	Cancel   = "cancel"
)

// How it ended for the client. Unknown may have been accepted or not, and is never counted as lost.
const (
	OK      = "ok"
	Failed  = "failed"
	Unknown = "unknown"
)

// Op is one request of a client. Its number stands in the value of its record, so that whatever arrives names the request
// that it came from.
type Op struct {
	N       int64  `json:"n"`
	Kind    string `json:"kind"`
	Topic   string `json:"topic"`
	ID      string `json:"id,omitempty"` // "": none was given
	Key     string `json:"key"`
	Due     int64  `json:"due,omitempty"`   // as asked; 0 with Delay
	Delay   int64  `json:"delay,omitempty"` // ms, from Accepted
	Version int64  `json:"version"`         // -1: none
	High    bool   `json:"high,omitempty"`  // priority
	Told    bool   `json:"told,omitempty"`  // notyet-events: all
	Invalid bool   `json:"invalid,omitempty"`
	Mortal  bool   `json:"mortal,omitempty"`  // a fault aims at it or at its topic: it may end as a dead letter
	Hostile string `json:"hostile,omitempty"` // in what way it is beyond a limit
	Hash    uint64 `json:"hash"`              // of key, value and the caller's headers

	AckTimeout  int64 `json:"ack_timeout,omitempty"` // ms; 0: ack none
	MaxAttempts int   `json:"max_attempts,omitempty"`
	Backoff     int64 `json:"backoff,omitempty"`      // ms, fixed
	MaxLateness int64 `json:"max_lateness,omitempty"` // ms; 0: none

	At      int64  `json:"at"` // when the client sent it, by its own clock
	Outcome string `json:"outcome"`

	// Where the intake holds it, read back at the end. Accepted 0: it does not.
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
	Accepted  int64 `json:"accepted"`
}

// DueAt is when the op's task is due.
func (o *Op) DueAt() int64 {
	if o.Due == 0 {
		return o.Accepted + o.Delay
	}
	return o.Due
}

// Delivery is one record on a target topic.
type Delivery struct {
	Op        int64  `json:"op"` // 0: its value names none
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
}

// Event is one record on the results topic.
type Event struct {
	Topic   string `json:"topic"`
	ID      string `json:"id"`
	State   string `json:"state"`
	Due     int64  `json:"due"`
	At      int64  `json:"at"`
	Attempt int    `json:"attempt"`
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

// Letter is one dead letter.
type Letter struct {
	Topic   string `json:"topic"`
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Reason  string `json:"reason"`
	Attempt int    `json:"attempt"`
	DiedAt  int64  `json:"died_at"`
}

// Fault is one thing that was broken, from its start to when it was whole again.
type Fault struct {
	N        int    `json:"n"`
	Kind     string `json:"kind"`
	Target   string `json:"target"`
	Start    int64  `json:"start"`
	End      int64  `json:"end"`
	Overlap  bool   `json:"overlap,omitempty"` // a process was disturbed while a server was
	Doubles  bool   `json:"doubles"`           // it may cause second copies
	Disorder bool   `json:"disorder"`          // it may put off tasks one by one
	Rewinds  bool   `json:"rewinds"`           // it sets the database back
	Killed   string `json:"killed,omitempty"`  // the member that was killed, for takeover times
	Beside   bool   `json:"beside,omitempty"`  // it is of a side effect: deliveries go on
	Effect   bool   `json:"effect"`            // it was seen to have had one
	Evidence string `json:"evidence"`          // by this
}

// SlotSample is a slot as the database had it.
type SlotSample struct {
	At      int64  `json:"at"`
	Slot    int    `json:"slot"`
	Epoch   int64  `json:"epoch"`
	Owner   string `json:"owner"`
	Claimed int64  `json:"claimed"`
	Done    int64  `json:"done"`
}

// OffsetSample is what the group had committed for a partition and, read after that, what the database had.
type OffsetSample struct {
	At        int64  `json:"at"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"`
	Stored    int64  `json:"stored"`
}

// Sent is one entry of a dispatcher's send log: an intent, or with Outcome what came of one.
type Sent struct {
	Log       string `json:"log"`
	Seq       uint64 `json:"seq"`
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

// Entry is a place in a slot's line.
type Entry struct {
	Slot int    `json:"slot"`
	Pos  int64  `json:"pos"`
	Seq  uint64 `json:"seq"`
}

// Pending is a row that waits in its line.
type Pending struct {
	Entry
	Topic string `json:"topic"`
	ID    string `json:"id"`
}

// Rest is the state in which everything came to rest.
type Rest struct {
	Until   int64     `json:"until"` // the index is to hold what has its place up to here
	Took    int64     `json:"took"`  // ms from the end of all work until index and database agreed
	Index   []Entry   `json:"index"`
	Pending []Pending `json:"pending"`
}

// Drift is what the index holds and should not, and what it lacks.
func (r *Rest) Drift() (extra, missing []Entry) {
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

// Agrees tells whether the index holds exactly what waits.
func (r *Rest) Agrees() bool {
	extra, missing := r.Drift()
	return len(extra)+len(missing) == 0
}

// Hash is what a body is compared by: key, value and headers, each in its order.
func Hash(key, value []byte, headers ...[]byte) uint64 {
	h := xxhash.New()
	for _, part := range append([][]byte{key, value}, headers...) {
		_, _ = h.Write(part)
		_, _ = h.WriteString("\x00")
	}
	return h.Sum64()
}
