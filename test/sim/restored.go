package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/test/chaos/history"
)

// returnSeeds is the first seed from which on each has something that comes back as it was before. Of those from regimeSeeds on, some have.
const returnSeeds = 1 << 53

// restored is how an older state of the database is put in while nobody works, with services that start on it without `reconcile`.
type restored struct {
	yes    bool
	killed bool          // dispatchers are, instead of stopped; a scanner may be committing: see edge
	late   time.Duration // how much later than dispatchers scanners start; below 0: dispatchers start later
	beside staying
}

func (p *plan) restore() {
	r := rand.New(rand.NewPCG(p.seed, 101))
	if p.seed < returnSeeds && r.IntN(2) == 0 {
		return
	}
	p.setback.from, p.setback.lost = time.Second+time.Duration(r.Int64N(int64(3*time.Second))), pick(r, 2*time.Second, 4*time.Second, 8*time.Second)
	p.setback.held, p.setback.restored = false, restored{yes: true, killed: r.IntN(2) == 0, late: pick(r, -6*time.Second, -time.Second, 0, 4*time.Second, 12*time.Second)}
}

// remembered is what Kafka knew of the database when that was lost.
type remembered struct {
	committed kadm.OffsetResponses
	known     []intake.Source // that the database has in its older state
	doubts    map[name]int64  // tasks that were claimed in that state: they may have been sent, and are sent again unless they were cancelled
	gone      int64           // ms
	back      int64           // likewise, of a copy beside the original
	woke      int64           // likewise, who was paused while that was named
	inHand    int             // what that has sent since
}

// knew tells whether dispatchers can see that the database lacks a request: its partition is one that the database knows, and has been
// committed beyond it. So a request of the last second before the loss may be unknown.
func (m *remembered) knew(o *history.Op) bool {
	c, ok := m.committed.Lookup(schemas.TopicIntake, o.Partition)
	return ok && o.Offset < c.At && slices.ContainsFunc(m.known, func(s intake.Source) bool {
		return s.Topic == schemas.TopicIntake && s.Partition == o.Partition
	})
}

// behind tells whether the database has less of a partition than Kafka remembers.
func (m *remembered) behind() bool {
	return slices.ContainsFunc(m.known, func(s intake.Source) bool {
		c, ok := m.committed.Lookup(s.Topic, s.Partition)
		return ok && c.At > s.Next
	})
}

func (w *world) sources() []intake.Source {
	all, err := intake.New(w.admin).Sources(context.Background())
	if err != nil {
		w.find("sim", "reading the sources: %v", err)
	}
	return intake.InUse(all)
}

// restoredTasks are stored when the backup is made, due when services start on it, and most of them cancelled or replaced in between.
func (w *world) restoredTasks(now int64) (out []planned) {
	if !w.setback.restored.yes {
		return nil
	}
	r := rand.New(rand.NewPCG(w.seed, 103))
	from, lost := w.setback.from.Milliseconds(), w.setback.lost.Milliseconds()
	for i := range 60 {
		o := history.Op{Kind: history.Schedule, Topic: plainTopics[r.IntN(2)], ID: fmt.Sprintf("restored-%d", i), Key: fmt.Sprintf("restored%d", i), Due: now + from + lost + r.Int64N(10_000), Version: -1, AllEvents: true}
		out = append(out, planned{at: now + r.Int64N(from*3/4), op: o, apart: true})
		change := o
		switch i % 4 {
		case 0, 1:
			change = history.Op{Kind: history.Cancel, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: -1}
		case 2:
			change.Due += 10_000
		default:
			continue
		}
		out = append(out, planned{at: now + from + r.Int64N(lost), op: change, apart: true})
	}
	return out
}

