package scanner

import (
	"fmt"
	"sync"

	"github.com/notyet/notyet/store/intake"
)

type halt struct {
	source int   // whose log it is about
	next   int64 // stored up to here
	same   int64 // the log is the one that was stored up to here, -1: not known
	end    int64 // of the log, -1: not known
	why    string
	proven bool // by a record that was read
	// unknown: Kafka does not say whether the log is the stored one.
	unknown   bool
	forgotten bool // the database has forgotten a restart
}

// forgot halts a partition of which the database knows fewer restarts than there were. Records that
// it would store get the delivery keys of lost ones, and consumers take them for copies.
func forgot(src intake.Source, restarts int) halt {
	return halt{source: src.ID, next: src.Next, same: -1, end: -1, why: forgotten(src.Generation, restarts), proven: true, forgotten: true}
}

func forgotten(known, restarts int) string {
	return fmt.Sprintf("it was restarted %d times, and the database knows %d of them", restarts, known)
}

// halted holds the partitions with another log than the stored one. Earlier records are still
// stored. No others are, until an operator decides where to go on, or the log proves intact.
type halted struct{ by sync.Map } // partitionKey → halt

// set halts a partition. True: the halt is new, or more is known than before.
func (h *halted) set(key partitionKey, now halt) bool {
	before, was := h.get(key)
	if was && now.end < 0 {
		return false // more is known already
	}
	h.by.Store(key, now)
	return !was || before.end < 0
}

func (h *halted) get(key partitionKey) (halt, bool) {
	why, ok := h.by.Load(key)
	if !ok {
		return halt{}, false
	}
	return why.(halt), true
}

func (h *halted) clear(key partitionKey) { h.by.Delete(key) }

func (h *halted) has(key partitionKey) bool {
	_, ok := h.get(key)
	return ok
}

// mayGoOn tells whether a halted partition may be read on after a look at its log. Of an unsure
// log, each read record still gives an answer: fits compares it.
func (h *halted) mayGoOn(key partitionKey, result verdict) bool {
	why, ok := h.get(key)
	return ok && (result == intact || result == unsure && !why.proven)
}

func (h *halted) each(f func(partitionKey, halt)) {
	h.by.Range(func(key, why any) bool { f(key.(partitionKey), why.(halt)); return true })
}

func (h *halted) keys() map[partitionKey]bool {
	out := map[partitionKey]bool{}
	h.each(func(key partitionKey, _ halt) { out[key] = true })
	return out
}

// ready returns an error about one of the halted partitions; nil: there is none.
func (h *halted) ready() (err error) {
	h.each(func(key partitionKey, why halt) {
		problem := "its log is not the one that was stored"
		if why.unknown {
			problem = "Kafka does not say whether its log is the one that was stored"
		} else if why.forgotten {
			problem = "the database has forgotten its restart"
		}
		err = fmt.Errorf("%s/%d is not read any further, %s: %s; see `notyet intake status`", key.topic, key.partition, problem, why)
	})
	return err
}

func (h halt) String() string {
	out := fmt.Sprintf("stored up to offset %d", h.next)
	if h.end >= 0 {
		out += fmt.Sprintf(", the log has offsets up to %d", h.end)
	}
	if h.same >= 0 {
		out += fmt.Sprintf(", both are the same up to %d", h.same)
	}
	if h.why != "" {
		out += " (" + h.why + ")"
	}
	return out
}
