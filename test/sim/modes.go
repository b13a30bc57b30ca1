package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/notyet/notyet/test/chaos/history"
)

// apart is where the numbers of the requests below begin: they are numbered apart from the others, so that what is drawn
// by those numbers stays as it was.
const apart = 1_000_000

// modes are requests that meet a task of their id, other than to replace or cancel it: keep, once, merge, fire. They are drawn
// on their own, so that what older seeds draw stays as it is.
func (w *world) modes(now int64) (out []planned) {
	if w.forgets || w.setback.restored.yes { // an id that is forgotten is new; and a restored task keeps a request, though it was delivered since
		return nil
	}
	r := rand.New(rand.NewPCG(w.seed, 6))
	span := w.load.Milliseconds()
	for i := range 6 + r.IntN(6+int(w.load.Seconds())*w.rate/4) {
		at := now + r.Int64N(span)
		o := history.Op{Kind: history.Schedule, Topic: plainTopics[r.IntN(len(plainTopics))], ID: fmt.Sprintf("m%d", i), Key: fmt.Sprintf("k%d", r.IntN(5)),
			Due: at + 1 + r.Int64N(w.longest), Version: -1, AllEvents: true}
		p := r.IntN(100)
		if p < 65 && r.IntN(4) == 0 {
			o.Topic, o.AckTimeout, o.MaxAttempts, o.Backoff = ackTopic, w.ackTimeout, ackAttempts, ackBackoff
		}
		switch {
		case p < 25:
			out = append(out, kept(r, o, at)...)
		case p < 50:
			out = append(out, fired(r, o, at)...)
		case p < 65:
			out = append(out, versioned(r, o, at)...)
		default:
			out = append(out, merged(r, o, at)...)
		}
	}
	for i := range out {
		out[i].apart = true
	}
	return out
}

// around is an instant between two, or about the second one.
func around(r *rand.Rand, from, due int64) int64 {
	if r.IntN(2) == 0 {
		return max(from, due-50+r.Int64N(101))
	}
	return from + r.Int64N(max(due-from, 1))
}

// kept asks again for what is there: to keep it, to have it once, now and then to replace it. Some of it comes when the task has ended,
// some after a cancel.
func kept(r *rand.Rand, o history.Op, at int64) []planned {
	mode := pick(r, history.Keep, history.Once)
	o.IfExists = mode
	out := []planned{{at: at, op: o}}
	when, cancels := at, r.IntN(4) == 0
	for range 1 + r.IntN(3) {
		before := o.Due
		when = around(r, when, o.Due)
		if r.IntN(4) == 0 {
			when = max(when, o.Due) + r.Int64N(2000)
		}
		if cancels && r.IntN(2) == 0 {
			cancels = false
			out = append(out, planned{at: when, op: history.Op{Kind: history.Cancel, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: -1}})
		}
		if o.Due = max(o.Due, when) + 1 + r.Int64N(3000); mode == history.Once && r.IntN(2) == 0 {
			o.Due = before // published twice, by one that does not know of the first time
		}
		o.IfExists = mode
		if mode == history.Keep && r.IntN(4) == 0 {
			o.IfExists = ""
		}
		out = append(out, planned{at: when, op: o})
	}
	return out
}

// fired asks to deliver now: long before the task is due, about then, after it, before it is known, and beside a cancel.
func fired(r *rand.Rand, o history.Op, at int64) []planned {
	f := history.Op{Kind: history.Fire, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: -1}
	when := around(r, at, o.Due)
	switch r.IntN(8) {
	case 0: // it waits beyond the end, and maybe beyond the window
		o.Due += 3_600_000 + r.Int64N(3*3_600_000)
	case 1:
		when = o.Due + r.Int64N(1000)
	case 2:
		return []planned{{at: at, op: f}, {at: at + r.Int64N(2), op: o}}
	case 3:
		o.Version = 5
		f.Version = 4 + r.Int64N(3)
	case 4, 5:
		c := history.Op{Kind: history.Cancel, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: -1}
		then := when + r.Int64N(100)
		if r.IntN(2) == 0 {
			return []planned{{at: at, op: o}, {at: when, op: f}, {at: then, op: c}}
		}
		return []planned{{at: at, op: o}, {at: when, op: c}, {at: then, op: f}}
	}
	return []planned{{at: at, op: o}, {at: when, op: f}}
}

// versioned has a cancel with a version that is older than the task's, the same, or newer, and then a request of about that version.
func versioned(r *rand.Rand, o history.Op, at int64) []planned {
	o.Version = 5
	when := around(r, at, o.Due)
	c := history.Op{Kind: history.Cancel, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: 4 + r.Int64N(3)}
	out := []planned{{at: at, op: o}, {at: when, op: c}}
	if r.IntN(2) == 0 {
		o.Version, o.Due = 4+r.Int64N(4), max(o.Due, when)+1+r.Int64N(3000)
		out = append(out, planned{at: when + r.Int64N(2000), op: o})
	}
	return out
}

// merged are updates of one task: some within its window, some about its end, and now and then a cancel.
func merged(r *rand.Rand, o history.Op, at int64) (out []planned) {
	delay := 1 + r.Int64N(2000)
	o.IfExists, o.Merge, o.MaxWait = history.Merge, pick(r, history.Append, history.Sum, ""), pick[int64](r, 0, 500, 3000)
	relative := r.IntN(3) > 0
	for range 2 + r.IntN(8) {
		o.Due, o.Delay = at+delay, 0
		if relative {
			o.Due, o.Delay = 0, delay
		}
		out = append(out, planned{at: at, op: o})
		at = around(r, at, at+delay)
		if r.IntN(5) == 0 {
			at += r.Int64N(2 * delay)
		}
	}
	if r.IntN(6) == 0 {
		out = append(out, planned{at: at, op: history.Op{Kind: history.Cancel, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: -1}})
	}
	return out
}
