package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/test/chaos/check"
	"github.com/notyet/notyet/test/chaos/history"
)

// fault is one kind of fault.
type fault struct {
	kind     string
	needs    string // the server without which there is no such fault; "": it is one in each form
	single   bool   // only where there is one server of each
	cluster  bool   // only where there is more than one
	doubles  bool   // it may cause second copies
	disorder bool   // it may delay tasks of one key one by one
	rewinds  bool   // it restores the database: only where there is one, for nobody knows whose tasks another one forgets
	several  bool   // only where there are several databases
	named    bool   // only if it is named
	tenants  bool   // it is one tenant's among several, so all programs must know of them
	overlap  bool   // it combines two faults
	hurt     func(b *breaker) error
}

// faults are all kinds. The checker tolerates second copies only for kinds that declare them.
var faults = []fault{
	{kind: "kill-dispatcher", doubles: true, hurt: killDispatcher},
	{kind: "kill-leader", doubles: true, hurt: killLeader},
	{kind: "kill-in-burst", doubles: true, hurt: killInBurst},
	{kind: "kill-scanner", hurt: killScanner},
	{kind: "pause-dispatcher", doubles: true, hurt: pauseDispatcher},
	{kind: "pause-scanner", hurt: pauseScanner},
	{kind: "rolling-restart", hurt: rollingRestart},
	{kind: "burst", hurt: onlyBurst},
	{kind: "all-dispatchers-away", doubles: true, hurt: dispatchersAway},
	{kind: "all-scanners-away", hurt: scannersAway},
	{kind: "group-rebalance", hurt: rebalance},
	{kind: "zookeeper-cut", needs: zookeeperServer, doubles: true, hurt: cutZooKeeper},
	{kind: "zookeeper-killed", single: true, needs: zookeeperServer, doubles: true, hurt: killZooKeeper},
	{kind: "zookeeper-wiped", single: true, needs: zookeeperServer, doubles: true, hurt: wipeZooKeeper},
	{kind: "kafka-answers-dropped", doubles: true, disorder: true, hurt: dropKafka},
	{kind: "kafka-cut", doubles: true, disorder: true, hurt: cutKafka},
	{kind: "broker-killed", doubles: true, disorder: true, hurt: killBroker},
	{kind: "broker-frozen", doubles: true, disorder: true, hurt: haltServer(kafkaServer)},
	{kind: "topic-deleted", hurt: deleteTopic},
	{kind: "message-limit-lowered", hurt: lowerLimit},
	{kind: "redis-flushed", single: true, needs: redisServer, hurt: flushRedis},
	{kind: "redis-killed", single: true, needs: redisServer, hurt: killRedis},
	{kind: "redis-stale", single: true, needs: redisServer, hurt: staleRedis},
	{kind: "redis-full", single: true, needs: redisServer, hurt: fillRedis},
	{kind: "mysql-killed", doubles: true, hurt: killMySQL},
	{kind: "mysql-frozen", doubles: true, hurt: func(b *breaker) error { return haltServer(b.any().server)(b) }},
	{kind: "mysql-read-only", doubles: true, hurt: freezeMySQL},
	{kind: "mysql-slow", doubles: true, hurt: slowMySQL},
	{kind: "mysql-locks", doubles: true, hurt: lockMySQL},
	{kind: "mysql-restored", single: true, doubles: true, rewinds: true, hurt: restoreMySQL},
	{kind: "backup-drill", single: true, doubles: true, rewinds: true, named: true, hurt: drillBackup},
	{kind: "mysql-forgets", single: true, doubles: true, rewinds: true, hurt: forgetMySQL},
	{kind: "controller-killed", cluster: true, doubles: true, disorder: true, hurt: killController},
	{kind: "partitions-reassigned", cluster: true, disorder: true, hurt: reassign},
	{kind: "zookeeper-leader-killed", cluster: true, needs: zookeeperServer, doubles: true, hurt: killEnsembleLeader},
	{kind: "zookeeper-quorum-lost", cluster: true, needs: zookeeperServer, doubles: true, hurt: loseQuorum},
	{kind: "redis-failed-over", cluster: true, needs: redisServer, hurt: failRedisOver},
	{kind: "mysql-promoted", cluster: true, doubles: true, hurt: promoteMySQL},
	{kind: "mysql-promoted-late", cluster: true, doubles: true, rewinds: true, hurt: promoteLate},
	{kind: "slots-set", overlap: true, hurt: setSlots},
	{kind: "targets-moved", several: true, overlap: true, hurt: moveTargets},
	{kind: "second-installation", hurt: joinSecond},
	{kind: "clock-stepped", hurt: stepClock},
	{kind: "suspend-dispatcher", doubles: true, hurt: suspendDispatcher},
	{kind: "one-without-kafka", hurt: loseOne(kafkaServer)},
	{kind: "one-without-mysql", hurt: func(b *breaker) error { return loseOne(b.any().proxied())(b) }},
	{kind: "one-without-redis", needs: redisServer, hurt: loseOne(redisServer)},
	{kind: "one-without-zookeeper", needs: zookeeperServer, hurt: loseOne(zookeeperServer)},
	{kind: "hostile-records", hurt: sendHostile},
	{kind: check.Attack, tenants: true, hurt: tenantAttacks},
	{kind: "all-expire", doubles: true, hurt: expireAll},
	{kind: "all-targets-missing", hurt: missAll},
	{kind: "stop-scanner-while", overlap: true, hurt: stopScannerWhile},
	{kind: "kill-scanner-while", overlap: true, hurt: killScannerWhile},
	{kind: "pause-scanner-while", overlap: true, hurt: pauseScannerWhile},
	{kind: "rebalance-while", overlap: true, hurt: rebalanceWhile},
	{kind: "stop-dispatcher-while", overlap: true, hurt: stopDispatcherWhile},
	{kind: "kill-dispatcher-while", overlap: true, doubles: true, hurt: killDispatcherWhile},
	{kind: "pause-dispatcher-while", overlap: true, doubles: true, hurt: pauseDispatcherWhile},
}

