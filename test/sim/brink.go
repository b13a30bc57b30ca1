package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/test/chaos/history"
)

// brinkSeeds is the first seed with reports that come as the time for them ends, and with situations in which a mistake needs two things at
// once: what earlier seeds draw stays as it is.
const brinkSeeds = 5 << 49

// brink draws one of these situations, or none.
type brink int

const (
	brinkNone    brink = iota
	brinkClock         // tasks come for at once just as the database's clock was set back: their slots are claimed further ahead than a look-ahead
	brinkRenewed       // tombstones are renewed just as their retention ends
	brinkReplies       // dispatchers get no answer to half of what they do in the database, for five seconds
	brinkLeaving       // slots change hands often, with tasks that fall due when the time for draining is over
	brinkBehind        // the database forgets, and dispatchers reach the one that takes its place later than scanners do
)

func (p *plan) stand() {
	p.reports = true
	r := rand.New(rand.NewPCG(p.seed, 89))
	switch n := r.IntN(6); {
	case p.forgets:
		p.brink = brinkRenewed
	case p.setback.lost > 0:
		p.brink, p.dispatcher.LookAhead = brinkBehind, 2*time.Second
	case n > 2, p.silent, p.hush != hushNone, p.moves > 0, p.hostile, p.column < maxBlob:
	case n == 1:
		p.brink, p.loses, p.redis, p.faults = brinkReplies, false, false, max(p.faults, 1)
		p.edges.commits, p.scanner.CommitEvery = false, -1
	case n == 2:
		p.brink, p.loses, p.alone, p.zookeeper, p.redis, p.growth, p.aims, p.stepsBack = brinkLeaving, false, false, false, false, nil, aims{}, 0
		p.faults, p.leaderless, p.disks, p.latency, p.moves, p.dispatchers = 0, 0, false, time.Millisecond, 10+r.IntN(10), 2+r.IntN(2)
		p.edges.commits, p.scanner.CommitEvery = false, -1
		p.dispatcher.LookAhead, p.dispatcher.BurstLookAhead, p.dispatcher.DrainTimeout, p.dispatcher.StageTasks, p.dispatcher.StageBytes = 2*time.Second, time.Millisecond, 2*time.Second, 100, 1<<20
	default:
		p.brink, p.loses, p.redis = brinkClock, false, false
		p.stepsBack = pick(r, 500*time.Millisecond, time.Second)
		p.dispatcher.LookAhead = pick(r, 50*time.Millisecond, 400*time.Millisecond)
	}
}

// brinkTasks are the requests of these situations.
func (w *world) brinkTasks(now int64) (out []planned) {
	r := rand.New(rand.NewPCG(w.seed, 97))
	add := func(kind string, at, due int64) *history.Op {
		i := len(out)
		o := history.Op{Kind: history.Schedule, Topic: plainTopics[r.IntN(2)], ID: fmt.Sprintf("%s-%d", kind, i), Key: fmt.Sprintf("brink%d", i%8), Due: due, Version: -1}
		out = append(out, planned{at: at, op: o, apart: true})
		return &out[i].op
	}
	switch w.brink {
	case brinkClock:
		back := now + w.load.Milliseconds()/2
		for range 80 {
			add("before", now+r.Int64N(200), back-1000+r.Int64N(3000))
		}
		for range 60 { // each process asks for the time once a second
			at := back + r.Int64N(1000+w.stepsBack.Milliseconds())
			add("after", at, at-w.stepsBack.Milliseconds()-10)
		}
	case brinkReplies:
		for range 100 {
			add("reply", now+r.Int64N(200), now+w.load.Milliseconds()/2+r.Int64N(repliesLast.Milliseconds()))
		}
	case brinkLeaving:
		for range 300 {
			add("leaving", now+r.Int64N(200), now+500+r.Int64N(w.load.Milliseconds()))
		}
	case brinkRenewed:
		for _, c := range ending(now + w.load.Milliseconds()/2) {
			c.at += w.dispatcher.Retention.Milliseconds() + r.Int64N(7000) // a tenth of the retention, from round to round
			c.op.Version, c.apart = 2, true
			out = append(out, c)
		}
		return out
	}
	for range 6 {
		if !w.reports {
			break
		}
		at := now + r.Int64N(w.load.Milliseconds())
		o := add(onBrink, at, at+r.Int64N(2000))
		o.Topic, o.AckTimeout, o.MaxAttempts, o.Backoff = ackTopic, w.ackTimeout, ackAttempts, ackBackoff
	}
	return out
}

// onBrink begins the ids of tasks whose reports come just before their time is over, when their slot is claimed again already.
const onBrink = "brink"

// reportOnBrink tells whether a delivery is of such a task, and when it is reported.
func (w *world) reportOnBrink(r *kgo.Record, id string, attempt int) (in time.Duration, yes bool) {
	if !strings.HasPrefix(id, onBrink+"-") {
		return 0, false
	}
	rnd := rand.New(rand.NewPCG(w.seed^uint64(attempt), uint64(len(r.Value))<<32|uint64(lastRequestOf(r.Value))))
	return time.Duration(w.ackTimeout-rnd.Int64N(w.dispatcher.LookAhead.Milliseconds())) * time.Millisecond, true
}

// repliesLast is how long dispatchers lack answers, with brinkReplies.
const repliesLast = 5 * time.Second

// brinkTroubles are the faults of these situations.
func (w *world) brinkTroubles() []trouble {
	if w.brink != brinkReplies {
		return nil
	}
	all := func(c condition) {
		for _, n := range w.nodes[w.scanners:] {
			w.db.setFor(n.name, c)
		}
	}
	return []trouble{{kind: "failing after the effect", target: w.db.name, at: w.load / 2, lasts: repliesLast, copies: true,
		begin: func() { all(condition{after: 0.5}) }, end: func() { all(condition{}) }}}
}

// slowBroker makes the broker's answers slow, with brinkLeaving: an answer that is still under way when a slot goes is lost for its owner.
func (w *world) slowBroker() {
	if w.brink == brinkLeaving {
		w.kafkaSrv.set(condition{delay: 15 * time.Millisecond})
	}
}

// behind is how long dispatchers do not reach the database that has taken another's place, with brinkBehind.
const behind = 2 * time.Second

// startBehind lets dispatchers reach the database later than scanners do.
func (w *world) startBehind() {
	if w.brink != brinkBehind {
		return
	}
	for _, n := range w.nodes[w.scanners:] {
		w.db.setFor(n.name, condition{refuse: true})
		time.AfterFunc(behind, func() { w.db.setFor(n.name, condition{}) })
	}
}
