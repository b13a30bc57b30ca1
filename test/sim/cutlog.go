package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/history"
)

// cutLog is a partition of the intake whose broker comes back with an older copy of its folder, once all of the load is stored: the log
// forgets its end, and the numbers of its leaders repeat.
type cutLog struct {
	yes       bool
	partition int32
	stopped   bool // scanners are, meanwhile
	more      int  // requests that come afterwards
}

// drawCut keeps everything else well, so that each record has one place in the intake.
func (p *plan) drawCut() {
	r := rand.New(rand.NewPCG(p.seed, 107))
	if p.seed < returnSeeds && r.IntN(10) > 0 || p.seed >= returnSeeds && p.seed%4 != 3 || p.forgets || p.silent || p.hush != hushNone || p.moves > 0 || p.hostile {
		return
	}
	p.logCut = cutLog{true, r.Int32N(p.partitions), r.IntN(2) == 0, pick(r, 3, 30, 150)}
	p.keepWell()
}

// keepWell leaves the plain load of a seed, and nothing else that is drawn.
func (p *plan) keepWell() {
	p.faults, p.leaderless, p.disks, p.loses, p.redis, p.stepsBack, p.aims, p.setback, p.edges, p.brink, p.reports = 0, 0, false, false, false, 0, aims{}, setback{}, edges{}, brinkNone, false
	p.timers, p.callbacks, p.deaf, p.growth, p.stall, p.sweeps, p.replays, p.strange, p.madeUp, p.tenant, p.quota = 0, 0, 0, nil, false, 0, 0, 0, 0, tenant{}, scanner.Quota{}
	p.scanner.CommitEvery, p.scanner.Quotas, p.scanner.Intake, p.scanner.IntakeLimits = -1, nil, nil, nil
	p.dispatcher.Group, p.dispatcher.Read = "", nil
}

// broker starts Kafka. Its folder is there only where it is to come back with it.
func (w *world) broker() (*kfake.Cluster, error) {
	p := w.plan
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(w.network.Listen),
		kfake.SeedTopics(p.partitions, append(p.targets(), schemas.TopicIntake)...), kfake.SeedTopics(1, schemas.TopicReports, schemas.TopicResults, schemas.TopicCancels, strangerIntake), kfake.SeedTopics(1, append(p.tenant.intakes(), p.tenant.topics()...)...),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"})}
	if p.logCut.yes {
		opts = append(opts, kfake.DataDir(w.brokerFolder()))
	}
	return kfake.NewCluster(opts...)
}

func (w *world) brokerFolder() string { return filepath.Join(w.dir, "kafka") }

// brokerAgain stops the broker, and starts it with what has become of its folder.
func (w *world) brokerAgain(change func() error) {
	w.cluster.Close()
	err := change()
	if err == nil {
		w.cluster, err = w.broker()
	}
	if err != nil {
		w.find("sim", "starting the broker again: %v", err)
	}
}

// stored waits until all requests are, and returns how far the database has the partition.
func (w *world) stored() (next int64) {
	for range 60 {
		if time.Sleep(time.Second); w.lag() == 0 {
			break
		}
	}
	for _, s := range w.sources() {
		if s.Topic == schemas.TopicIntake && s.Partition == w.logCut.partition {
			next = s.Next
		}
	}
	return next
}

// cutTroubles lets the partition forget its end. It halts until an operator restarts it.
func (w *world) cutTroubles() []trouble {
	if !w.logCut.yes {
		return nil
	}
	return []trouble{{kind: "a log that forgets its end", target: w.kafkaSrv.name, at: w.load, copies: true, begin: w.cutOff, end: func() {}}}
}

func (w *world) cutOff() {
	<-w.asked
	folder := filepath.Join(w.brokerFolder(), "partitions", fmt.Sprintf("%s-%d", schemas.TopicIntake, w.logCut.partition))
	aside := filepath.Join(w.dir, "aside")
	end := w.stored()
	w.brokerAgain(func() error { return os.CopyFS(aside, os.DirFS(folder)) })
	w.askSome("gone", 20)
	next := w.stored()
	var scanners []*node
	if w.logCut.stopped {
		scanners = w.nodes[:w.scanners]
	}
	for _, n := range scanners {
		n.stop()
	}
	w.note("%s/%d forgets its end: %d of %d records stay", schemas.TopicIntake, w.logCut.partition, end, next)
	w.brokerAgain(func() error {
		w.seen.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{schemas.TopicIntake: {w.logCut.partition: {Epoch: -1, Offset: end}}})
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
		return os.CopyFS(folder, os.DirFS(aside))
	})
	w.askSome("new", w.logCut.more)
	for _, n := range scanners {
		n.start()
	}
	time.Sleep(20 * time.Second)
	w.restartPartition(end, next)
}

// askSome sends requests for new tasks.
func (w *world) askSome(kind string, n int) {
	r := rand.New(rand.NewPCG(w.seed, uint64(len(kind))))
	now := time.Now().UnixMilli()
	for i := range n {
		w.send(planned{apart: true, op: history.Op{Kind: history.Schedule, Topic: plainTopics[r.IntN(2)], ID: fmt.Sprintf("%s-%d", kind, i), Key: fmt.Sprintf("%s%d", kind, i), Due: now + r.Int64N(30_000), Version: -1}})
	}
	if err := w.client.Flush(context.Background()); err != nil {
		w.find("sim", "Kafka did not take requests: %v", err)
	}
}

// restartPartition does what an operator does. Until then nothing of the partition is stored, and whoever asks is told why.
func (w *world) restartPartition(end, next int64) {
	ctx := context.Background()
	o := &scanner.Operator{Kafka: w.client, Store: w.admin, Topics: []string{schemas.TopicIntake}}
	all, err := o.Partitions(ctx)
	i := slices.IndexFunc(all, func(p scanner.Partition) bool { return p.Partition == w.logCut.partition })
	if err != nil || i < 0 {
		w.find("sim", "looking at the partitions: %v", err)
		return
	}
	switch at := all[i]; {
	case next == end: // it has forgotten nothing
	case at.State != scanner.StateDiverged:
		w.find("log", "%s/%d has forgotten what is stored from %d to %d, and is said to be %s", at.Topic, at.Partition, end, next-1, at.State)
	case at.Next != next:
		w.find("log", "%s/%d has forgotten what is stored from %d to %d, and is stored up to %d", at.Topic, at.Partition, end, next-1, at.Next)
	case at.SameUpTo == nil || *at.SameUpTo != end:
		w.find("log", "%s/%d has what is stored below %d, and is said to go on elsewhere: %+v", at.Topic, at.Partition, end, at)
	default:
		if _, err := o.Restart(ctx, at.Topic, at.Partition, nil); err != nil {
			w.find("log", "%s/%d cannot be restarted: %v", at.Topic, at.Partition, err)
		}
	}
}

// known tells whether a record was read before the log forgot its end.
func (o *observer) known(r *kgo.Record) bool {
	return o.w.logCut.yes && r.Topic == schemas.TopicIntake && slices.ContainsFunc(o.seen, func(a arrival) bool {
		return a.r.Topic == r.Topic && a.r.Partition == r.Partition && a.r.Offset == r.Offset && string(a.r.Value) == string(r.Value)
	})
}
