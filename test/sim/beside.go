package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/copies"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/test/chaos/history"
)

// beside is who stays with the original when all others go on with an older copy of the database, which a command has named.
type staying int

const (
	besideNobody staying = iota
	besideRuns           // a dispatcher runs on
	besideStarts         // a dispatcher starts there again, once the others work
	besideScans          // likewise a scanner
	besideWakes          // a dispatcher is paused before the copy is named, and wakes once the others work
	besideComes          // likewise, as it starts, when it has just compared the copies
)

// paused tells whether who stays is paused while the copy is named. A scanner is not: its client commits under a lock while others join the
// group, and virtual time does not wait for locks.
func (s staying) paused() bool { return s >= besideWakes }

// drawBeside keeps everything else well, and gives each copy an election of its own.
func (p *plan) drawBeside() {
	r := rand.New(rand.NewPCG(p.seed, 113))
	if !p.setback.restored.yes || p.hush != hushNone || p.seed < returnSeeds && r.IntN(4) > 0 || p.seed >= returnSeeds && p.seed%4 != 0 {
		return
	}
	s := p.setback
	s.restored.beside = pick(r, besideRuns, besideStarts, besideScans, besideWakes, besideComes)
	p.keepWell()
	p.commit()
	p.setback, p.alone, p.zookeeper = s, true, false
	p.scanners, p.dispatchers = max(p.scanners, 2), max(p.dispatchers, 2)
}

// namedFor is how long `reconcile` waits, after it has named a copy, for processes of others to end.
const namedFor = 10 * time.Second

// leaveBehind has a node stay with the original.
func (w *world) leaveBehind() {
	switch w.setback.restored.beside {
	case besideNobody:
		return
	case besideScans:
		w.stays = w.nodes[0]
	default:
		w.stays = w.nodes[w.scanners]
	}
	w.stays.apart = w.db.beside()
}

// beside is the same database for a node that stays with it.
func (d *database) beside() *database {
	return &database{server: d.server, driver: d.driver, dsn: d.dsn, write: d.write, silent: d.silent, latency: d.latency, column: d.column, memo: d.memo, life: new(atomic.Int64), truth: d.truth}
}

// leadTo leads all other connections to a copy, where another life begins. Nobody watches the original any more.
func (d *database) leadTo(path string, original *database) error {
	write := d.write
	write <- struct{}{}
	defer func() { <-write }()
	_, settings, _ := strings.Cut(d.dsn, "?")
	d.dsn, d.write, d.memo = path+"?"+settings, make(chan struct{}, 1), &memo{}
	d.life.Add(1)
	original.truth = nil
	c, err := d.driver.Open(d.dsn)
	if err != nil {
		return err
	}
	d.truth.committed(d.truth.read(c.(realConn)))
	return c.Close()
}

// goOnWithCopy gives all others the copy, and names it as `reconcile` does. Whoever runs on with the original ends.
func (w *world) goOnWithCopy(path string, b *history.Setback) {
	ctx := context.Background()
	if w.setback.restored.beside == besideComes {
		w.stays.pausing = make(chan struct{})
		w.stays.start()
		<-w.stays.pausing
	}
	w.kept.committed = w.committed(ctx)
	b.Gone = time.Now().UnixMilli()
	w.kept.gone = b.Gone
	if err := w.db.leadTo(path, w.stays.apart); err != nil {
		w.find("sim", "leading to a copy of the database: %v", err)
	}
	named := kafka.Claim{Installation: w.scanner.Installation, Copy: kafka.NewCopy("sim")}
	err := kafka.TakeGroup(ctx, w.client, scannerGroup, named, w.dispatcher.Read...)
	if err == nil {
		err = admin.New(w.admin).NameCopy(ctx, "", named.Copy.String())
	}
	if err != nil {
		w.find("sim", "naming a copy of the database: %v", err)
	}
	time.Sleep(namedFor)
	b.Back = time.Now().UnixMilli()
	w.kept.back = b.Back
	if n := w.stays; n.up != nil && n.up.alive() && !w.setback.restored.beside.paused() {
		w.find("copies", "%s works on with the original %v after a copy of the database got a newer name", n.name, namedFor)
		n.kill()
	}
}

