package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/history"
)

// trouble is one fault that is drawn: when it begins, how long it lasts, and what it does and undoes.
type trouble struct {
	kind    string
	target  string
	at      time.Duration
	lasts   time.Duration
	beside  bool             // of a side effect, while which deliveries go on
	gentle  bool             // it fails nothing, and takes nothing so long that anybody gives up
	only    []string         // what it holds up; none: everything
	moves   bool             // slots or partitions change hands: where something else is wrong at the time, copies may follow
	copies  bool             // copies may follow whatever else happens
	forgets *history.Setback // what of its last commits the database forgets; nil: nothing
	begin   func()
	end     func()

	within    time.Duration // how long it may hold up anything, though it lasts on; 0: as long as it lasts
	doublesOn bool          // copies may follow beyond that
}

// mischief breaks things as the seed has it, and answers what waits until all is whole again. Half of the faults are pairs:
// a process is stopped, dropped or paused while a server is in a bad way.
func (w *world) mischief() (whole func()) {
	r := rand.New(rand.NewPCG(w.seed, 3))
	var all []trouble
	for len(all) < w.faults {
		at := time.Duration(r.Int64N(int64(w.load)))
		server := w.serverTrouble(r, at)
		if r.IntN(2) == 0 {
			all = append(all, server)
			at += time.Duration(r.Int64N(int64(server.lasts)))
		} else if r.IntN(3) == 0 {
			all = append(all, server)
			continue
		}
		all = append(all, w.nodeTrouble(r, at))
	}
	for range w.moves {
		all = append(all, w.move(r, time.Duration(r.Int64N(int64(w.load)))))
	}
	if w.silent {
		all = append(all, w.silence())
	}
	if w.disks {
		all = append(all, w.diskTrouble())
	}
	if w.hush != hushNone {
		all = append(all, w.hushed(r))
	}
	last := rand.New(rand.NewPCG(w.seed, 19))
	for range w.leaderless {
		all = append(all, w.deposed(last))
	}
	if w.faults > 0 && w.has(patchySeeds) {
		all = append(all, w.patchy())
	}
	if w.loses {
		all = append(all, w.lost())
	}
	if w.setback.lost > 0 {
		all = append(all, w.setbackTrouble())
	}
	all = append(all, w.heldBackTroubles()...)
	if w.setback.lost == 0 || w.seed >= regimeSeeds && !w.setback.held {
		all = append(all, w.policies()...)
	}
	all = append(all, w.aimedTroubles()...)
	all = append(all, w.transactions()...)
	all = append(all, w.brinkTroubles()...)
	all = append(all, w.stallTroubles()...)
	all = append(all, w.cutTroubles()...)
	all = append(all, w.olderTroubles()...)
	all = append(all, w.rehearsalTroubles()...)
	all = append(all, w.forgetfulTroubles()...)
	var under sync.WaitGroup
	for i, t := range all {
		under.Go(func() { w.suffer(i, t, all) })
	}
	return under.Wait
}

// suffer lets one fault happen.
func (w *world) suffer(i int, t trouble, all []trouble) {
	time.Sleep(t.at)
	f := history.Fault{N: i + 1, Kind: t.kind, Target: t.target, Start: time.Now().UnixMilli(), Disorder: true, Effect: true}
	w.note("fault %d: %s of %s for %v", f.N, t.kind, t.target, t.lasts)
	t.begin()
	time.Sleep(t.lasts)
	t.end()
	f.End = time.Now().UnixMilli()
	w.note("fault %d is over", f.N)
	f.Beside, f.Only = t.beside, t.only
	if t.forgets != nil {
		f.Rewinds, f.Setbacks = true, []history.Setback{*t.forgets}
	}
	if t.doublesOn {
		on := f
		on.Beside, on.Doubles = true, true
		w.rec.Fault(on)
	}
	if t.within > 0 {
		f.End = min(f.End, f.Start+t.within.Milliseconds())
	}
	f.Doubles = t.copies || t.moves && beside(i, t, all)
	w.rec.Fault(f)
}

// beside tells whether another fault is under way, or just over, when t begins.
func beside(i int, t trouble, all []trouble) bool {
	const aftermath = 30 * time.Second
	for j, o := range all {
		if i != j && !o.gentle && o.at <= t.at+t.lasts+aftermath && o.at+o.lasts+aftermath >= t.at {
			return true
		}
	}
	return false
}

var spans = []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second, 7 * time.Second, 12 * time.Second, 25 * time.Second}

