package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/history"
)

// planned is a request and when it is sent.
type planned struct {
	at int64
	op history.Op
	// extra headers, beyond what the history has of an op
	extra []kgo.RecordHeader
	value []byte        // instead of the op's number
	apart bool          // it is numbered apart
	fine  time.Duration // how much earlier than the op says it is due: less than 1 ms
}

// Settings of tasks that wait for reports.
const (
	ackAttempts = 3
	ackBackoff  = 500 // ms
)

// ask sends the whole load on its way, from now on.
func (w *world) ask(begin time.Time) {
	r := rand.New(rand.NewPCG(w.seed, 2))
	now := begin.UnixMilli()
	var all []planned
	n := int(w.load.Seconds() * float64(w.rate))
	for i := range n {
		at := now + int64(i)*1000/int64(w.rate)
		all = append(all, w.life(r, i, at)...)
	}
	if r.IntN(3) == 0 { // many due at one instant
		due := now + 2000 + r.Int64N(w.load.Milliseconds())
		for i := range 20 + r.IntN(100) {
			all = append(all, planned{at: now + r.Int64N(2000), op: history.Op{Kind: history.Schedule, Topic: floodTopic, ID: fmt.Sprintf("burst-%d", i), Key: fmt.Sprint(i % 7), Due: due, Version: -1}})
		}
	}
	if w.forgets {
		all = append(all, ending(now+w.load.Milliseconds()/2)...)
	}
	if w.column < maxBlob {
		all = append(all, expiring(now, now+1000+r.Int64N(w.load.Milliseconds()))...)
	}
	if w.hush == hushMany { // several times what a dispatcher may hold
		for i := range 4 * w.dispatcher.StageTasks * w.dispatchers {
			all = append(all, planned{at: now + r.Int64N(2000), op: history.Op{Kind: history.Schedule, Topic: hushedTopics[i%len(hushedTopics)], ID: fmt.Sprintf("hushed-%d", i), Key: fmt.Sprint(i % 7), Due: now + 500 + r.Int64N(3000), Version: -1}})
		}
	}
	all = append(all, w.attack(now)...)
	if w.hostile {
		all = append(all, hostile(r, now, w.load.Milliseconds())...)
	}
	all = append(all, w.modes(now)...)
	storm := w.storm(now)
	all = append(all, storm...)
	w.stormed.Go(func() { w.look(w.asking, storm) })
	all = append(all, w.aimed(now)...)
	all = append(all, w.lostTasks(now)...)
	all = append(all, w.setbackTasks(now)...)
	all = append(all, w.restoredTasks(now)...)
	all = append(all, w.rehearsalTasks(now)...)
	all = append(all, w.brinkTasks(now)...)
	all = append(all, w.stops(now)...)
	slices.SortStableFunc(all, func(a, b planned) int { return int(a.at - b.at) })
	w.asked = make(chan struct{})
	go func() {
		defer close(w.asked)
		for _, p := range all {
			if wait := time.Until(time.UnixMilli(p.at)); wait > 0 {
				time.Sleep(wait)
			}
			w.send(p)
		}
	}()
}

