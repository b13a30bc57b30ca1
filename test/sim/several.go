package sim

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/shards"
	"github.com/notyet/notyet/test/chaos/history"
	"github.com/notyet/notyet/test/memindex"
)

// cell is a database of the installation, with an election and an index of its own.
type cell struct {
	w          *world
	n          int
	db         *database
	admin      *store.Store
	looks      *sql.DB
	memory     *memindex.Index
	electorate *electorate
}

func (c *cell) suffix() string {
	if c.n == 0 {
		return ""
	}
	return fmt.Sprint("@", c.n)
}

func (c *cell) group() string { return scannerGroup + c.suffix() }

func (c *cell) index(p *process) hints { return hints{m: c.memory, s: c.w.indexSrv, p: p} }

// moveOrder is an operator's command. Who carries it out may be dropped dead on the way.
type moveOrder struct {
	at            time.Duration
	pattern       string
	former, shard int
	dies          time.Duration // after the beginning; 0: not
}

// severalSeeds is the first seed that has several databases wherever it can.
const severalSeeds = 1 << 54

// forgetfulSeeds is the first seed in which one of several databases forgets its last commits.
const forgetfulSeeds = severalSeeds + 1<<32

// forgetful is a database of several that forgets its last commits, with whatever moved meanwhile.
type forgetful struct {
	cell       int
	from, lost time.Duration // not at all where nothing is lost
}

// forgetfulTroubles is that fault.
func (w *world) forgetfulTroubles() []trouble {
	f := w.forgetful
	if f.lost == 0 {
		return nil
	}
	db, path := w.cells[f.cell].db, filepath.Join(w.dir, "forgotten.db")
	t := trouble{kind: "forgetting the last commits", target: db.name, at: f.from, lasts: f.lost, copies: true, forgets: &history.Setback{}}
	t.begin = func() {
		t.forgets.From = time.Now().UnixMilli()
		if err := db.copyTo(path); err != nil {
			w.find("sim", "copying a database: %v", err)
		}
	}
	t.end = func() {
		// A task that was elsewhere since, or came from elsewhere, forgets less: the judge may take any instant until then.
		t.forgets.Gone = time.Now().UnixMilli()
		t.forgets.Kept = t.forgets.Gone
		if err := db.restore(path); err != nil {
			w.find("sim", "setting a database back: %v", err)
		}
		t.forgets.Back = time.Now().UnixMilli()
	}
	return []trouble{t}
}

// drawSeveral draws further databases, in earlier seeds a few times. What its judges know of one database alone is left out.
func (p *plan) drawSeveral() {
	r := rand.New(rand.NewPCG(p.seed, 127))
	if p.hush != hushNone || p.silent || p.forgets || p.column < maxBlob || p.moves > 0 {
		return
	}
	if p.seed < severalSeeds && (r.IntN(4) > 0 || p.logCut.yes || p.older.yes || p.rehearsal.yes) {
		return
	}
	p.logCut, p.older, p.rehearsal = cutLog{}, older{}, rehearsal{}
	faults, timers := p.faults, p.timers
	p.keepWell()
	p.faults, p.timers, p.alone, p.zookeeper = faults, timers, false, false
	p.several, p.scanners, p.dispatchers = 1+r.IntN(2), min(p.scanners, 2), min(p.dispatchers, 2)
	if r.IntN(2) == 0 {
		p.timers = max(p.timers, 1+r.IntN(3))
	}
	at := 0 // where most targets are
	for range 1 + r.IntN(6) {
		o := moveOrder{at: time.Duration(r.Int64N(int64(p.load))), pattern: pick(r, "*", "*", "plain-*", ackTopic, floodTopic, tickTopic, plainTopics[0]), former: at, shard: r.IntN(p.several + 1)}
		if r.IntN(3) == 0 {
			o.former = r.IntN(p.several + 1)
		}
		if o.former == o.shard {
			o.shard = (o.shard + 1) % (p.several + 1)
		}
		if o.former == at && o.pattern == "*" {
			at = o.shard
		}
		if r.IntN(3) == 0 {
			o.dies = time.Duration(1 + r.Int64N(int64(2*time.Second)))
		}
		p.orders = append(p.orders, o)
	}
	times := make([]time.Duration, len(p.orders)) // in the order in which they are drawn
	for i, o := range p.orders {
		times[i] = o.at
	}
	slices.Sort(times)
	for i := range p.orders {
		p.orders[i].at = times[i]
	}
	if p.seed >= forgetfulSeeds {
		p.commit()
		p.timers, p.faults = 0, 0 // see edge
		f := &p.forgetful
		*f = forgetful{cell: r.IntN(p.several + 1), from: time.Duration(r.Int64N(int64(p.load))), lost: pick(r, 20*time.Millisecond, 200*time.Millisecond, time.Second, 3*time.Second)}
		if o := p.orders[r.IntN(len(p.orders))]; r.IntN(3) > 0 { // with a move out of it, or to it
			f.cell, f.from = pick(r, o.former, o.former, o.shard), max(0, o.at-time.Duration(r.Int64N(int64(f.lost))))
		}
	}
}