// serverTrouble is a server that is in a bad way.
func (w *world) serverTrouble(r *rand.Rand, at time.Duration) trouble {
	t := trouble{at: at, lasts: spans[r.IntN(len(spans))]}
	if r.IntN(4) == 0 {
		return w.topicTrouble(r, t)
	}
	servers := []*server{w.db.server, w.db.server, w.kafkaSrv, w.indexSrv, w.electionSrv}
	for _, c := range w.cells[1:] {
		servers = append(servers, c.db.server, c.db.server)
	}
	s := servers[r.IntN(len(servers))]
	var c condition
	t.kind, c = drawCondition(r)
	t.gentle = s == w.db.server && c.delay > 0 && c.delay < 10*time.Millisecond
	t.target, t.copies = s.name, s != w.indexSrv && !t.gentle
	t.begin = func() {
		s.set(c)
		if c.refuse {
			w.cut(s)
		}
	}
	t.end = func() { s.set(condition{}) }
	if s == w.indexSrv && r.IntN(3) == 0 {
		end := t.end
		t.end = func() {
			for _, c := range w.cells {
				c.memory.Flush()
			}
			end()
		}
	}
	return t
}

// drawCondition is a bad way for a server to be in.
func drawCondition(r *rand.Rand) (kind string, c condition) {
	switch r.IntN(6) {
	case 0:
		kind, c.delay = "slow", pick(r, 5*time.Millisecond, 20*time.Millisecond, 200*time.Millisecond, 3*time.Second)
	case 1:
		kind, c.frozen = "frozen", true
	case 2:
		kind, c.mute = "answering late", true
	case 3:
		kind, c.refuse = "refusing", true
	case 4:
		kind, c.before = "failing before the effect", pick(r, 0.05, 0.3)
	case 5:
		kind, c.after = "failing after the effect", pick(r, 0.05, 0.3)
	}
	return kind, c
}

// topicTrouble is a topic, or a partition of one, that acknowledges nothing.
func (w *world) topicTrouble(r *rand.Rand, t trouble) trouble {
	f := kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: pick(r, schemas.TopicResults, plainTopics[0], faintTopic, floodTopic, ackTopic), Err: kerr.NotEnoughReplicas, Count: -1}
	t.kind, t.target = "acknowledging nothing", f.Topic
	if f.Topic != schemas.TopicResults && r.IntN(2) == 0 {
		f.Partitions = []int32{r.Int32N(w.partitions)}
		t.target = fmt.Sprintf("%s/%d", f.Topic, f.Partitions[0])
	}
	if r.IntN(3) == 0 {
		t.kind, f.Err, t.copies = "storing without acknowledging", kerr.NotEnoughReplicasAfterAppend, true
	}
	var h *kfake.FaultHandle
	t.begin = func() { h = w.cluster.Fault(f) }
	t.end = func() { h.Remove() }
	return t
}

const failingInPart = "failing in part"

// patchySeeds is the first seed in which requests fail in part.
const patchySeeds = regimeSeeds + 2

// patchy lets each partition of the targets fail for itself, in half of the requests. So any part of what is sent together may fail.
func (w *world) patchy() trouble {
	r := rand.New(rand.NewPCG(w.seed, 901))
	t := trouble{kind: failingInPart, target: "all targets", at: time.Duration(r.Int64N(int64(w.load))), lasts: spans[1+r.IntN(4)], copies: true}
	w.patched = map[string]*kerr.Error{}
	for _, topic := range plainTopics {
		w.patched[topic] = pick(r, kerr.NotEnoughReplicas, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend)
	}
	var handles []*kfake.FaultHandle
	t.begin = func() {
		for i, topic := range plainTopics {
			for part := range w.partitions {
				coin := rand.New(rand.NewPCG(w.seed, uint64(i)<<32|uint64(part))) // the broker has one goroutine
				handles = append(handles, w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{part}, Err: w.patched[topic], Count: -1,
					When: func(kmsg.Request) bool { return coin.IntN(2) == 0 }}))
			}
		}
	}
	t.end = func() {
		for _, h := range handles {
			h.Remove()
		}
	}
	return t
}

// deposed is a partition of the intake or of the reports that has no leader. What was its leader still answers fetches: whoever
// observes the run reads it too, and asks again without a pause, which virtual time does not survive.
func (w *world) deposed(r *rand.Rand) trouble {
	said := kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: schemas.TopicIntake, Partitions: []int32{r.Int32N(w.partitions)}, Err: kerr.LeaderNotAvailable, Count: -1}
	if r.IntN(3) == 0 {
		said.Topic, said.Partitions = schemas.TopicReports, []int32{0}
	}
	done := said
	done.Keys, done.Err = []kmsg.Key{kmsg.Produce, kmsg.ListOffsets, kmsg.OffsetForLeaderEpoch}, kerr.NotLeaderForPartition
	t := trouble{kind: "no leader", target: fmt.Sprintf("%s/%d", said.Topic, said.Partitions[0]), at: time.Duration(r.Int64N(int64(w.load))), lasts: spans[r.IntN(len(spans))]}
	var faults []*kfake.FaultHandle
	t.begin = func() { faults = []*kfake.FaultHandle{w.cluster.Fault(said), w.cluster.Fault(done)} }
	t.end = func() {
		for _, f := range faults {
			f.Remove()
		}
	}
	return t
}

