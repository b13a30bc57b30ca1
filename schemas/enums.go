package schemas

// Op is a request's operation.
type Op uint8

const (
	OpSchedule     Op = iota // a new task, or a new due time for a pending one
	OpCancel                 // no delivery
	OpFire                   // delivery now, or the next attempt now
	OpStop                   // no delivery, or no further one
	OpTimer                  // a new timer, or another definition of one
	OpTimerEnable            // the timer runs again
	OpTimerDisable           // the timer stops running, until it is enabled
	OpTimerDelete            // the timer ends
)

// IfExists is a schedule request's effect on a pending task of the same identity.
type IfExists uint8

const (
	Replace IfExists = iota // new due time, key, value and headers
	Keep                    // the first one wins
	Merge                   // see MergeMode
	Once                    // like Keep, but also applies when the task has ended and is still remembered
)

// MergeMode is how values are merged.
type MergeMode uint8

const (
	MergeLast   MergeMode = iota // the later value
	MergeSum                     // numeric leaves of JSON objects are added
	MergeAppend                  // a JSON array of all values
)

// Priority orders the tasks that are due at the same time.
type Priority uint8

const (
	PriorityNormal Priority = iota
	PriorityHigh
	PriorityLow
)

// Ack is what ends a task.
type Ack uint8

const (
	AckNone   Ack = iota // Kafka's acknowledgement
	AckReport            // a consumer's report
)

// Events selects which of a task's events go to the results topic.
type Events uint8

const (
	EventsNone Events = iota
	EventsFinal
	EventsAll
)

// Misfire is a timer's treatment of missed runs.
type Misfire uint8

const (
	MisfireOnce Misfire = iota // one run for all of them
	MisfireSkip                // none
	MisfireAll                 // every one
)

// Overlap is a timer's treatment of a run that is due while an earlier one is unfinished.
type Overlap uint8

const (
	OverlapAllow Overlap = iota // the run is delivered
	OverlapSkip                 // the run is dropped
)

// The names are the contract's. They are in the order of the constants.
var (
	opNames       = []string{"schedule", "cancel", "fire", "stop", "timer", "timer-enable", "timer-disable", "timer-delete"}
	ifExistsNames = []string{"replace", "keep", "merge", "once"}
	mergeNames    = []string{"last", "sum", "append"}
	priorityNames = []string{"normal", "high", "low"}
	ackNames      = []string{"none", "report"}
	eventsNames   = []string{"none", "final", "all"}
	misfireNames  = []string{"once", "skip", "all"}
	overlapNames  = []string{"allow", "skip"}
)

// The strings are the contract's words, as in the headers.

func (o Op) String() string        { return nameOf(opNames, uint8(o)) }
func (i IfExists) String() string  { return nameOf(ifExistsNames, uint8(i)) }
func (m MergeMode) String() string { return nameOf(mergeNames, uint8(m)) }
func (p Priority) String() string  { return nameOf(priorityNames, uint8(p)) }
func (a Ack) String() string       { return nameOf(ackNames, uint8(a)) }
func (e Events) String() string    { return nameOf(eventsNames, uint8(e)) }
func (m Misfire) String() string   { return nameOf(misfireNames, uint8(m)) }
func (o Overlap) String() string   { return nameOf(overlapNames, uint8(o)) }

// Ends tells whether a request with this op may end a task or a timer, and starts nothing.
func (o Op) Ends() bool {
	return o == OpCancel || o == OpStop || o == OpTimerDisable || o == OpTimerDelete
}

// nameOf returns "invalid" for a number that is no constant. No decoder accepts that word.
func nameOf(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return "invalid"
}

// parseEnum parses one of the names.
func parseEnum[T ~uint8](h header, names []string, v []byte, into *T) *Rejection {
	for i, n := range names {
		if string(v) == n {
			*into = T(i)
			return nil
		}
	}
	return enumProblem(h, names, v)
}
