package sim

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/test/chaos/history"
)

// setbackSeeds is the first seed in which the database may forget its last commits while everybody runs on: what earlier seeds draw stays
// as it is. Seeds from edgeSeeds on do not draw it; a quarter of those from aloneSeeds on does.
const setbackSeeds = 1 << 48

// setback is a time whose commits the database forgets at its end: another server takes its place, to which they had not come.
type setback struct {
	from, lost time.Duration
	held       bool // a target was paused until then, and what is called back stays with the producer: see heldBack
	restored   restored
}

// setBack draws whether the database forgets. Timers and callbacks have judges who do not know of it. From regimeSeeds on targets are paused,
// limited or silent beside it. Half of such seeds have no other fault.
func (p *plan) setBack() {
	r := rand.New(rand.NewPCG(p.seed, 71))
	if p.forgets || p.silent || p.hush != hushNone && p.seed < regimeSeeds || p.moves > 0 || p.hostile || p.loses && r.IntN(2) == 0 {
		return
	}
	p.loses = false
	p.setback = setback{from: time.Duration(r.Int64N(int64(p.load))), lost: pick(r, 20*time.Millisecond, 200*time.Millisecond, time.Second, 3*time.Second)}
	if p.seed >= regimeSeeds && p.hush == hushNone && r.IntN(2) == 0 {
		p.setback.held, p.setback.from, p.setback.lost = true, max(p.setback.from, 2*time.Second), max(p.setback.lost, time.Second)
	}
	p.timers, p.callbacks, p.deaf, p.aims, p.redis, p.stepsBack = 0, 0, 0, aims{}, false, 0
	if r.IntN(2) == 0 || p.seed >= returnSeeds {
		p.faults, p.leaderless, p.disks = 0, 0, false
		if p.seed >= regimeSeeds {
			p.commit()
			p.restore()
		}
	}
}

// setbackTasks are claimed in the time that is forgotten, or about then, and cancelled when it is. Some come again.
func (w *world) setbackTasks(now int64) (out []planned) {
	if w.setback.lost == 0 {
		return nil
	}
	r := rand.New(rand.NewPCG(w.seed, 73))
	back := now + (w.setback.from + w.setback.lost).Milliseconds()
	ahead := max(w.dispatcher.LookAhead, w.dispatcher.BurstLookAhead).Milliseconds()
	for i := range 40 {
		o := history.Op{Kind: history.Schedule, Topic: plainTopics[r.IntN(2)], ID: fmt.Sprintf("back-%d", i), Key: fmt.Sprintf("back%d", i), Due: back + r.Int64N(ahead+200), Version: -1, AllEvents: true}
		c := history.Op{Kind: history.Cancel, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: -1}
		if i%8 == 0 {
			o.Due += 20_000
		}
		at := max(now, back-r.Int64N(w.setback.lost.Milliseconds()+3000))
		out = append(out, planned{at: at, op: o, apart: true})
		if i%4 != 3 {
			out = append(out, planned{at: max(at, back-20) + 1 + r.Int64N(400), op: c, apart: true})
		}
	}
	if w.setback.held {
		out = append(out, w.heldBack(now)...)
	}
	return out
}

// heldBack are tasks that are held until their target is resumed, in the time that is forgotten. The producer has them when the database has
// forgotten where they stood, and they are cancelled then.
func (w *world) heldBack(now int64) (out []planned) {
	r := rand.New(rand.NewPCG(w.seed, 79))
	for i := range 30 {
		o := history.Op{Kind: history.Schedule, Topic: plainTopics[1], ID: fmt.Sprintf("heldback-%d", i), Key: fmt.Sprintf("heldback%d", i), Due: now + 200 + r.Int64N(w.setback.from.Milliseconds()-200), Version: -1, AllEvents: true}
		c := history.Op{Kind: history.Cancel, Topic: o.Topic, ID: o.ID, Key: o.Key, Version: -1}
		back := now + (w.setback.from + w.setback.lost).Milliseconds()
		out = append(out, planned{at: now + r.Int64N(100), op: o, apart: true}, planned{at: back + 100 + r.Int64N(2000), op: c, apart: true})
	}
	return out
}

// heldBackTroubles are the pause of that target, and a time in which it acknowledges nothing.
func (w *world) heldBackTroubles() []trouble {
	if !w.setback.held {
		return nil
	}
	topic, resumed := plainTopics[1], w.setback.from+w.setback.lost/4
	var h *kfake.FaultHandle
	silent := kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1}
	return []trouble{
		{kind: "policy (paused)", target: topic, only: []string{topic}, gentle: true, lasts: resumed,
			begin: func() { w.policy(topic, admin.Policy{Paused: true}) }, end: func() { w.policy(topic, admin.Policy{}) }},
		{kind: "acknowledging nothing", target: topic, only: []string{topic}, at: w.setback.from, lasts: w.setback.lost + 3*time.Second,
			begin: func() { h = w.cluster.Fault(silent) }, end: func() { h.Remove() }},
	}
}