// silence is a results topic that acknowledges nothing, for longer than anything may be late.
func (w *world) silence() trouble {
	t := trouble{kind: "acknowledging nothing", target: schemas.TopicResults, at: w.load / 8, lasts: 2 * time.Minute, gentle: true, beside: true}
	var h *kfake.FaultHandle
	t.begin = func() {
		h = w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: schemas.TopicResults, Err: kerr.NotEnoughReplicas, Count: -1})
	}
	t.end = func() { h.Remove() }
	return t
}

// hushed are targets that acknowledge nothing, for longer than anything may be late: many topics, or one partition.
func (w *world) hushed(r *rand.Rand) trouble {
	t := trouble{kind: "acknowledging nothing", target: "many targets", at: 0, lasts: 3 * time.Minute, only: hushedTopics}
	faults := make([]kfake.Fault, len(hushedTopics))
	for i, topic := range hushedTopics {
		faults[i] = kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1}
	}
	if w.hush == hushPart {
		f := kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: plainTopics[0], Partitions: []int32{r.Int32N(w.partitions)}, Err: kerr.NotEnoughReplicas, Count: -1}
		t.target = fmt.Sprintf("%s/%d", f.Topic, f.Partitions[0])
		t.only, faults = []string{t.target}, []kfake.Fault{f}
	}
	var handles []*kfake.FaultHandle
	t.begin = func() {
		for _, f := range faults {
			handles = append(handles, w.cluster.Fault(f))
		}
	}
	t.end = func() {
		for _, h := range handles {
			h.Remove()
		}
	}
	return t
}

// nodeTrouble is a process that is stopped, dropped dead or paused, or whose share changes.
func (w *world) nodeTrouble(r *rand.Rand, at time.Duration) trouble {
	t := trouble{at: at, lasts: spans[r.IntN(len(spans)-1)], moves: true}
	n := w.nodes[r.IntN(len(w.nodes))]
	t.target = n.name
	switch r.IntN(8) {
	case 0, 1, 2:
		t.kind = "stop"
		t.begin = func() { n.busy.Lock(); n.stop() }
		t.end = func() { n.start(); n.busy.Unlock() }
	case 3, 4:
		t.kind, t.copies = "death", true
		t.begin = func() { n.busy.Lock(); n.kill() }
		t.end = func() { n.start(); n.busy.Unlock() }
	case 5, 6:
		t.kind, t.copies = "pause", true
		t.begin = func() { n.busy.Lock(); n.freeze() }
		t.end = func() { n.thaw(); n.busy.Unlock() }
	default:
		return w.move(r, at)
	}
	return t
}

// move gives the slots to others.
func (w *world) move(r *rand.Rand, at time.Duration) trouble {
	seed := r.Uint64()
	t := trouble{kind: "moving of slots", target: "the election", at: at, lasts: 3 * time.Second, moves: true, gentle: w.moves > 0, begin: func() { w.moveSlots(seed) }, end: func() {}}
	if w.zookeeper != nil {
		t.kind, t.copies = "expiry of a session", true // others take its slots at once, while its member trusts it
	}
	return t
}

// shuffle gives the slots to others.
func (e *electorate) shuffle(seed uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(e.owners), func(i, j int) { e.owners[i], e.owners[j] = e.owners[j], e.owners[i] })
	e.dirty = true
}

// busyLock is a lock whose waiters virtual time does not wait for.
type busyLock chan struct{}

func (b busyLock) Lock()   { b <- struct{}{} }
func (b busyLock) Unlock() { <-b }

// heal makes all well, and waits until every process is up.
func (w *world) heal() {
	for _, s := range w.servers() {
		s.set(condition{})
	}
	for _, n := range w.nodes {
		n.start()
	}
	w.note("all is well from here on")
}

func (w *world) servers() []*server {
	all := []*server{w.db.server, w.kafkaSrv, w.indexSrv, w.electionSrv, w.receivers}
	for _, c := range w.cells[1:] {
		all = append(all, c.db.server)
	}
	for _, n := range w.nodes {
		if n.disk != nil {
			all = append(all, n.disk)
		}
	}
	return all
}
