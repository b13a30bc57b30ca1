package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/dispatcher"
	"github.com/notyet/notyet/scanner"
)

// plan is what a seed draws before the clock starts. Small bounds find more.
type plan struct {
	seed        uint64
	slots       int
	partitions  int32 // of the intake, and of each target
	scanners    int
	dispatchers int
	session     time.Duration // of the election
	load        time.Duration
	rate        int // tasks a second
	longest     int64
	faults      int // how many
	hostile     bool
	moves       int           // how often slots change hands while nothing is broken
	latency     time.Duration // of each call to the database that is well
	forgets     bool          // many tasks end at once, and the retention is short
	silent      bool          // the results topic answers nothing for longer than anything may be late
	hush        hush          // targets that take nothing for longer than anything may be late, while the others go on
	stepsBack   time.Duration // how far the database's clock is set back on the way; 0: not at all
	small       int           // how many records a producer holds; 0: as many as usual
	column      int           // how many bytes of events the database takes in one row
	disks       bool          // the disk of a send log fails
	redis       bool          // the index is in Redis: only without faults, for its client waits for answers under locks, for which virtual time does not wait
	ackTimeout  int64         // ms
	timers      int
	callbacks   int // how many are asked for
	deaf        int // how often their receivers are in a bad way
	zookeeper   bool
	alone       bool // Kafka and the database alone: no ZooKeeper, no Redis
	aims        aims
	loses       bool // one process loses one server alone
	edges       edges
	setback     setback
	logCut      cutLog
	older       older
	rehearsal   rehearsal
	growth      []slotsSet
	several     int // databases beside the first one
	orders      []moveOrder
	forgetful   forgetful
	stall       bool // tasks are kept from leaving slots that are split
	brink       brink
	reports     bool          // some reports come as the time for them ends
	quota       scanner.Quota // of the intake
	sweeps      int           // how often many tasks are cancelled
	cancels     api.CancelsConfig
	replays     int // how many tasks have letters that are replayed
	strange     int // records of somebody who may use another intake alone
	madeUp      int // names of topics that somebody makes up
	tenant      tenant
	leaderless  int // how often a partition of the intake or the reports has no leader
	scanner     scanner.Config
	dispatcher  dispatcher.Config
}

// hush is what takes nothing.
type hush int

const (
	hushNone hush = iota
	hushMany      // many targets
	hushPart      // one partition of a target
)

func drawn(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 1))
	p := plan{
		seed: seed, slots: 1 + r.IntN(5), partitions: 1 + r.Int32N(3), scanners: 1 + r.IntN(3), dispatchers: 1 + r.IntN(3),
		session: pick(r, 2*time.Second, 4*time.Second), load: time.Duration(3+r.IntN(8)) * time.Second, rate: pick(r, 2, 5, 15), faults: r.IntN(9),
		hostile: r.IntN(12) == 0, longest: pick[int64](r, 2000, 10_000, 30_000),
	}
	window := pick(r, 5*time.Second, time.Minute, 2*time.Hour)
	// Nothing is committed to Kafka: its client commits under a lock, and virtual time does not wait for locks, so a process that is paused
	// meanwhile would stop it.
	p.scanner = scanner.Config{CommitEvery: -1, Workers: pick(r, 1, 2, 4), BatchRecords: pick(r, 3, 10, 100), Window: window}
	p.dispatcher = dispatcher.Config{
		LookAhead: pick(r, 50*time.Millisecond, 400*time.Millisecond, 2*time.Second), BurstLookAhead: pick(r, time.Millisecond, 3*time.Second), Window: window,
		StageTasks: pick(r, 8, 20, 100), StageBytes: pick(r, 4<<10, 1<<20), DrainTimeout: pick(r, 2*time.Second, 5*time.Second), UnresponsiveAfter: pick(r, 3*time.Second, 10*time.Second),
		Retention: time.Hour, MisfireAfter: time.Minute,
	}
	p.redis = p.faults == 0 && r.IntN(2) == 0
	more := rand.New(rand.NewPCG(seed, 4)) // on its own, so that what older seeds draw stays as it is
	p.latency, p.column = pick(more, 0, time.Millisecond), maxBlob
	switch more.IntN(10) {
	case 0:
		p.forgets, p.dispatcher.Retention = true, time.Minute
	case 1:
		p.silent, p.small = true, 20+more.IntN(40)
	case 2:
		p.stepsBack = pick(more, 200*time.Millisecond, 500*time.Millisecond, time.Second)
	case 3:
		p.column, p.latency = 128<<10, time.Millisecond
	case 4:
		p.moves, p.faults, p.latency, p.dispatchers = 10+more.IntN(20), 0, time.Millisecond, 2+more.IntN(2)
		p.dispatcher.LookAhead, p.dispatcher.BurstLookAhead, p.dispatcher.DrainTimeout = 400*time.Millisecond, time.Millisecond, 20*time.Second // what does not drain in time is sent again, rightly
	}
	if last := rand.New(rand.NewPCG(seed, 5)); seed%8 == 0 && !p.silent && p.moves == 0 {
		p.hush, p.faults, p.redis = pick(last, hushMany, hushPart), 0, false
		p.partitions, p.rate, p.longest = 2, max(p.rate, 5), 60_000  // what is due later finds room, or waits for long
		p.dispatcher.StageTasks, p.dispatcher.StageBytes = 40, 1<<20 // twice as many as there are partitions to ask
	}
	p.dispatcher.UndeliverableAfter = pick(more, -1, 5*time.Second) // drawn last, likewise
	p.ackTimeout = pick[int64](more, 2000, 6000)
	p.disks = p.faults > 0 && rand.New(rand.NewPCG(seed, 7)).IntN(3) == 0
	if p.forgets {
		p.ackTimeout = 10_000 // reports are read behind thousands of cancels, in batches of three: 6 s
	}
	if last := rand.New(rand.NewPCG(seed, 9)); !p.forgets && p.hush == hushNone && !p.hostile { // likewise
		p.timers = pick(last, 0, 0, 1, 4)
	}
	if last := rand.New(rand.NewPCG(seed, 13)); p.has(callSeeds) && !p.forgets && p.hush == hushNone && !p.hostile {
		p.callbacks, p.deaf = pick(last, 0, 0, 10, 60), pick(last, 0, 0, 1, 2)
	}
	if last := rand.New(rand.NewPCG(seed, 17)); p.has(leaderSeeds) && p.faults > 0 {
		p.leaderless = pick(last, 0, 0, 1, 2)
	}
	if last := rand.New(rand.NewPCG(seed, 23)); p.has(zookeeperSeeds) && p.moves == 0 {
		p.zookeeper = last.IntN(2) == 0
	}
	more = rand.New(rand.NewPCG(seed, 83))
	if p.alone = p.has(aloneSeeds) && p.moves == 0 && more.IntN(2) == 0; p.alone {
		p.zookeeper, p.redis = false, false
	}
	if p.has(aimedSeeds) {
		p.aim()
	}
	if p.has(lostSeeds) {
		p.lose()
	}
	switch {
	case seed < setbackSeeds:
	case seed < edgeSeeds, seed >= aloneSeeds && more.IntN(4) == 0, seed >= returnSeeds:
		p.setBack()
	case p.has(edgeSeeds):
		p.edge()
	}
	if p.has(growthSeeds) {
		p.grow()
	}
	if p.has(brinkSeeds) {
		p.stand()
	}
	if p.has(quotaSeeds) {
		p.limit()
	}
	if p.has(sweepSeeds) {
		p.drawSweeps()
	}
	if p.has(replaySeeds) {
		p.drawReplays()
	}
	if p.has(strangerSeeds) {
		p.drawStranger()
	}
	if p.has(attackSeeds) {
		p.drawAttack()
	}
	if p.has(boundSeeds) {
		p.boundAttack()
	}
	if p.has(tenantSeeds) {
		p.drawTenant()
	}
	if p.seed >= regimeSeeds {
		p.drawCut()
		p.drawOlder()
		p.drawBeside()
		p.drawRehearsal()
		p.drawSeveral()
	}
	return p
}