// furtherCells makes the other databases, and has all join the installation.
func (w *world) furtherCells() error {
	ctx, nobody := context.Background(), newProcess("nobody")
	for n := 1; n <= w.several; n++ {
		data, err := template(w.slots, n)
		if err != nil {
			return err
		}
		path := filepath.Join(w.dir, fmt.Sprintf("n%d.db", n))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
		db, err := newDatabase(path, w.seed+1000*uint64(n))
		if err != nil {
			return err
		}
		db.name, db.latency, db.column = fmt.Sprint("database ", n), w.latency, w.column
		c := &cell{w: w, n: n, db: db, memory: memindex.New(), looks: sql.OpenDB(unharmed{db, nobody})}
		if c.admin, err = store.Open(ctx, store.Config{Connector: unharmed{db, nobody}, Clock: db.clock, Life: lifeOf}, zap.NewNop()); err != nil {
			return err
		}
		c.electorate = newElectorate(w.electionSrv, w.session, db.countSlots(c.admin), db.nextEpoch(c.admin))
		w.cells = append(w.cells, c)
	}
	if w.several == 0 {
		return nil
	}
	home, err := w.admin.Installation(ctx)
	if err != nil {
		return err
	}
	w.scanner.Installation = home
	for _, c := range w.cells {
		stand, err := shards.New(w.admin).Stand(ctx)
		if err == nil {
			err = shards.New(c.admin).Join(ctx, c.n, home, stand)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// countSlots is the leader's other question.
func (d *database) countSlots(st *store.Store) func() (int, error) {
	return func() (int, error) {
		if c := d.state(nil); c.frozen || c.mute || c.refuse {
			return 0, errRefused
		}
		return st.SlotCount(context.Background())
	}
}

// nextEpoch is the leader's question: it needs a database that answers.
func (d *database) nextEpoch(st *store.Store) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		if c := d.state(nil); c.frozen || c.mute || c.refuse {
			return 0, errRefused
		}
		return intake.New(st).Line().NextEpoch(ctx)
	}
}

// reach is the way of a process to the databases of the installation, each as soon as it answers.
type reach struct {
	mu   sync.Mutex
	open shards.Databases
	work sync.WaitGroup
	stop context.CancelFunc
	all  int
}

// reach opens the databases. st is that which the process has already; nil: it has none.
func (w *world) reach(ctx context.Context, p *process, own *cell, st *store.Store, log *zap.Logger) *reach {
	ctx, stop := context.WithCancel(ctx)
	re := &reach{open: shards.Databases{}, stop: stop, all: len(w.cells)}
	for _, c := range w.cells {
		if c == own {
			re.add(c, p, st, log)
			continue
		}
		re.work.Go(func() {
			for ctx.Err() == nil {
				st, err := store.Open(ctx, store.Config{Connector: c.db.of(p), MaxConns: 4, Clock: c.db.clock, Life: lifeOf}, log)
				if err != nil {
					_ = pause(ctx, time.Second)
					continue
				}
				re.add(c, p, st, log)
				<-ctx.Done()
				_ = st.Close()
			}
		})
	}
	return re
}

func (re *reach) add(c *cell, p *process, st *store.Store, log *zap.Logger) {
	re.mu.Lock()
	defer re.mu.Unlock()
	re.open[c.n] = shards.New(st).Hinting(deadletter.NewLocal(st, c.index(p), "", log).Hint)
}

// databases are those that are open.
func (re *reach) databases() shards.Databases {
	re.mu.Lock()
	defer re.mu.Unlock()
	out := shards.Databases{}
	for n, s := range re.open {
		out[n] = s
	}
	return out
}

// await waits for all of them.
func (re *reach) await(ctx context.Context) {
	for len(re.databases()) < re.all && pause(ctx, 50*time.Millisecond) == nil {
	}
}

func (re *reach) close() {
	re.stop()
	re.work.Wait()
}

// sharing is the configuration of a scanner. Where there are several databases, its process brings their rules together, and has tasks
// follow their targets, as a service does.
func (n *node) sharing(r *running, st *store.Store, log *zap.Logger) (cfg scanner.Config, end func()) {
	cfg = n.w.scanner
	if n.w.several == 0 {
		return cfg, func() {}
	}
	re := n.w.reach(r.ctx, r.process, n.cell, st, log)
	cfg.Group, cfg.Shards, cfg.Shard, cfg.Databases = n.cell.group(), true, n.cell.n, re.databases
	tend := func(ctx context.Context) {
		bound, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if latest, answer := re.databases().Latest(bound); latest != nil {
			if err := answer.Tend(bound); err != nil {
				n.w.note("%s cannot bring the rules together: %v", n.name, err)
			}
		}
	}
	first, cancel := context.WithTimeout(r.ctx, 5*time.Second)
	re.await(first)
	cancel()
	tend(r.ctx)
	ctx, stop := context.WithCancel(r.ctx)
	re.work.Go(func() { loop.Every(ctx, time.Second, tend) })
	re.work.Go(func() {
		loop.Every(ctx, time.Second, func(ctx context.Context) {
			bound, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			if err := re.databases().TakeUp(bound); err != nil {
				n.w.note("%s cannot have tasks follow: %v", n.name, err)
			}
		})
	})
	return cfg, func() { stop(); re.close() }
}

// moveTargets carries out the operator's commands, one after the other.
func (w *world) moveTargets(begin time.Time) {
	if w.several == 0 {
		return
	}
	w.moving.Go(func() {
		for i, o := range w.orders {
			time.Sleep(time.Until(begin.Add(o.at)))
			p := newProcess("mover")
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			re := w.reach(ctx, p, nil, nil, zap.NewNop())
			opening, opened := context.WithTimeout(ctx, 5*time.Second)
			re.await(opening)
			opened()
			w.note("move %d: %s from %d to %d", i+1, o.pattern, o.former, o.shard)
			if o.dies > 0 {
				time.AfterFunc(o.dies, func() {
					w.note("the mover of move %d is dropped dead", i+1)
					p.kill()
					cancel()
				})
			}
			f := history.Fault{N: 1000 + i, Kind: "moving targets", Target: o.pattern, Start: time.Now().UnixMilli(), Effect: true}
			rule, err := re.databases().Move(ctx, shardmap.Rule{Pattern: o.pattern, Former: o.former, Shard: o.shard})
			w.note("move %d: followed %v, %v", i+1, rule.Followed, err)
			if f.End = time.Now().UnixMilli(); !p.alive() { // until others notice it
				f.End += moverNoticed.Milliseconds()
			}
			w.rec.Fault(f)
			cancel()
			re.close()
		}
	})
}

// all are the databases as nobody's process has them.
func (w *world) databases() shards.Databases {
	out := shards.Databases{}
	for _, c := range w.cells {
		out[c.n] = shards.New(c.admin)
	}
	return out
}

// moverNoticed is how long a mover that has died may hold up its targets.
const moverNoticed = 5 * time.Second

// movePatience is how long tasks may take to follow once all is well.
const movePatience = 90 * time.Second

// targetsMoved waits until no move is under way, and looks that all databases have the same rules.
func (w *world) targetsMoved() {
	if w.several == 0 {
		return
	}
	w.moving.Wait()
	ctx := context.Background()
	for began := time.Now(); ; time.Sleep(time.Second) {
		maps, err := w.databases().Maps(ctx)
		under := err
		for n, m := range maps {
			if r := cmp.Or(m.Announced(), m.Following()); r != nil {
				under = fmt.Errorf("database %d has %s on the way from %d to %d", n, r.Pattern, r.Former, r.Shard)
			}
			if len(m.Rules) != len(maps[0].Rules) {
				under = fmt.Errorf("database %d has %d rules, and the first one has %d", n, len(m.Rules), len(maps[0].Rules))
			}
		}
		if under == nil {
			return
		}
		if time.Since(began) > movePatience {
			w.find("moves", "%v after all was well: %v", movePatience, under)
			return
		}
	}
}

// broughtHome moves all targets to the first database, which has to succeed now, and looks that nothing is left behind.
func (w *world) broughtHome() {
	ctx := context.Background()
	for _, c := range w.cells[1:] {
		for began := time.Now(); ; time.Sleep(time.Second) {
			rule, err := w.databases().Move(ctx, shardmap.Rule{Pattern: "*", Former: c.n, Shard: 0})
			if err == nil && !rule.Followed {
				err = w.databases().Follow(ctx)
			}
			if err == nil {
				break
			}
			if time.Since(began) > movePatience {
				w.find("moves", "the targets of database %d cannot move %v after all was well: %v", c.n, movePatience, err)
				return
			}
		}
	}
	w.targetsMoved()
	for _, c := range w.cells[1:] {
		var tasks, timers, waiting int
		err := c.looks.QueryRow("SELECT (SELECT COUNT(*) FROM tasks t LEFT JOIN slots s ON s.slot = t.slot WHERE s.slot IS NULL OR t.pos > s.done), (SELECT COUNT(*) FROM timers), (SELECT COUNT(*) FROM waiting)").Scan(&tasks, &timers, &waiting)
		if err != nil {
			w.find("sim", "looking at what is left in database %d: %v", c.n, err)
		}
		if tasks+timers+waiting > 0 {
			w.find("moves", "%d tasks, %d timers and %d waiting changes are left in database %d, which no target lives in", tasks, timers, waiting, c.n)
		}
	}
}

// get looks for a task where its target lives, and where it lived.
func (w *world) get(ctx context.Context, topic, id string) (look.View, error) {
	if w.several == 0 {
		return look.New(w.admin).Get(ctx, topic, id)
	}
	before, err := shards.New(w.admin).Map(ctx)
	if err != nil {
		return look.View{}, err
	}
	at := before.Home(topic)
	v, err := look.New(w.cells[at].admin).Get(ctx, topic, id)
	if !errors.Is(err, look.ErrNotFound) && before.Following() == nil {
		return v, err
	}
	return look.View{}, errors.New("a move may be under way")
}

// countAll counts rows in all databases.
func (w *world) countAll(query string, args ...any) (n int64) {
	for _, c := range w.cells {
		var some int64
		if err := c.looks.QueryRow(query, args...).Scan(&some); err != nil {
			w.find("sim", "counting what is left: %v", err)
		}
		n += some
	}
	return n
}

// lagOfAll is how many records databases have not stored.
func (w *world) lagOfAll() (n int64) {
	for _, c := range w.cells {
		n += w.ends(schemas.TopicIntake, schemas.TopicReports, schemas.TopicCancels)
		all, err := intake.New(c.admin).Sources(context.Background())
		if err != nil {
			w.find("sim", "reading the sources: %v", err)
		}
		for _, s := range intake.InUse(all) {
			n -= s.Next
		}
	}
	return n
}

// allAtRest is atRest of several databases.
func (w *world) allAtRest(ctx context.Context, r history.Rest) (history.Rest, error) {
	for _, c := range w.cells {
		slots, err := c.admin.Slots(ctx)
		if err != nil {
			return r, err
		}
		rows, err := c.rows(ctx, "SELECT t.slot, t.pos, t.seq, t.topic, t.id FROM tasks t JOIN slots s ON s.slot = t.slot WHERE t.pos > s.done")
		if err != nil {
			return r, err
		}
		r.Pending = append(r.Pending, rows...)
		for _, s := range slots {
			entries, err := c.memory.Range(ctx, s.Slot, -1<<52, 1<<52)
			if err != nil {
				return r, err
			}
			for _, e := range entries {
				r.Index = append(r.Index, history.Entry(e))
			}
		}
	}
	return r, nil
}
