package scanner

import (
	"fmt"
	"sync"
)

type halt struct {
	source int   // whose log it is about
	next   int64 // stored up to here
	same   int64 // the log is the one that was stored up to here, -1: not known
	end    int64 // of the log, -1: not known
	why    string
	proven bool // by a record that was read
	// unknown: Kafka does not say whether the log is the stored one.
	unknown bool
}

// halted holds the partitions with another log than the stored one. Earlier records are still
// stored. No others are, until an operator decides where to go on, or the log proves intact.
type halted struct {
	mu sync.Mutex
	by map[partitionKey]halt
}

// set halts a partition. True: the halt is new, or more is known than before.
func (h *halted) set(key partitionKey, now halt) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = map[partitionKey]halt{}
	}
	before, was := h.by[key]
	if was && now.end < 0 {
		return false // more is known already
	}
	h.by[key] = now
	return !was || before.end < 0
}

func (h *halted) clear(key partitionKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.by, key)
}

func (h *halted) has(key partitionKey) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.by[key]
	return ok
}

// mayGoOn tells whether a halted partition may be read on after a look at its log. Of an unsure
// log, each read record still gives an answer: fits compares it.
func (h *halted) mayGoOn(key partitionKey, result verdict) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	why, ok := h.by[key]
	return ok && (result == intact || result == unsure && !why.proven)
}

func (h *halted) each(f func(partitionKey, halt)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, why := range h.by {
		f(key, why)
	}
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
