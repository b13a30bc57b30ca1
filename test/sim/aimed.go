package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/test/chaos/history"
)

// What chance seldom hits is aimed at here, from aimedSeeds on: each aim is a few requests, a fault, or both, at instants that fit.

// aim draws what a plan of an aimed seed has beside the others.
func (p *plan) aim() {
	r := rand.New(rand.NewPCG(p.seed, 31))
	if !p.forgets {
		p.dispatcher.Retention = pick(r, 10*time.Minute, time.Hour)
	}
	p.dispatcher.MisfireAfter = pick(r, time.Second, 3*time.Second, time.Minute)
	p.aims = aims{
		held: r.IntN(4) == 0, second: r.IntN(4) == 0, oddDatabase: r.IntN(3) == 0, outage: p.timers > 0 && r.IntN(2) == 0,
		lateElection: p.zookeeper && r.IntN(2) == 0, refusing: p.dispatcher.UndeliverableAfter > 0 && r.IntN(3) == 0, ended: !p.forgets && r.IntN(3) == 0,
		resultsDie: r.IntN(4) == 0, paused: r.IntN(3) == 0,
	}
	if p.moves > 0 || p.hush != hushNone || p.faults == 0 || p.hostile { // these look at what happens without such faults
		p.aims = aims{}
	}
}

// aims are what a seed aims at.
type aims struct {
	held         bool // tasks in doubt are held by a pause of their target, and then cancelled
	second       bool // a process dies between the intent of a second attempt and its sending, and comes back soon
	oddDatabase  bool // the database fails with errors of its own
	outage       bool // no dispatcher is there for longer than a timer's run may be late
	lateElection bool // answers of the election are late, and then there are none
	refusing     bool // a target refuses for a moment
	ended        bool // requests come about what ended 10 to 50 s ago
	paused       bool // a target is paused, and what is told to be too late is asked for once more
	resultsDie   bool // a dispatcher dies while the results topic acknowledges nothing
}

// aimed are the requests of an aimed seed.
func (w *world) aimed(now int64) (out []planned) {
	if w.truth == nil || w.forgets {
		return nil
	}
	r := rand.New(rand.NewPCG(w.seed, 37))
	span := w.load.Milliseconds()
	one := func(kind string, i int) (history.Op, int64) {
		at := now + r.Int64N(span)
		return history.Op{Kind: history.Schedule, Topic: plainTopics[r.IntN(2)], ID: fmt.Sprintf("%s-%d", kind, i), Key: fmt.Sprintf("k%d", r.IntN(5)), Due: at + 1 + r.Int64N(w.longest), Version: -1, AllEvents: true}, at
	}
	for i := range 4 + r.IntN(8) { // due times that are no whole milliseconds
		o, at := one("fine", i)
		p := planned{at: at, op: o, fine: time.Duration(1+r.IntN(999))*time.Microsecond + time.Duration(r.IntN(2)*300)}
		if r.IntN(2) == 0 {
			p.op.Due, p.op.Delay = 0, o.Due-at
		}
		out = append(out, p)
	}
	for i := range 2 + r.IntN(3) { // with a version, without one, and with an older one
		o, at := one("mixed", i)
		o.Version = 10
		out = append(out, planned{at: at, op: o})
		o.Version, o.Due = -1, max(o.Due, at)+500+r.Int64N(2000)
		out = append(out, planned{at: at + 20, op: o})
		o.Version, o.Due = 5+r.Int64N(5), o.Due+1
		out = append(out, planned{at: at + 40 + r.Int64N(3000), op: o})
	}
	for i := range 2 + r.IntN(3) { // cancelled, and then asked for once, or with the same version again
		o, at := one("again", i)
		c := history.Op{Kind: history.Cancel, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: 3}
		if r.IntN(2) == 0 {
			o.IfExists = history.Once
		} else {
			o.Version = 3
		}
		out = append(out, planned{at: at, op: c}, planned{at: at + 30 + r.Int64N(500), op: o})
	}
	for i := range 2 + r.IntN(3) { // fired with a version, and then asked for with an older one
		o, at := one("fired", i)
		o.Version, o.Due = 5, o.Due+2000
		f := history.Op{Kind: history.Fire, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: 9}
		out = append(out, planned{at: at, op: o}, planned{at: at + 30 + r.Int64N(500), op: f})
		o.Version, o.Due = 6+r.Int64N(3), o.Due+1
		out = append(out, planned{at: at + 700 + r.Int64N(2000), op: o})
	}
	for i := range 2 + r.IntN(4) { // while it waits for a report, it is asked for again, and that is cancelled
		o, at := one("behind", i)
		o.Topic, o.AckTimeout, o.MaxAttempts, o.Backoff = ackTopic, w.ackTimeout, ackAttempts, ackBackoff
		o.Due = at + 200
		again := o
		again.Due = at + 60_000
		out = append(out, planned{at: at, op: o}, planned{at: at + 300 + r.Int64N(400), op: again},
			planned{at: at + 900 + r.Int64N(3000), op: history.Op{Kind: history.Cancel, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: -1}})
	}
	if w.aims.ended {
		for i := range 6 {
			o, at := one("ended", i)
			o.Version = 4
			later := o.Due + 10_000 + r.Int64N(40_000)
			next := history.Op{Kind: history.Cancel, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: 7}
			switch r.IntN(3) {
			case 0:
				next = o
				next.Version, next.Due = 2, later+1000
			case 1:
				o.IfExists, o.Version = history.Once, -1
				next = o
				next.Due = later + 1000
			}
			out = append(out, planned{at: at, op: o}, planned{at: later, op: next})
		}
	}
	if w.aims.held {
		out = append(out, w.heldInDoubt(now)...)
	}
	if w.aims.paused {
		out = append(out, w.toldTooLate(now)...)
	}
	for i := range out {
		out[i].apart = true
	}
	return out
}

