package sim

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/task"
)

// aimedSeeds is the first seed whose run the world watches from inside, with load and faults that are aimed at what chance seldom hits
// (aimed.go): what earlier seeds draw, and how they are judged, stays as it is.
const aimedSeeds = 1 << 46

// truth is what the world knows and no process does: who had which slot when, what was in doubt then, and who sent what.
// The stand-in database and the connections to the broker write it; judgeSenders reads it.
type truth struct {
	find      func(invariant, format string, args ...any)
	clock     func() time.Time // the database's
	retention time.Duration

	mu        sync.Mutex
	slots     map[int]owned
	owners    []owned             // each change of an owner or an epoch, in order
	producers map[int64]*process  // by the id that the broker gave them
	told      map[string]struct{} // findings, each once
	unsure    map[name]bool       // tasks whose row has said that they may have been sent
}

// owned is a slot as a commit left it.
type owned struct {
	at            time.Time
	slot          int
	owner         string
	epoch         int64
	claimed, done int64
	base, target  int            // how many slots there are, and are to be
	spread        int            // target once it is split
	moved         int64          // up to where it is in order then
	doubts        map[name]bool  // with a change of owner: the tasks in (done, claimed]
	putOff        map[name]int64 // likewise: the places of tasks that an owner before has put off
}

type name struct{ topic, id string }

func newTruth(find func(string, string, ...any), clock func() time.Time, retention time.Duration) *truth {
	return &truth{find: find, clock: clock, retention: retention, slots: map[int]owned{}, producers: map[int64]*process{}, told: map[string]struct{}{}, unsure: map[name]bool{}}
}

// watchTouched makes a connection note which slots its statements touch.
var watchTouched = []string{
	"CREATE TEMP TABLE touched (what TEXT, slot INTEGER, pos INTEGER)",
	"CREATE TEMP TABLE unsure (topic TEXT, id TEXT)",
	"CREATE TEMP TABLE waited (topic TEXT, id TEXT, ident BLOB)",
	"CREATE TEMP TABLE ordered (slot INTEGER)",
	fmt.Sprintf("CREATE TEMP TRIGGER waited_update AFTER UPDATE ON main.tasks WHEN OLD.state = %[1]d AND NEW.state <> %[1]d BEGIN INSERT INTO waited VALUES (NEW.topic, NEW.id, NEW.ident); END", task.StateReport),
	"CREATE TEMP TRIGGER ordered_update AFTER UPDATE OF moved ON main.slots WHEN OLD.moved <> NEW.moved BEGIN INSERT INTO ordered VALUES (NEW.slot); END",
	"CREATE TEMP TABLE moved (seq INTEGER, replay INTEGER, topic TEXT, id TEXT, body BLOB, was INTEGER, slot INTEGER)",
	"CREATE TEMP TRIGGER moved_update AFTER UPDATE OF slot ON main.tasks WHEN OLD.slot <> NEW.slot AND OLD.slot >= 0 AND NEW.slot >= 0 BEGIN INSERT INTO moved VALUES (NEW.seq, NEW.replay, NEW.topic, NEW.id, NEW.body, OLD.slot, NEW.slot); END",
	fmt.Sprintf("CREATE TEMP TRIGGER unsure_update AFTER UPDATE ON main.tasks WHEN NEW.state = %d BEGIN INSERT INTO unsure VALUES (NEW.topic, NEW.id); END", task.StateRetry),
	"CREATE TEMP TRIGGER touched_insert AFTER INSERT ON main.tasks BEGIN INSERT INTO touched VALUES ('task', NEW.slot, NEW.pos); END",
	"CREATE TEMP TRIGGER touched_update AFTER UPDATE ON main.tasks BEGIN INSERT INTO touched VALUES ('task', OLD.slot, OLD.pos), ('task', NEW.slot, NEW.pos); END",
	"CREATE TEMP TRIGGER touched_delete AFTER DELETE ON main.tasks BEGIN INSERT INTO touched VALUES ('gone', OLD.slot, OLD.pos); END",
	"CREATE TEMP TRIGGER touched_slot AFTER UPDATE ON main.slots BEGIN INSERT INTO touched VALUES (CASE WHEN OLD.claimed <> NEW.claimed OR OLD.done <> NEW.done THEN 'offset' ELSE 'owner' END, NEW.slot, NEW.done); END",
}