func (w *world) life(r *rand.Rand, i int, at int64) []planned {
	o := history.Op{Kind: history.Schedule, Topic: plainTopics[r.IntN(len(plainTopics))], ID: fmt.Sprintf("t%d", i), Key: fmt.Sprintf("k%d", r.IntN(5)),
		Due: at + 1 + r.Int64N(w.longest), Version: -1, High: r.IntN(10) == 0}
	if r.IntN(8) == 0 {
		o.Due = at // at once
	}
	if r.IntN(16) == 0 { // as long as ids may be
		o.ID += "-" + strings.Repeat("x", 254-len(o.ID))
	}
	switch p := r.IntN(100); {
	case p < 8:
		o.MaxLateness, o.MayDie = 300+r.Int64N(2000), true
	case p < 35:
	case p < 45:
		o.ID = ""
		if r.IntN(2) == 0 {
			o.Due, o.Delay = 0, o.Due-at
		}
	case p < 60:
		return cancelled(r, o, at)
	case p < 75:
		return replaced(r, o, at)
	case p < 80:
		c := history.Op{Kind: history.Cancel, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: 3}
		o.Version = 3
		return []planned{{at: at, op: c}, {at: at + 1, op: o}}
	case p < 83:
		o.Due, o.Invalid = at, true
	case p < 86: // pending when the run ends
		o.Due = at + 3_600_000 + r.Int64N(3*3_600_000)
	case p < 90:
		o.Topic, o.MayDie = lostTopic, true
	default:
		o.Topic, o.AckTimeout, o.MaxAttempts, o.Backoff = ackTopic, w.ackTimeout, ackAttempts, ackBackoff
		if o.ID != "" && r.IntN(2) == 0 { // the id is used again
			again := o
			again.Due = o.Due + 500 + r.Int64N(4000)
			return []planned{{at: at, op: o}, {at: again.Due - r.Int64N(400), op: again}}
		}
	}
	return []planned{{at: at, op: o}}
}

// ending are cancels of tasks that never were: each leaves a row that is ended from the start, all of them at about one instant.
func ending(at int64) (out []planned) {
	for i := range 2200 {
		out = append(out, planned{at: at, op: history.Op{Kind: history.Cancel, Topic: plainTopics[i%2], ID: fmt.Sprintf("never-%d", i), Key: fmt.Sprint(i % 7), Version: 1}})
	}
	return out
}

// expiring are tasks with long ids that may be a millisecond late, all due at one instant.
func expiring(now, due int64) (out []planned) {
	for i := range 400 {
		id := fmt.Sprintf("expiring-%d-", i)
		out = append(out, planned{at: now + int64(i)%1000, op: history.Op{Kind: history.Schedule, Topic: floodTopic, ID: id + strings.Repeat("y", 255-len(id)), Key: fmt.Sprint(i % 7),
			Due: due, Version: -1, MaxLateness: 1, MayDie: true}})
	}
	return out
}

// cancelled asks for a cancel some time before the task is due, or about then.
func cancelled(r *rand.Rand, o history.Op, at int64) []planned {
	when := at + r.Int64N(o.Due-at+1)
	if r.IntN(2) == 0 {
		when = max(at, o.Due-50+r.Int64N(101))
	}
	return []planned{{at: at, op: o}, {at: when, op: history.Op{Kind: history.Cancel, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: -1}}}
}

// replaced asks for newer versions, some of them about when the task is due, and one that is too old.
func replaced(r *rand.Rand, o history.Op, at int64) []planned {
	versions := r.IntN(3) > 0
	o.AllEvents = true
	if versions {
		o.Version = 10
	}
	out := []planned{{at: at, op: o}}
	when := at
	for range 1 + r.IntN(3) {
		when += r.Int64N(max(o.Due-when, 1))
		if r.IntN(2) == 0 {
			when = max(when, o.Due-50+r.Int64N(101))
		}
		o.Due = max(o.Due, when) + 1 + r.Int64N(3000)
		if versions {
			o.Version++
		}
		out = append(out, planned{at: when, op: o})
		if versions && r.IntN(4) == 0 {
			old := o
			old.Version, old.Due = o.Version-2, o.Due+1
			out = append(out, planned{at: when + 1, op: old})
		}
	}
	return out
}