// regimeSeeds is the first seed that draws which features it has. An earlier one has all those that were there when its number was new.
const regimeSeeds = 1 << 52

// has tells whether a run has a feature that began with a seed.
func (p *plan) has(since uint64) bool {
	if p.seed < regimeSeeds {
		return p.seed >= since
	}
	return rand.New(rand.NewPCG(p.seed, since)).IntN(4) > 0
}

// aloneSeeds is likewise the first seed that may do without ZooKeeper and Redis.
const aloneSeeds = 1 << 50

// zookeeperSeeds is likewise the first seed whose election may go through ZooKeeper's client.
const zookeeperSeeds = 1 << 43

// leaderSeeds is likewise the first seed with partitions that have no leader for a while.
const leaderSeeds = 1 << 42

// callSeeds is the first seed with callbacks: what earlier seeds draw stays as it is.
const callSeeds = 1 << 40

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (p plan) String() string {
	return fmt.Sprintf("seed %d: %d scanners (batches of %d, %d workers), %d dispatchers (look-ahead %v/%v, staging %d/%d B), %d slots, %d partitions, window %v, session %v, %d tasks/s for %v, %d faults, hostile %v, redis %v, latency %v, forgets %v, silent %v (%d), hush %d, steps back %v, column %d, %d moves, time-outs of %d ms, disks %v, %d timers, %d callbacks (receivers in trouble %d times), %d times without a leader, zookeeper %v, alone %v, retention %v, missed after %v, aims %+v, loses %v, edges %+v, set back %+v, cut %+v, older %+v, rehearsal %+v, slots %v (stalled %v), brink %d, quota %+v, %d sweeps (%d by a record, %d ahead), %d strange records, %d tasks to replay, %d made-up topics, tenant %+v, %d further databases, moves %+v, forgetful %+v",
		p.seed, p.scanners, p.scanner.BatchRecords, p.scanner.Workers, p.dispatchers, p.dispatcher.LookAhead, p.dispatcher.BurstLookAhead, p.dispatcher.StageTasks,
		p.dispatcher.StageBytes, p.slots, p.partitions, p.scanner.Window, p.session, p.rate, p.load, p.faults, p.hostile, p.redis, p.latency, p.forgets, p.silent, p.small, p.hush, p.stepsBack, p.column, p.moves, p.ackTimeout, p.disks, p.timers, p.callbacks, p.deaf, p.leaderless, p.zookeeper, p.alone, p.dispatcher.Retention, p.dispatcher.MisfireAfter, p.aims, p.loses, p.edges, p.setback, p.logCut, p.older, p.rehearsal, p.growth, p.stall, p.brink, p.quota, p.sweeps, p.cancels.Tasks, p.cancels.Ahead, p.strange, p.replays, p.madeUp, p.tenant, p.several, p.orders, p.forgetful)
}