func (k *truth) watch(c realConn) error {
	for _, q := range watchTouched {
		if _, err := c.ExecContext(context.Background(), q, nil); err != nil {
			return err
		}
	}
	return nil
}

type touched struct {
	what string
	slot int
	pos  int64
}

// before looks at what a transaction of a process is about to commit, and returns the slots as they will be.
func (k *truth) before(c realConn, p *process) []owned {
	if k == nil {
		return nil
	}
	var all []touched
	k.query(c, "SELECT DISTINCT what, slot, pos FROM temp.touched", nil, func(row []driver.Value) {
		all = append(all, touched{text(row[0]), int(row[1].(int64)), row[2].(int64)})
	})
	if len(all) == 0 {
		return nil
	}
	k.query(c, "SELECT topic, id FROM temp.unsure", nil, func(row []driver.Value) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.unsure[name{text(row[0]), text(row[1])}] = true
	})
	var moved []movedTask
	k.query(c, "SELECT seq, replay, topic, id, body, was, slot FROM temp.moved", nil, func(row []driver.Value) {
		body, _ := row[4].([]byte)
		moved = append(moved, movedTask{row[0].(int64), int(row[1].(int64)), text(row[2]), text(row[3]), bytes.Clone(body), int(row[5].(int64)), int(row[6].(int64))})
	})
	dispatches := strings.HasPrefix(p.name, "dispatcher")
	if dispatches {
		if !slices.ContainsFunc(all, func(t touched) bool { return t.what == "owner" }) { // who takes a slot knows of attempts that the database has forgotten
			k.judgeWaits(c, p)
		}
		k.judgeOrdered(c, p)
	}
	if _, err := c.ExecContext(context.Background(), "DELETE FROM temp.touched; DELETE FROM temp.unsure; DELETE FROM temp.moved; DELETE FROM temp.waited; DELETE FROM temp.ordered", nil); err != nil {
		k.find("sim", "forgetting what was touched: %v", err)
	}
	if !dispatches {
		return nil
	}
	slots := k.read(c)
	k.judgeTouched(p, all, slots)
	k.judgeMoved(p, moved, slots)
	k.judgeReach(p, all, slots)
	if !slices.ContainsFunc(all, func(t touched) bool { return t.what == "offset" || t.what == "owner" }) {
		return nil
	}
	k.mu.Lock()
	last := make(map[int]owned, len(k.slots))
	for n, o := range k.slots {
		last[n] = o
	}
	k.mu.Unlock()
	for i := range slots {
		if o := &slots[i]; last[o.slot].epoch != o.epoch || last[o.slot].owner != o.owner {
			o.doubts = map[name]bool{}
			args := []driver.NamedValue{{Ordinal: 1, Value: int64(o.slot)}, {Ordinal: 2, Value: o.done}, {Ordinal: 3, Value: o.claimed}}
			k.query(c, "SELECT topic, id FROM tasks WHERE slot = ? AND pos > ? AND pos <= ?", args, func(row []driver.Value) {
				o.doubts[name{text(row[0]), text(row[1])}] = true
			})
			o.putOff = map[name]int64{}
			args = []driver.NamedValue{{Ordinal: 1, Value: int64(o.slot)}, {Ordinal: 2, Value: o.claimed}, {Ordinal: 3, Value: task.Held(0)}, {Ordinal: 4, Value: k.clock().UnixMilli()}}
			k.query(c, "SELECT topic, id, pos FROM tasks WHERE slot = ? AND pos > ? AND pos < ? AND due < ?", args, func(row []driver.Value) {
				o.putOff[name{text(row[0]), text(row[1])}] = row[2].(int64)
			})
		}
	}
	return slots
}