// startBeside starts a process on the original. It does nothing there, and then an operator corrects its settings.
func (w *world) startBeside() {
	n := w.stays
	defer n.busy.Unlock()
	switch how := w.setback.restored.beside; {
	case how.paused():
		w.kept.woke = time.Now().UnixMilli()
		n.thaw()
		time.Sleep(5 * time.Second)
		if n.up.alive() {
			if n.up.works.Load() {
				w.find("copies", "%s works with the original 5 s after it woke, and another copy of the database has a newer name", n.name)
			}
			n.stop()
		} else {
			n.old, n.up = append(n.old, n.up), nil
		}
	case how != besideRuns:
		time.Sleep(time.Second)
		n.start()
		time.Sleep(5 * time.Second)
		if n.up.works.Load() {
			w.find("copies", "%s has started on the original, and another copy of the database has a newer name", n.name)
		}
		n.stop()
	case n.up != nil:
		n.old, n.up = append(n.old, n.up), nil // it ended itself
	}
	n.apart = nil
}

// guard ends a process once the copy of its database is found to be an older one, as a service does.
type guard struct {
	n     *node
	r     *running
	named copies.Named
}

// guarded compares the copies at the start of a process. A nil guard does nothing.
func (n *node) guarded(r *running, kcfg kafka.Config, st *store.Store, log *zap.Logger) (*guard, error) {
	if n.w.stays == nil && !n.w.rehearsal.yes {
		return nil, nil
	}
	adm := admin.New(st)
	began, err := adm.Copy(r.ctx)
	if err != nil {
		return nil, err
	}
	client, err := kafka.New(kcfg, log)
	if err != nil {
		return nil, err
	}
	g := &guard{n, r, copies.Named{Client: client, Group: scannerGroup, Topics: n.w.dispatcher.Read, Installation: n.w.scanner.Installation, Began: began, Now: adm.Copy, Log: log}}
	if err := g.named.Compare(r.ctx); errors.Is(err, kafka.ErrOlderCopy) {
		g.close()
		return nil, err
	}
	if n.pausing != nil {
		r.freeze()
		close(n.pausing)
		n.pausing = nil
	}
	return g, nil
}

func (g *guard) close() {
	if g != nil {
		g.named.Client.Close()
	}
}

// run runs a stage.
func (g *guard) run(ctx context.Context, stage func(context.Context) error) error {
	if g == nil {
		return stage(ctx)
	}
	g.r.works.Store(true)
	defer g.r.works.Store(false)
	watching, end := context.WithCancel(ctx)
	var looks sync.WaitGroup
	looks.Go(func() {
		if err := g.named.Run(watching); errors.Is(err, kafka.ErrOlderCopy) {
			g.n.w.note("%s ends at once: %v", g.n.name, err)
			g.r.kill()
			g.r.stop()
		}
	})
	defer looks.Wait()
	defer end()
	return stage(ctx)
}

// What a dispatcher that was paused may still send when it wakes (docs/known-gaps.md), until it has compared the copies.
const (
	wakesWith = 256
	wakesFor  = 3 * time.Second
)

// judgeApart: a process with the original sends nothing once the others work on the copy, but for what it has in hand as it wakes.
func (w *world) judgeApart(s sending) {
	from, back, woke := s.from.UnixMilli(), w.kept.back, w.kept.woke
	if woke > 0 && from >= woke && from <= woke+wakesFor.Milliseconds() {
		if w.kept.inHand++; w.kept.inHand <= wakesWith {
			return
		}
	}
	if from > back {
		w.find("copies", "%s sent attempt %d of %s/%s at %d with the original, and others work on a newer copy since %d", s.by.name, s.d.Attempt, s.r.Topic, s.d.ID, s.from.UnixMilli(), back)
	}
}
