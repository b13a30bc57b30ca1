package sim

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/copies"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/test/chaos/history"
)

// rehearsal is a copy of the database that nobody has named. A second installation starts on it, beside the original and with the same
// Kafka. Its scanner is refused. Its dispatcher delivers once more, until the original's scanners have stored something that the copy lacks.
type rehearsal struct {
	yes   bool
	at    time.Duration // when the copy is made
	age   time.Duration // how old it is when its dispatcher starts
	quiet time.Duration // for how long nothing is stored then
}

const (
	// signEvery is the time between two signs of life of a scanner. A copy has those of the original's scanners, for signsFor.
	signEvery = admin.ServiceLease * time.Millisecond / 3
	signsFor  = admin.ServiceLease*time.Millisecond + time.Second
	// rehearses is how long both are there, once the second scanner has started: it is refused after half a minute.
	rehearses = 40 * time.Second
	// noticed is how soon a dispatcher knows that its database is behind (docs/recovery.md).
	noticed = 3 * time.Second
)

// drawRehearsal keeps everything else well. Each copy has an election of its own.
func (p *plan) drawRehearsal() {
	r := rand.New(rand.NewPCG(p.seed, 127))
	if p.seed < returnSeeds && r.IntN(10) > 0 || p.seed >= returnSeeds && p.seed%8 != 1 || p.logCut.yes || p.older.yes || p.setback.restored.beside != besideNobody {
		return
	}
	if p.forgets || p.silent || p.hush != hushNone || p.moves > 0 || p.hostile {
		return
	}
	p.keepWell()
	p.commit()
	p.alone, p.zookeeper = true, false
	p.rehearsal = rehearsal{yes: true, at: 2*time.Second + time.Duration(r.Int64N(int64(p.load))), age: pick(r, 0, time.Second, 4*time.Second, 20*time.Second)}
	if r.IntN(2) == 0 { // once all other requests and reports are stored
		p.longest, p.rehearsal.at, p.rehearsal.quiet = 2000, p.load+25*time.Second, 15*time.Second
	}
}

// rehearsed is what a second installation has.
type rehearsed struct {
	nodes   []*node
	tasks   map[name]bool // that stand in the copy
	kept    remembered
	started time.Time // its dispatcher
	lacks   time.Time // when the original's scanners had committed something that the copy lacks
	over    context.CancelFunc
	watch   sync.WaitGroup
}

// rehearsalTasks are stored when the copy is made, due when both are there, and some of them cancelled or replaced in the original.
func (w *world) rehearsalTasks(now int64) (out []planned) {
	if !w.rehearsal.yes {
		return nil
	}
	r := rand.New(rand.NewPCG(w.seed, 131))
	at, second := w.rehearsal.at.Milliseconds(), (w.rehearsal.at + w.rehearsal.age).Milliseconds()
	for i := range 60 {
		o := history.Op{Kind: history.Schedule, Topic: plainTopics[r.IntN(2)], ID: fmt.Sprintf("rehearsed-%d", i), Key: fmt.Sprintf("rehearsed%d", i), Due: now + second + r.Int64N(25_000), Version: -1, AllEvents: true}
		out = append(out, planned{at: now + r.Int64N(at*3/4), op: o, apart: true})
		when := now + at + r.Int64N(second-at+20_000)
		if w.rehearsal.quiet > 0 {
			when = now + second + w.rehearsal.quiet.Milliseconds() + r.Int64N(10_000)
		}
		change := o
		switch i % 4 {
		case 0:
			change = history.Op{Kind: history.Cancel, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: -1}
		case 1:
			change.Due = max(o.Due, when) + 5000
		default:
			continue
		}
		out = append(out, planned{at: when, op: change, apart: true})
	}
	return out
}

// rehearsalTroubles make the copy, and start processes on it. Nothing of that excuses anything in the original.
func (w *world) rehearsalTroubles() []trouble {
	if !w.rehearsal.yes {
		return nil
	}
	return []trouble{{kind: "a copy beside the original", target: w.db.name, at: w.rehearsal.at, lasts: w.rehearsal.age, gentle: true, begin: w.copyToRehearse, end: w.rehearse}}
}

// second is a copy of the database on another server.
func (d *database) second(path string) *database {
	_, settings, _ := strings.Cut(d.dsn, "?")
	life := new(atomic.Int64)
	life.Store(1_000_000)
	return &database{server: d.server, driver: d.driver, dsn: path + "?" + settings, write: make(chan struct{}, 1), silent: d.silent, latency: d.latency, column: d.column, memo: &memo{}, life: life}
}

func (w *world) copyToRehearse() {
	ctx, path := context.Background(), filepath.Join(w.dir, "rehearsal.db")
	if err := w.db.copyTo(path); err != nil {
		w.find("sim", "copying the database: %v", err)
		return
	}
	db, s := w.db.second(path), &w.rehearsed
	s.tasks = w.standingIn(path)
	st, err := store.Open(ctx, store.Config{Connector: unharmed{db, newProcess("nobody")}, Clock: db.clock, Life: lifeOf}, zap.NewNop())
	if err != nil {
		w.find("sim", "opening a copy: %v", err)
		return
	}
	defer func() { _ = st.Close() }()
	all, err := intake.New(st).Sources(ctx)
	if err != nil {
		w.find("sim", "reading the sources of a copy: %v", err)
	}
	s.kept.known = intake.InUse(all)
	s.nodes = []*node{
		{w: w, cell: w.cells[0], busy: make(busyLock, 1), name: "scanner-copy", scans: true, apart: db},
		{w: w, cell: w.cells[0], busy: make(busyLock, 1), name: "dispatcher-copy", disk: newServer("send log of dispatcher-copy", w.seed+20), apart: db},
	}
	watching, over := context.WithCancel(ctx)
	s.over = over
	s.watch.Go(func() {
		for ; s.lacks.IsZero() && watching.Err() == nil; _ = pause(watching, 100*time.Millisecond) {
			if s.kept.committed = w.committed(watching); s.kept.behind() {
				s.lacks = time.Now()
				w.note("the copy lacks what the original's scanners have stored")
			}
		}
	})
}