// Kinds returns the names of all faults.
func Kinds() []string {
	var names []string
	for _, f := range faults {
		names = append(names, f.kind)
	}
	return names
}

// faultsNamed returns the faults of these names, or all that there are on these servers.
func faultsNamed(names, servers []string, form Form) ([]fault, error) {
	exists := func(f fault) bool {
		several := slices.Contains(servers, mysqlServer+"-2")
		return (f.needs == "" || slices.Contains(servers, f.needs)) && (!f.single || form == Single) && (!f.cluster || form != Single) && (!f.several || several) && (!f.rewinds || !several)
	}
	var out []fault
	if len(names) == 0 {
		for _, f := range faults {
			if exists(f) && !f.named {
				out = append(out, f)
			}
		}
		return out, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.kind == name })
		if i < 0 {
			return nil, fmt.Errorf("no fault is called %q: there are %s", name, strings.Join(Kinds(), ", "))
		}
		if !exists(faults[i]) {
			return nil, fmt.Errorf("the fault %s does not exist in this form: it is of other servers, or of another number of them", name)
		}
		out = append(out, faults[i])
	}
	return out, nil
}

// breaker is what a fault works with.
type breaker struct {
	*Cluster
	ctx   context.Context
	rng   *rand.Rand
	load  *load
	rec   *history.Recorder
	burst int // tasks of one burst
	n     int // faults so far
	note  *history.Fault

	frozen string // the server that was stopped
}

// member returns a server of a kind. A database is one already.
func (b *breaker) member(kind string) string {
	if isDatabase(kind) {
		return kind
	}
	all := b.Servers.members(kind)
	return all[b.rng.IntN(len(all))]
}

// any returns one of the databases.
func (b *breaker) any() *store {
	d := b.databases[b.rng.IntN(len(b.databases))]
	if b.Servers.form != Single { // whichever takes writes
		d.server = b.Servers.primary()
	}
	return d
}

// evidence notes how the fault's effect was observed, or that it had none.
func (b *breaker) evidence(effect bool, format string, args ...any) {
	b.note.Effect, b.note.Evidence = effect, fmt.Sprintf(format, args...)
}

// began is called when the fault starts; the preparation before it belongs to the calm phase.
func (b *breaker) began(target string) {
	b.note.Start, b.note.Target = time.Now().UnixMilli(), target
}

func (b *breaker) one(role string) *node {
	all := b.of(role)
	return all[b.rng.IntN(len(all))]
}

// randomSpan returns a random span.
func (b *breaker) randomSpan(from, to time.Duration) time.Duration {
	return from + time.Duration(b.rng.Int64N(int64(to-from)+1))
}

// wait waits for a span.
func (b *breaker) wait(d time.Duration) {
	select {
	case <-b.ctx.Done():
	case <-time.After(d):
	}
}

// patience limits waits for an effect that a busy machine shows late. Without the effect, the fault is a finding.
const patience = time.Minute

// waitUntil waits for a condition and reports whether it came true.
func (b *breaker) waitUntil(bound time.Duration, done func() bool) bool {
	for deadline := time.Now().Add(bound); time.Now().Before(deadline) && b.ctx.Err() == nil; {
		if done() {
			return true
		}
		b.wait(50 * time.Millisecond)
	}
	return done()
}

// breakOne causes one fault, repairs it, waits until the cluster works again, and notes it.
func (b *breaker) breakOne(f fault) error {
	b.n++
	b.note = &history.Fault{N: b.n, Kind: f.kind, Start: time.Now().UnixMilli(), Doubles: f.doubles, Disorder: f.disorder, Rewinds: f.rewinds, Overlap: f.overlap}
	err := f.hurt(b)
	b.note.End = time.Now().UnixMilli()
	b.log.Info("broken and healed", zap.Int("n", b.n), zap.String("kind", f.kind), zap.String("target", b.note.Target),
		zap.Int64("ms", b.note.End-b.note.Start), zap.Bool("effect", b.note.Effect), zap.String("evidence", b.note.Evidence), zap.Error(err))
	whole := b.AwaitReady(b.ctx, 3*time.Minute)
	if whole != nil {
		whole = fmt.Errorf("after fault %d (%s): %w", b.n, f.kind, whole)
	}
	b.rec.Fault(*b.note)
	return errors.Join(err, whole)
}

// owned returns the number of slots of a member, and the highest epoch of all slots.
func (b *breaker) owned(member string) (slots int, epoch int64) {
	all, err := b.slots(b.ctx)
	if err != nil {
		return -1, -1
	}
	for _, s := range all {
		epoch = max(epoch, s.Epoch)
		if s.Owner == member {
			slots++
		}
	}
	return slots, epoch
}