// heldAt is when the tasks of heldInDoubt are due, after the load began.
const heldAt = 1500

// heldInDoubt are tasks that are due together. Their dispatchers die as they send them (heldTrouble), their target is paused before others
// take over, and then they are cancelled.
func (w *world) heldInDoubt(now int64) (out []planned) {
	r := rand.New(rand.NewPCG(w.seed, 41))
	for i := range 30 {
		o := history.Op{Kind: history.Schedule, Topic: plainTopics[0], ID: fmt.Sprintf("held-%d", i), Key: fmt.Sprint("held", i), Due: now + heldAt + r.Int64N(60), Version: -1}
		c := history.Op{Kind: history.Cancel, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: -1}
		out = append(out, planned{at: now + r.Int64N(300), op: o}, planned{at: now + heldAt + w.session.Milliseconds() + 1500 + r.Int64N(4000), op: c})
	}
	return out
}

// pausedAt is when the target of toldTooLate is paused, after the load began.
const pausedAt = 2000

// toldTooLate are tasks whose target is paused when they fall due. They are cancelled a moment before, when they may be claimed, and
// again when they are held.
func (w *world) toldTooLate(now int64) (out []planned) {
	r := rand.New(rand.NewPCG(w.seed, 53))
	for i := range 20 {
		o := history.Op{Kind: history.Schedule, Topic: plainTopics[1], ID: fmt.Sprintf("told-%d", i), Key: fmt.Sprint("told", i), Due: now + pausedAt + 100 + r.Int64N(1500), Version: -1, AllEvents: true, Storm: true}
		c := history.Op{Kind: history.Cancel, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: -1, Storm: true}
		first := o.Due - r.Int64N(w.dispatcher.LookAhead.Milliseconds()+20)
		out = append(out, planned{at: now + r.Int64N(300), op: o}, planned{at: first, op: c}, planned{at: max(first, o.Due) + 300 + r.Int64N(3000), op: c})
	}
	return out
}

// aimedTroubles are the faults of an aimed seed.
func (w *world) aimedTroubles() (all []trouble) {
	if w.truth == nil {
		return nil
	}
	r := rand.New(rand.NewPCG(w.seed, 43))
	somewhen := func() time.Duration { return time.Duration(r.Int64N(int64(w.load))) }
	if w.aims.held {
		all = append(all, w.heldTrouble(r)...)
	}
	if w.aims.paused {
		topic := plainTopics[1]
		all = append(all, trouble{kind: "policy (paused)", target: topic, only: []string{topic}, gentle: true, at: pausedAt * time.Millisecond, lasts: 7 * time.Second,
			begin: func() { w.policy(topic, admin.Policy{Paused: true}) }, end: func() { w.policy(topic, admin.Policy{}) }})
	}
	if w.aims.oddDatabase {
		c := condition{odd: pick(r, 0.02, 0.1, 0.3)}
		all = append(all, trouble{kind: "failing with errors of its own", target: w.db.name, at: somewhen(), lasts: spans[1+r.IntN(4)], copies: true,
			begin: func() { w.db.set(c) }, end: func() { w.db.set(condition{}) }})
	}
	if w.aims.outage {
		all = append(all, w.all(somewhen(), w.dispatcher.MisfireAfter%time.Minute+8*time.Second))
	}
	if w.aims.lateElection {
		all = append(all, w.lateElection(r, somewhen()))
	}
	if w.aims.refusing {
		topic := plainTopics[r.IntN(2)]
		f := kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.TopicAuthorizationFailed, Count: -1}
		var h *kfake.FaultHandle
		all = append(all, trouble{kind: "refusing for a moment", target: topic, at: somewhen(), lasts: 500*time.Millisecond + time.Duration(r.IntN(1500))*time.Millisecond,
			begin: func() { h = w.cluster.Fault(f) }, end: func() { h.Remove() }})
	}
	if w.aims.resultsDie {
		t := w.silence()
		t.at, t.lasts = somewhen(), 4*time.Second
		d := w.all(t.at+500*time.Millisecond+time.Duration(r.IntN(2000))*time.Millisecond, time.Second)
		all = append(all, t, d)
	}
	if w.aims.second {
		all = append(all, w.secondIntents(r))
	}
	return all
}