// restoreTrouble stops everybody, puts the older state in, and starts them.
func (w *world) restoreTrouble() trouble {
	path, how := filepath.Join(w.dir, "backup.db"), w.setback.restored
	t := trouble{kind: "restore without reconcile", target: w.db.name, at: w.setback.from, lasts: w.setback.lost, copies: true, forgets: &history.Setback{}}
	t.begin = func() { w.copyAside(path, t.forgets) }
	t.end = func() {
		var all sync.WaitGroup
		for _, n := range w.nodes {
			all.Go(func() {
				switch n.busy.Lock(); {
				case n == w.stays && how.beside == besideRuns:
				case n == w.stays && how.beside == besideWakes:
					n.freeze()
				case how.killed && !n.scans:
					n.kill()
				default:
					n.stop()
				}
			})
		}
		all.Wait()
		if w.stays != nil {
			w.goOnWithCopy(path, t.forgets)
			defer w.startBeside()
		} else {
			w.putBack(path, t.forgets)
		}
		start := func(nodes []*node) {
			for _, n := range nodes {
				if n != w.stays {
					n.start()
					n.busy.Unlock()
				}
			}
		}
		if how.late < 0 {
			start(w.nodes[:w.scanners])
			time.Sleep(-how.late)
			start(w.nodes[w.scanners:])
			return
		}
		start(w.nodes[w.scanners:])
		time.Sleep(how.late)
		if !how.killed && how.late >= 4*time.Second && w.kept.behind() && !w.saysBehind() {
			w.find("copies", "the database is behind what Kafka has committed, and no dispatcher says so after %v", how.late)
		}
		start(w.nodes[:w.scanners])
	}
	return t
}

// saysBehind tells whether a dispatcher has found that the database is behind.
func (w *world) saysBehind() bool {
	return slices.ContainsFunc(w.nodes[w.scanners:], func(n *node) bool { return n.gauge("notyet_dispatcher_behind_partitions") > 0 })
}

// judgeRemembered: what was answered as cancelled or replaced before the database was lost is never delivered later, if Kafka knows that the
// database lacks that request. It returns how many answers it has held against what came later.
func (w *world) judgeRemembered(h *history.History) (judged int) {
	if w.setback.lost == 0 || !w.edges.commits {
		return 0
	}
	at, before := map[string]*history.Op{}, map[name][]*history.Op{}
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Accepted > 0 && o.ID != "" {
			at[fmt.Sprintf("%s/%d/%d", schemas.TopicIntake, o.Partition, o.Offset)] = o
			before[name{o.Topic, o.ID}] = append(before[name{o.Topic, o.ID}], o)
		}
	}
	delivered := map[int64][]history.Delivery{} // in order of time
	for _, d := range h.Deliveries {
		if d.Merged == nil {
			delivered[d.Op] = append(delivered[d.Op], d)
		}
	}
	for _, e := range h.Events {
		o := at[e.Request]
		replaces := o != nil && e.State == "scheduled" && o.Kind == history.Schedule && o.IfExists == "" && o.AckTimeout == 0
		if o == nil || !(replaces || e.State == "cancelled" && o.Kind == history.Cancel) || e.At > w.kept.gone || !w.kept.knew(o) || replaces && w.kept.doubts[name{o.Topic, o.ID}] > 0 {
			continue
		}
		for _, old := range before[name{o.Topic, o.ID}] {
			if old.Kind != history.Schedule || old.Offset >= o.Offset || old.Partition != o.Partition || replaces && old.AckTimeout > 0 {
				continue
			}
			judged++
			for i, d := range delivered[old.N] { // what was delivered before that answer is delivered once more
				copied := slices.ContainsFunc(delivered[old.N][:i], func(c history.Delivery) bool { return c.Key == d.Key && c.Attempt == d.Attempt && c.At <= e.At })
				if d.At > e.At && !copied {
					w.find("copies", "%s/%s: request %d was answered %s at %d, before the database was lost, and request %d, accepted at %d and due at %d, was delivered at %d", o.Topic, o.ID, o.N, e.State, e.At, old.N, old.Accepted, old.DueAt(), d.At)
				}
			}
		}
	}
	return judged
}

// gauge is what a gauge of a running process says, without labels; 0 if it is not there yet.
func (n *node) gauge(name string) float64 {
	if n.up == nil || n.up.gauges.Load() == nil {
		return 0
	}
	families, err := n.up.gauges.Load().Gather()
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
	if err != nil || i < 0 {
		return 0
	}
	return families[i].GetMetric()[0].GetGauge().GetValue()
}