// judgeTouched: a dispatcher changes only tasks and offsets of slots that it owns, and deletes no row before its time.
func (k *truth) judgeTouched(p *process, all []touched, slots []owned) {
	kept := k.clock().Add(-k.retention).UnixMilli()
	k.mu.Lock()
	last := maps.Clone(k.slots)
	k.mu.Unlock()
	for _, t := range all {
		i := slices.IndexFunc(slots, func(o owned) bool { return o.slot == t.slot })
		switch {
		case t.what == "gone" && t.pos > kept:
			k.once("retention", "%s deleted a row of slot %d at %d, %d ms before its retention was over", p.name, t.slot, t.pos, t.pos-kept)
		case t.what == "gone", t.what == "owner", t.slot == task.OutOfLine:
		case i < 0:
			k.once("owner", "%s changed a %s of slot %d, which there is not", p.name, t.what, t.slot)
		case t.what == "offset" && slots[i].owner == "" && slots[i].done == last[t.slot].done && slots[i].claimed >= last[t.slot].claimed: // it was given up, with all that had been claimed
		case t.what == "task" && slots[i].owner == "" && last[t.slot].owner == p.name: // likewise, with a task that its producers hold
		case slots[i].owner != p.name && t.what == "task" && slots[i].base != slots[i].target && t.pos > slots[i].claimed: // it came from a slot of its own
		case slots[i].owner != p.name:
			k.once("owner", "%s changed a %s of slot %d, which is %q's under epoch %d", p.name, t.what, t.slot, slots[i].owner, slots[i].epoch)
		}
	}
}

// judgeWaits: a dispatcher ends no wait for a report of which a report is stored.
func (k *truth) judgeWaits(c realConn, p *process) {
	k.query(c, "SELECT e.topic, e.id FROM temp.waited e WHERE EXISTS (SELECT 1 FROM main.waiting w WHERE w.ident = e.ident AND w.report = 1)", nil, func(row []driver.Value) {
		k.once("I8", "%s ended the wait of %s/%s, and a report on it was stored that nobody had looked at", p.name, text(row[0]), text(row[1]))
	})
}

// judgeOrdered: once all of a slot is called in order up to a place, each task there that nobody has sent belongs to the slot.
func (k *truth) judgeOrdered(c realConn, p *process) {
	const inOrder = `SELECT t.seq, t.replay, t.topic, t.id, t.body, t.slot, s.target FROM main.tasks t JOIN main.slots s ON s.slot = t.slot
		WHERE s.slot IN (SELECT slot FROM temp.ordered) AND s.spread = s.target AND t.pos > s.claimed AND t.pos <= s.moved AND t.state = ?`
	k.query(c, inOrder, []driver.NamedValue{{Ordinal: 1, Value: int64(task.StateLine)}}, func(row []driver.Value) {
		body, _ := row[4].([]byte)
		m := movedTask{seq: row[0].(int64), replay: int(row[1].(int64)), topic: text(row[2]), id: text(row[3]), body: body, to: int(row[5].(int64))}
		if home, ok := m.home(int(row[6].(int64))); ok && home != m.to {
			k.once("slots", "%s called slot %d in order, and %s/%s, which stands there, belongs to slot %d", p.name, m.to, m.topic, m.id, home)
		}
	})
}

// judgeReach: while the number of slots changes, an owner claims no slot beyond what is in order: of its own tasks, or of those that are
// to come to it. Whoever takes a slot, perhaps one of its own anew, may claim what a database that was set back has forgotten.
func (k *truth) judgeReach(p *process, all []touched, now []owned) {
	k.mu.Lock()
	last := maps.Clone(k.slots)
	k.mu.Unlock()
	least := int64(math.MaxInt64)
	for _, o := range now {
		if o.base != o.target && o.spread == o.target {
			least = min(least, o.moved)
		}
	}
	for _, o := range now {
		most := least
		switch before := last[o.slot]; {
		case o.base == o.target, o.claimed <= before.claimed, slices.ContainsFunc(all, func(t touched) bool { return t.what == "owner" && t.slot == o.slot }):
			continue
		case o.spread == o.target:
			most = o.moved
		case slots.Leaving(o.slot, o.base, o.target):
			continue
		}
		if o.claimed > most {
			k.once("slots", "%s claimed slot %d up to %d, and all is in order up to %d only", p.name, o.slot, o.claimed, most)
		}
	}
}

// judgeMoved: a task goes to another slot only while their number changes, and only to the one to which it belongs.
func (k *truth) judgeMoved(p *process, moved []movedTask, slots []owned) {
	for _, m := range moved {
		switch home, ok := m.home(slots[0].target); {
		case slots[0].base == slots[0].target:
			k.once("slots", "%s moved %v, and the number of slots does not change", p.name, m)
		case ok && home != m.to:
			k.once("slots", "%s moved %v, and it belongs to slot %d of %d", p.name, m, home, slots[0].target)
		}
	}
}