// hostile are records that Kafka takes because they compress to nothing, or that are odd in other ways. Each is answered, and
// none is in another's way.
func hostile(r *rand.Rand, now, span int64) (out []planned) {
	bad := func(i int) planned {
		return planned{at: now + r.Int64N(span), op: history.Op{Kind: history.Schedule, Topic: plainTopics[0], ID: fmt.Sprintf("hostile-%d", i), Key: "k0", Due: now + span, Version: -1, Invalid: true, Hostile: "size"}}
	}
	header := bad(0)
	header.extra = []kgo.RecordHeader{{Key: "zeros", Value: make([]byte, 20<<20)}}
	out = append(out, header)
	value := bad(1)
	value.value = make([]byte, 20<<20)
	copy(value.value, "op=")
	out = append(out, value)
	many := bad(2)
	for range 10_000 {
		many.extra = append(many.extra, kgo.RecordHeader{Key: "h", Value: []byte("v")})
	}
	return append(out, many)
}

// send hands a request to Kafka.
func (w *world) send(p planned) { w.sendBy(w.client, p) }

func (w *world) sendBy(client *kgo.Client, p planned) {
	w.mu.Lock()
	if p.apart {
		w.opsApart++
		p.op.N = apart + w.opsApart
	} else {
		w.ops++
		p.op.N = w.ops
	}
	w.mu.Unlock()
	p.op.At = time.Now().UnixMilli()
	r := record(&p)
	client.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
		p.op.Outcome = history.OK
		if err != nil {
			p.op.Outcome = history.Unknown
			w.find("sim", "Kafka did not take request %d: %v", p.op.N, err) // clients meet no fault
		}
		w.rec.Op(p.op)
	})
}

// report is what a consumer does about a delivery that waits for a report.
func (w *world) report(r *kgo.Record) {
	d, _, err := schemas.ParseDelivery(r)
	if err != nil {
		return // the checker sees it too
	}
	rep := schemas.Report{Topic: r.Topic, ID: d.ID, Attempt: d.Attempt, Status: schemas.StatusOK, RetryAfter: schemas.NoRetryAfter, Delivery: d.Key}
	n := lastRequestOf(r.Value)
	nameless := n > apart && rand.New(rand.NewPCG(w.seed^uint64(d.Attempt), uint64(n))).IntN(4) == 0
	send := func(rep schemas.Report) {
		if nameless { // by a consumer that does not say which delivery it means
			rep.Delivery = ""
		}
		w.client.Produce(context.Background(), schemas.EncodeReport(schemas.TopicReports, rep), nil)
	}
	if in, yes := w.reportOnBrink(r, d.ID, d.Attempt); yes {
		time.AfterFunc(in, func() { send(rep) })
		return
	}
	rnd := rand.New(rand.NewPCG(w.seed^uint64(d.Attempt)<<32, uint64(n)))
	if w.reportStops(rep, rnd, send) {
		return
	}
	switch p := rnd.IntN(100); {
	case p < 45:
		send(rep)
	case p < 58:
		send(rep)
		time.AfterFunc(time.Duration(rnd.Int64N(6000))*time.Millisecond, func() { send(rep) }) // doubled, maybe much later
	case p < 66: // of an attempt and of a task that never were
		foreign := rep
		foreign.Attempt, foreign.Status = 99, schemas.StatusFail
		send(foreign)
		foreign.Attempt, foreign.ID = 1, "nobody"
		send(foreign)
		send(rep)
	case p < 76:
		rep.Status = schemas.StatusRetry
		send(rep)
		w.retryIsDue(time.Now().Add(ackBackoff * time.Millisecond))
		if w.truth != nil && rnd.IntN(2) == 0 { // once more, when another attempt is under way
			time.AfterFunc(time.Duration(ackBackoff+rnd.Int64N(2000))*time.Millisecond, func() { send(rep) })
		}
	case p < 84:
		w.retryIsDue(time.Now().Add(300 * time.Millisecond))
		rep.Status, rep.RetryAfter = schemas.StatusRetry, 300*time.Millisecond
		send(rep)
	case p < 90:
		time.AfterFunc(time.Duration(w.ackTimeout+ackBackoff/2)*time.Millisecond, func() { send(rep) })
	case p < 95:
		rep.Status, rep.Error = schemas.StatusFail, "it is beyond me"
		send(rep)
	}
}