// all are deaths of all dispatchers at once.
func (w *world) all(at, lasts time.Duration) trouble {
	nodes := w.nodes[w.scanners:]
	return trouble{kind: "death", target: "all dispatchers", at: at, lasts: lasts, moves: true, copies: true,
		begin: func() {
			for _, n := range nodes {
				n.busy.Lock()
				n.kill()
			}
		},
		end: func() {
			for _, n := range nodes {
				n.start()
				n.busy.Unlock()
			}
		}}
}

func (w *world) heldTrouble(r *rand.Rand) []trouble {
	at := heldAt*time.Millisecond + time.Duration(r.IntN(80))*time.Millisecond
	pause := trouble{kind: "policy (paused)", target: plainTopics[0], only: []string{plainTopics[0]}, gentle: true, at: at + 50*time.Millisecond, lasts: w.session + 8*time.Second,
		begin: func() { w.policy(plainTopics[0], admin.Policy{Paused: true}) }, end: func() { w.policy(plainTopics[0], admin.Policy{}) }}
	return []trouble{w.all(at, 500*time.Millisecond), pause}
}

// lateElection lets answers of the election come when most of the time for them is over, and then none at all: whoever counts his
// trust from an answer trusts it for too long.
func (w *world) lateElection(r *rand.Rand, at time.Duration) trouble {
	pace := w.window() / 3 // what one answer may take
	late := pace * time.Duration(60+r.IntN(36)) / 100
	first := time.Second + time.Duration(r.IntN(3000))*time.Millisecond
	t := trouble{kind: "answering late, and then not at all", target: w.electionSrv.name, at: at, lasts: first + w.window() + 2*time.Second, copies: true}
	t.begin = func() {
		w.electionSrv.set(condition{late: late})
		time.Sleep(first)
		w.electionSrv.set(condition{mute: true})
	}
	t.lasts -= first
	t.end = func() { w.electionSrv.set(condition{}) }
	return t
}

// secondIntents lets dispatchers die as they have written to their send logs while second attempts are due, and come back soon: the log
// has the first attempt's outcome then, and only the intent of the second.
func (w *world) secondIntents(r *rand.Rand) trouble {
	back := time.Duration(50+r.IntN(900)) * time.Millisecond
	return trouble{kind: "death", target: "dispatchers at second attempts", at: 0, lasts: w.load + 8*time.Second, moves: true, copies: true,
		begin: func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.dieAtIntent = func(n *node, p *process) {
				n.w.note("%s dies at the intent of a second attempt", n.name)
				p.kill()
				w.dying.Go(func() {
					n.busy.Lock()
					defer n.busy.Unlock()
					if n.up != nil && n.up.process == p {
						n.kill()
						time.Sleep(back)
						n.start()
					}
				})
			}
		},
		end: func() {
			w.mu.Lock()
			w.dieAtIntent = nil
			w.mu.Unlock()
			w.dying.Wait()
		}}
}

// maxIntentDeaths bounds the deaths of one run at second intents.
const maxIntentDeaths = 3

// retryIsDue notes that a second attempt is due at an instant.
func (w *world) retryIsDue(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retries = append(w.retries, at)
}

// intentWritten is called when a dispatcher has written to its send log.
func (w *world) intentWritten(n *node, p *process) {
	w.mu.Lock()
	die, now := w.dieAtIntent, time.Now()
	near := slices.ContainsFunc(w.retries, func(at time.Time) bool {
		return now.After(at.Add(-w.dispatcher.LookAhead)) && now.Before(at.Add(300*time.Millisecond))
	})
	if die == nil || !near || w.intentDeaths >= maxIntentDeaths || !p.alive() {
		w.mu.Unlock()
		return
	}
	w.intentDeaths++
	w.mu.Unlock()
	die(n, p)
}