// committed notes the slots after a commit.
func (k *truth) committed(slots []owned) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range slots {
		o.at = time.Now()
		if o.doubts != nil {
			k.owners = append(k.owners, o)
		}
		k.slots[o.slot] = o
	}
}

func (k *truth) read(c realConn) (out []owned) {
	k.query(c, "SELECT slot, owner, epoch, claimed, done, base, target, spread, moved FROM slots ORDER BY slot", nil, func(row []driver.Value) {
		out = append(out, owned{slot: int(row[0].(int64)), owner: text(row[1]), epoch: row[2].(int64), claimed: row[3].(int64), done: row[4].(int64), base: int(row[5].(int64)), target: int(row[6].(int64)), spread: int(row[7].(int64)), moved: row[8].(int64)})
	})
	return out
}

func (k *truth) query(c realConn, query string, args []driver.NamedValue, each func([]driver.Value)) {
	rows, err := c.QueryContext(context.Background(), query, args)
	if err != nil {
		k.once("sim", "looking at a transaction: %v", err)
		return
	}
	defer func() { _ = rows.Close() }()
	row := make([]driver.Value, len(rows.Columns()))
	for {
		switch err := rows.Next(row); err {
		case nil:
			each(row)
		case io.EOF:
			return
		default:
			k.once("sim", "looking at a transaction: %v", err)
			return
		}
	}
}

func text(v driver.Value) string {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case string:
		return v
	}
	return ""
}

// once finds something, and not again.
func (k *truth) once(invariant, format string, args ...any) {
	k.mu.Lock()
	_, told := k.told[invariant]
	k.told[invariant] = struct{}{}
	k.mu.Unlock()
	if !told {
		k.find(invariant, format, args...)
	}
}

// written reads, in a request to the broker, under which producer ids a process sends.
func (k *truth) written(p *process, b []byte) {
	const produce, flexible = 0, 9
	if len(b) < 14 || binary.BigEndian.Uint16(b[4:]) != produce || !strings.HasPrefix(p.name, "dispatcher") {
		return
	}
	version := int16(binary.BigEndian.Uint16(b[6:]))
	at := 14 + max(int(int16(binary.BigEndian.Uint16(b[12:]))), 0)
	if version >= flexible {
		at++ // no tags
	}
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(version)
	if at > len(b) || req.ReadFrom(b[at:]) != nil {
		k.once("sim", "a request of %s to produce cannot be read", p.name)
		return
	}
	for _, t := range req.Topics {
		for _, part := range t.Partitions {
			var batch kmsg.RecordBatch
			if batch.ReadFrom(part.Records) == nil && batch.ProducerID >= 0 {
				k.mu.Lock()
				k.producers[batch.ProducerID] = p
				k.mu.Unlock()
			}
		}
	}
}

func (k *truth) producer(id int64) *process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.producers[id]
}

// ownerAt returns who had a slot at an instant, and since when somebody else than p had had it.
func (k *truth) ownerAt(slot int, at time.Time, p string) (o owned, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.owners {
		if c.slot != slot || c.at.After(at) {
			continue
		}
		if c.owner == p || c.owner == "" {
			since = time.Time{}
		} else if since.IsZero() {
			since = c.at
		}
		o = c
	}
	return o, since
}

// putOffUntil is where a task stood that had been put off before its slot changed hands: its new owner does not call it back.
func (k *truth) putOffUntil(of name) (at int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.owners {
		at = max(at, o.putOff[of])
	}
	return at
}

// inDoubt tells whether a task was in doubt when its slot, or any slot (-1), changed hands in a span.
func (k *truth) inDoubt(slot int, of name, from, to time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.owners, func(o owned) bool {
		return (o.slot == slot || slot < 0) && !o.at.Before(from) && !o.at.After(to) && o.doubts[of]
	})
}

// maybeSent tells whether a task may have been sent before its latest copy: it was in doubt when its slot changed hands, or its row said so.
func (k *truth) maybeSent(of name) bool {
	k.mu.Lock()
	unsure := k.unsure[of]
	k.mu.Unlock()
	return unsure || k.everInDoubt(of)
}

// everInDoubt tells whether a task was in doubt when its slot changed hands.
func (k *truth) everInDoubt(of name) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.owners, func(o owned) bool { return o.doubts[of] })
}