// setbackTrouble is the fault.
func (w *world) setbackTrouble() trouble {
	if w.setback.restored.yes {
		return w.restoreTrouble()
	}
	path := filepath.Join(w.dir, "behind.db")
	t := trouble{kind: "forgetting the last commits", target: w.db.name, at: w.setback.from, lasts: w.setback.lost, copies: true, forgets: &history.Setback{}}
	t.begin = func() { w.copyAside(path, t.forgets) }
	t.end = func() {
		w.putBack(path, t.forgets)
		w.startBehind()
	}
	return t
}

// copyAside keeps the database as it is.
func (w *world) copyAside(path string, b *history.Setback) {
	w.kept.known = w.sources()
	b.From = time.Now().UnixMilli()
	if err := w.db.copyTo(path); err != nil {
		w.find("sim", "copying the database: %v", err)
	}
	b.Kept = time.Now().UnixMilli()
	w.kept.doubts = w.claimedIn(path)
}

// claimedIn are the tasks in a copy that were claimed, and not settled, and when they were due.
func (w *world) claimedIn(path string) map[name]int64 {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		w.find("sim", "opening a copy: %v", err)
		return nil
	}
	defer func() { _ = db.Close() }()
	rows, err := db.Query("SELECT t.topic, t.id, t.due FROM tasks t JOIN slots s ON s.slot = t.slot WHERE t.pos > s.done AND t.pos <= s.claimed")
	if err != nil {
		w.find("sim", "reading a copy: %v", err)
		return nil
	}
	defer func() { _ = rows.Close() }()
	out := map[name]int64{}
	for rows.Next() {
		var n name
		var due int64
		if err := rows.Scan(&n.topic, &n.id, &due); err != nil {
			w.find("sim", "reading a copy: %v", err)
		}
		out[n] = due
	}
	return out
}

// putBack puts that in its place.
func (w *world) putBack(path string, b *history.Setback) {
	w.kept.committed = w.committed(context.Background())
	b.Gone = time.Now().UnixMilli()
	w.kept.gone = b.Gone
	if err := w.db.restore(path); err != nil {
		w.find("sim", "setting the database back: %v", err)
	}
	b.Back = time.Now().UnixMilli()
}

// alone calls f with a connection, while nobody writes.
func (d *database) alone(f func(exec func(string) error, c realConn) error) error {
	d.write <- struct{}{}
	defer func() { <-d.write }()
	c, err := d.driver.Open(d.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	exec := func(q string) error {
		_, err := c.(realConn).ExecContext(context.Background(), q, nil)
		return err
	}
	return f(exec, c.(realConn))
}

// copyTo copies the database as it is: what is committed later is lost when the copy is restored.
func (d *database) copyTo(path string) error {
	_ = os.Remove(path)
	return d.alone(func(exec func(string) error, _ realConn) error { return exec("VACUUM INTO '" + path + "'") })
}

// restore begins another life of the database, with what the copy has. All connections end. Policies stay: who sets them does not set
// them again.
func (d *database) restore(path string) error {
	return d.alone(func(exec func(string) error, c realConn) error {
		if err := exec("ATTACH '" + path + "' AS behind"); err != nil {
			return err
		}
		type table struct{ name, columns string }
		var tables []table
		rows, err := c.QueryContext(context.Background(), "SELECT name, (SELECT GROUP_CONCAT(name) FROM pragma_table_info(m.name)) FROM behind.sqlite_master m WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'goose_%' AND name <> 'targets'", nil)
		if err != nil {
			return err
		}
		row := make([]driver.Value, 2)
		for rows.Next(row) == nil {
			tables = append(tables, table{text(row[0]), text(row[1])}) // without columns that are computed
		}
		if err := rows.Close(); err != nil {
			return err
		}
		if len(tables) < 8 {
			return fmt.Errorf("there are only the tables %v", tables)
		}
		if err := exec("BEGIN IMMEDIATE"); err != nil {
			return err
		}
		for _, t := range tables {
			if err := exec("DELETE FROM main." + t.name); err != nil {
				return err
			}
			if err := exec("INSERT INTO main." + t.name + " (" + t.columns + ") SELECT " + t.columns + " FROM behind." + t.name); err != nil {
				return err
			}
		}
		if err := exec("COMMIT"); err != nil {
			return err
		}
		d.life.Add(1)
		d.memo.changed()
		if d.truth != nil {
			d.truth.committed(d.truth.read(c))
		}
		return nil
	})
}

// lifeOf is how a connection knows the life of the database in which it began.
const lifeOf = "(SELECT name FROM temp.life)"

// begin makes a connection know its life.
func (d *database) begin(c realConn) (int64, error) {
	life := d.life.Load()
	_, err := c.ExecContext(context.Background(), fmt.Sprintf("CREATE TEMP TABLE life AS SELECT 'life %d' AS name", life), nil)
	return life, err
}

// outlived says that the server is gone to which a connection was made.
func (c *dbConn) outlived() bool { return c.life != c.d.life.Load() }