// standingIn are the tasks in a copy that stand in line.
func (w *world) standingIn(path string) map[name]bool {
	out := map[name]bool{}
	db, err := sql.Open("sqlite", path)
	if err == nil {
		defer func() { _ = db.Close() }()
		var rows *sql.Rows
		if rows, err = db.Query("SELECT t.topic, t.id FROM tasks t JOIN slots s ON s.slot = t.slot WHERE t.pos > s.done"); err == nil {
			defer func() { _ = rows.Close() }()
			for rows.Next() && err == nil {
				var n name
				err = rows.Scan(&n.topic, &n.id)
				out[n] = true
			}
		}
	}
	if err != nil {
		w.find("sim", "reading a copy: %v", err)
	}
	return out
}

// rehearse has a dispatcher and a scanner work on the copy, and an operator who then stops them.
func (w *world) rehearse() {
	s := &w.rehearsed
	if s.over == nil {
		return
	}
	sc, d := s.nodes[0], s.nodes[1]
	s.started = time.Now()
	d.start()
	time.Sleep(signsFor - w.rehearsal.age)
	sc.start()
	time.Sleep(rehearses)
	if sc.up.works.Load() {
		w.find("copies", "%s has started on a copy of the database, beside the original's scanners", sc.name)
	}
	sc.stop()
	d.stop()
	s.over()
	s.watch.Wait()
}

// signs notes in the database that a scanner lives, until its end, once no scanners are at work on another copy.
func (n *node) signs(r *running, kcfg kafka.Config, st *store.Store, log *zap.Logger) (leave func(), err error) {
	adm, me := admin.New(st), admin.Service{ID: r.client, Kind: "scanner", Started: st.Clock().Millis()}
	if err := adm.Beat(r.ctx, me); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(r.ctx)
	var beats sync.WaitGroup
	beats.Go(func() {
		for pause(ctx, signEvery) == nil {
			_ = adm.Beat(ctx, me)
		}
	})
	leave = func() {
		end()
		beats.Wait()
		_ = adm.Leave(context.Background(), me.ID)
	}
	client, err := kafka.New(kcfg, log)
	if err != nil {
		leave()
		return nil, err
	}
	defer client.Close()
	err = copies.Strangers{
		Group:  scannerGroup,
		AtWork: func(ctx context.Context) ([]string, error) { return scanner.AtWork(ctx, client, scannerGroup) },
		Signs: func(ctx context.Context) (out []copies.Sign, err error) {
			alive, err := look.New(st).Services(ctx)
			for _, v := range alive {
				if v.ID != me.ID {
					out = append(out, copies.Sign{Seen: v.Seen, Started: v.Started})
				}
			}
			return out, err
		},
		Every: signEvery,
	}.Check(r.ctx)
	if err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// bySecond tells whether a dispatcher with the copy has written a record.
func (w *world) bySecond(r *kgo.Record) bool {
	if !w.rehearsal.yes {
		return false
	}
	p := w.truth.producer(r.ProducerID)
	return p != nil && p.apart
}

// judgeRehearsal: whoever works with the copy delivers, at the right time, what stood in it, and nothing once it can know that the copy
// is behind. What is in the original is judged as if there were no copy.
func (w *world) judgeRehearsal() {
	if !w.rehearsal.yes {
		return
	}
	s := &w.rehearsed
	until := s.lacks.Add(noticed)
	if s.lacks.Before(s.started) {
		until = s.started
	}
	for _, a := range w.seen.bySecond() {
		if a.r.Topic == schemas.TopicResults {
			continue
		}
		d, _, err := schemas.ParseDelivery(a.r)
		switch from := a.r.Timestamp; {
		case err != nil:
			w.find("I3", "%s/%d/%d: %v", a.r.Topic, a.r.Partition, a.r.Offset, err)
		case a.at < d.Due:
			w.find("I2", "%s/%s, due at %d, was sent from a copy of the database, and came at %d", a.r.Topic, d.ID, d.Due, a.at)
		case !s.tasks[name{a.r.Topic, d.ID}]:
			w.find("copies", "%s/%s was sent from a copy of the database in which it does not stand", a.r.Topic, d.ID)
		case !s.lacks.IsZero() && from.After(until):
			w.find("copies", "%s/%s was sent at %d from a copy of the database, which lacks since %d what the original's scanners have stored", a.r.Topic, d.ID, from.UnixMilli(), s.lacks.UnixMilli())
		default:
			continue
		}
		return
	}
}

// bySecond returns what dispatchers with the copy have written.
func (o *observer) bySecond() []arrival {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(o.seen), func(a arrival) bool { return !o.w.bySecond(a.r) })
}
