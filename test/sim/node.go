package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/store"
)

// node is where a scanner or a dispatcher runs, again and again. Its send log stays.
type node struct {
	w     *world
	name  string
	scans bool
	up    *running
	old   []*running // dropped dead, winding down
	busy  busyLock   // held by whoever is breaking it
	runs  int        // process starts
	disk  *server    // of its send log
	apart *database  // its own: see beside.go and rehearsal.go; nil: its cell's
	cell  *cell

	pausing chan struct{} // closed when its next start is paused, once it has compared the copies; nil: it is not
}

// running is one process start.
type running struct {
	*process
	client string // how Kafka knows it
	ctx    context.Context
	stop   context.CancelFunc
	done   chan error
	gauges atomic.Pointer[prometheus.Registry] // of the latest run
	works  atomic.Bool                         // with a database whose copy is compared
}

func (n *node) start() {
	if n.up != nil {
		return
	}
	n.runs++
	r := &running{process: newProcess(n.name), client: fmt.Sprintf("%s.%d", n.name, n.runs), done: make(chan error, 1)}
	r.apart = n.apart != nil
	r.ctx, r.stop = context.WithCancel(context.Background())
	n.up = r
	n.w.note("%s starts", n.name)
	go func() { r.done <- n.supervise(r) }()
}

// supervise starts the process again when it ends by itself.
func (n *node) supervise(r *running) error {
	for {
		err := n.serve(r)
		if r.ctx.Err() != nil || !r.alive() {
			return err
		}
		n.w.note("%s ended by itself: %v", n.name, err)
		if pause(r.ctx, time.Second) != nil {
			return err
		}
	}
}

func (n *node) serve(r *running) (err error) {
	w, log, db := n.w, n.w.story.logger(n.name), cmp.Or(n.apart, n.cell.db)
	st, err := store.Open(r.ctx, store.Config{Connector: db.of(r.process), MaxConns: 8, Clock: n.cell.db.clock, Life: lifeOf}, log)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	ix, err := n.near(r.process, st, log)
	if err != nil {
		return err
	}
	defer ix.Close()
	kcfg := kafka.Config{ClientID: r.client, MaxBufferedRecords: w.small, Dial: w.through(r.process, w.kafkaSrv, 10*time.Second, w.network.DialContext)}
	g, err := n.guarded(r, kcfg, st, log)
	if err != nil {
		return err
	}
	defer g.close()
	if n.scans && w.rehearsal.yes {
		leave, err := n.signs(r, kcfg, st, log)
		if err != nil {
			return err
		}
		defer leave()
	}
	if n.scans {
		reg := prometheus.NewRegistry()
		r.gauges.Store(reg)
		cfg, end := n.sharing(r, st, log)
		defer end()
		s, err := scanner.New(scanner.Deps{Kafka: kcfg, Store: st, Index: ix, Metrics: reg, Log: log}, cfg)
		if err != nil {
			return err
		}
		return g.run(r.ctx, s.Run)
	}
	return n.dispatch(r, g, kcfg, st, ix, log)
}

func (n *node) dispatch(r *running, g *guard, kcfg kafka.Config, st *store.Store, ix dispatcher.Index, log *zap.Logger) error {
	// The gate also holds a frozen process, whose own time should stand still. And a log whose patience ends is left open: its files
	// end with the process, which here goes on.
	const patience = time.Hour
	sent, err := sendlog.Open(n.sendlog(), sendlog.Config{Now: st.Clock().Now, Disk: n.written(r.process), Patience: patience}, zap.NewNop())
	if err != nil {
		return err
	}
	defer func() { _ = sent.Close() }()
	cfg := n.w.dispatcher
	cfg.MemberID = n.name
	if cfg.Group != "" {
		cfg.Group = n.cell.group()
	}
	reg := prometheus.NewRegistry()
	r.gauges.Store(reg)
	n.w.mu.Lock()
	n.w.registries = append(n.w.registries, reg)
	n.w.mu.Unlock()
	calls, err := n.w.caller(r.process, reg, log)
	if err != nil {
		return err
	}
	defer calls.Close()
	start := uuid.NewString()
	before, err := sent.Occupy(start)
	if err != nil {
		return err
	}
	members, end, err := n.source(r.process, start, before, st, log)
	if err != nil {
		return err
	}
	defer end()
	d, err := dispatcher.New(dispatcher.Deps{Callbacks: calls, Kafka: kcfg, Store: st, Index: ix, Members: members, SendLog: sent, Metrics: reg, Log: log}, cfg)
	if err != nil {
		return err
	}
	return g.run(r.ctx, d.Run)
}

func (n *node) sendlog() string { return filepath.Join(n.w.dir, n.name) }

// stopPatience is how long a graceful stop may take, whatever is broken.
const stopPatience = 45 * time.Second

// stop asks it to end, and waits.
func (n *node) stop() {
	r := n.up
	if r == nil {
		return
	}
	n.up = nil
	n.w.note("%s is asked to stop", n.name)
	r.thaw()
	r.stop()
	timer := time.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case err := <-r.done:
		if err != nil && !errors.Is(err, context.Canceled) {
			n.w.note("%s stopped: %v", n.name, err)
		} else {
			n.w.note("%s stopped", n.name)
		}
	case <-timer.C:
		n.w.find("I12", "%s did not stop within %v", n.name, stopPatience)
		n.drop(r)
	}
}

// kill drops the process dead.
func (n *node) kill() {
	r := n.up
	if r == nil {
		return
	}
	n.up = nil
	n.w.note("%s is dropped dead", n.name)
	n.drop(r)
}

func (n *node) drop(r *running) {
	r.kill()
	r.stop()
	r.thaw()
	n.old = append(n.old, r)
	if n.scans {
		go n.w.expire(r.client)
	}
}

// winddown waits for what is left of dead processes: in reality they are gone at once.
func (w *world) winddown() {
	for _, n := range w.nodes {
		for _, r := range n.old {
			select {
			case <-r.done:
			case <-time.After(10 * time.Minute):
				w.find("leak", "what %s left, dropped dead, does not end", n.name)
			}
		}
	}
}

// freeze pauses the process, thaw lets it go on.
func (n *node) freeze() {
	if n.up != nil {
		n.up.freeze()
	}
}

func (n *node) thaw() {
	if n.up != nil {
		n.up.thaw()
	}
}
