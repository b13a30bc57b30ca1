package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/notyet/notyet/internal/defaults"
	"github.com/notyet/notyet/test/chaos/history"
)

// lostSeeds is the first seed in which one process may lose one server alone, for minutes: what earlier seeds draw stays as it is.
const lostSeeds = 1 << 47

// lostAfter is how long the others may take to go on without a process that has lost a server: a dispatcher fails for 5 s, sees others
// work for 10 s, may wait 4 s for a broker's answer and ask again a second later, and then its slots are taken over. A scanner may wait
// 3 s for the database's answer twice, fails for 10 s, and then its group joins twice, which members hear of within 1.5 s.
const lostAfter = 3*defaults.FailingAfter + 10*time.Second

// lose draws whether a process loses a server, and what else happens then: half of such seeds have no other fault.
func (p *plan) lose() {
	r := rand.New(rand.NewPCG(p.seed, 59))
	if p.forgets || p.silent || p.hush != hushNone || p.moves > 0 || p.hostile || r.IntN(2) == 0 {
		return
	}
	p.loses, p.redis, p.stepsBack = true, false, 0 // with a clock that is set back, all is late for good
	p.scanners, p.dispatchers = max(p.scanners, 2), max(p.dispatchers, 2)
	if r.IntN(2) == 0 {
		p.faults, p.leaderless, p.deaf, p.disks, p.aims = 0, 0, 0, false, aims{}
	}
}

// loss is the time for which one process has lost one server.
type loss struct {
	n        *node
	s        *server
	from, to time.Time
}

// lost is a process that alone does not reach a server, or gets no answer from it.
func (w *world) lost() trouble {
	r := rand.New(rand.NewPCG(w.seed, 61))
	n, s := w.nodes[r.IntN(len(w.nodes))], pick(r, w.db.server, w.db.server, w.kafkaSrv, w.kafkaSrv, w.indexSrv, w.electionSrv)
	if n.scans {
		s = pick(r, w.db.server, w.kafkaSrv, w.indexSrv)
	}
	c := pick(r, condition{refuse: true}, condition{frozen: true})
	t := trouble{kind: "losing the " + s.name, target: n.name, at: time.Duration(r.Int64N(int64(w.load))), lasts: time.Duration(120+r.IntN(120)) * time.Second, within: lostAfter, moves: true, copies: s != w.indexSrv}
	t.doublesOn = s == w.kafkaSrv && !n.scans
	t.begin = func() {
		w.loss = loss{n: n, s: s, from: time.Now(), to: time.Now().Add(t.lasts)}
		s.setFor(n.name, c)
		if c.refuse {
			w.cutOf(s, func(l *link) bool { return l.p.name == n.name })
		}
		if n.scans && s == w.kafkaSrv && n.up != nil {
			go w.expire(n.up.client)
		}
	}
	t.end = func() { s.setFor(n.name, condition{}) }
	return t
}

// lostTasks are due while a process has lost a server. Half of them are asked for meanwhile.
func (w *world) lostTasks(now int64) (out []planned) {
	if !w.loses {
		return nil
	}
	r := rand.New(rand.NewPCG(w.seed, 67))
	t := w.lost()
	for i := range int(t.lasts/time.Second) - 1 {
		due := now + t.at.Milliseconds() + int64(i)*1000 + r.Int64N(1000)
		at := now + r.Int64N(w.load.Milliseconds())
		if r.IntN(2) == 0 {
			at = max(now, due-r.Int64N(5000))
		}
		o := history.Op{Kind: history.Schedule, Topic: plainTopics[r.IntN(2)], ID: fmt.Sprintf("lost-%d", i), Key: fmt.Sprintf("k%d", r.IntN(20)), Due: max(due, at), Version: -1}
		out = append(out, planned{at: at, op: o, apart: true})
	}
	return out
}

// judgeLost: while a process has lost a server, the others deliver in time, once they have had the time to go on without it.
func (w *world) judgeLost(h *history.History) {
	if !w.loses {
		return
	}
	ops := map[int64]*history.Op{}
	for i := range h.Ops {
		ops[h.Ops[i].N] = &h.Ops[i]
	}
	seen := map[int64]bool{}
	for _, d := range h.Deliveries {
		o := ops[d.Op]
		if o == nil || !strings.HasPrefix(o.ID, "lost-") || seen[d.Op] {
			continue
		}
		seen[d.Op] = true // the broker's order: the first copy
		ready := max(o.Accepted, d.Due)
		since := max(w.lostUntil(), w.truth.putOffUntil(name{d.Topic, d.ID}))
		if d.At <= since || ready > w.loss.to.UnixMilli()-w.lostLate() || w.otherFault(h, &d, ready) {
			continue
		}
		if late := d.At - max(ready, since); late > w.lostLate() {
			w.find("lost", "%s/%s was ready at %d, and delivered %d ms late: %s had lost the %s since %d, and others were there", d.Topic, d.ID, ready, late, w.loss.n.name, w.loss.s.name, w.loss.from.UnixMilli())
			return
		}
	}
}

// lostUntil is when the others have gone on. What their slots' owner had put off comes at its place then (putOffUntil). They call back what was set aside, a few at a time. What has piled up takes longer where it
// goes through a small room, beside tasks of a target that does not exist.
func (w *world) lostUntil() int64 {
	until := w.loss.from.Add(lostAfter + w.recalls)
	if w.dispatcher.StageTasks < 100 || w.dispatcher.StageBytes < 1<<20 {
		until = until.Add(20 * time.Second)
	}
	return until.UnixMilli()
}

// lostLate is how late a task may be, in ms, while a process has lost a server. One that comes late goes behind what is claimed.
func (w *world) lostLate() int64 { return 1000 + w.ahead() }

// lostHolds says that a dispatcher that has lost Kafka may have what was due at an instant in its producer: nobody knows whether it was
// sent, also when it was set aside before its slot changed hands.
func (w *world) lostHolds(due int64) bool {
	return w.loses && w.loss.s == w.kafkaSrv && !w.loss.n.scans && due >= w.loss.from.Add(-2*time.Second).UnixMilli() && due <= w.loss.from.Add(lostAfter).UnixMilli()
}

// lostElsewhere says that nothing but a loss has happened, and that it explains no second copy of a task.
func (w *world) lostElsewhere(topic, id string, due int64) bool {
	return w.loses && w.faults == 0 && !w.lostHolds(due) && !w.truth.everInDoubt(name{topic, id})
}

// otherFault tells whether another fault, or what it left behind, may have held up a delivery that was ready at an instant.
func (w *world) otherFault(h *history.History, d *history.Delivery, ready int64) bool {
	for _, f := range h.Faults {
		if f.Target != w.loss.n.name && f.HoldsUp(d) && f.Start <= d.At && f.End+60_000 >= ready {
			return true
		}
	}
	return false
}
