package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/task"
)

// growthSeeds is the first seed whose number of slots may change on the way.
const growthSeeds = 1 << 51

// stallSeeds is the first seed in which tasks of split slots may be kept from following for so long that claims come to their bound.
const stallSeeds = 6 << 49

// stallLasts is longer than a split lets a slot be claimed without the tasks that are to follow.
const stallLasts = 25 * time.Second

// slotsSet is a wish of an operator: from then on, so many slots.
type slotsSet struct {
	at time.Duration
	n  int
}

// grow draws how the number of slots changes: up and down, also while it changes still. It is no fault: nothing is excused by it.
func (p *plan) grow() {
	r := rand.New(rand.NewPCG(p.seed, 43))
	if r.IntN(3) == 0 {
		return
	}
	for range 1 + r.IntN(4) {
		p.growth = append(p.growth, slotsSet{time.Duration(r.Int64N(int64(p.load))), 1 + r.IntN(8)})
	}
	if how := &p.setback.restored; how.yes { // see docs/known-gaps.md: scanners that were there first have read on
		how.killed, how.late = false, max(how.late, 4*time.Second)
	}
	if p.has(stallSeeds) && r.IntN(3) == 0 && !p.silent && p.hush == hushNone && p.moves == 0 {
		p.stall, p.redis, p.longest = true, false, 30_000 // ms: some fall due beyond the bound
	}
}

// stallTroubles is a time in which nothing follows out of slots that are split.
func (w *world) stallTroubles() []trouble {
	if !w.stall || len(w.growth) == 0 {
		return nil
	}
	return []trouble{{kind: "locking rows of slots", target: w.db.name, at: w.growth[0].at, lasts: stallLasts,
		begin: func() { w.db.stalls.Store(true) }, end: func() { w.db.stalls.Store(false) }}}
}

// setSlots changes the number of slots as the plan has it.
func (w *world) setSlots(ctx context.Context) {
	for _, g := range w.growth {
		time.AfterFunc(g.at, func() {
			if ctx.Err() != nil {
				return
			}
			state, err := admin.New(w.admin).SetSlots(ctx, g.n)
			for began := time.Now(); err != nil && w.setback.lost > 0 && ctx.Err() == nil && time.Since(began) < changePatience; {
				time.Sleep(time.Second) // the operator repeats the command: the database was started anew
				state, err = admin.New(w.admin).SetSlots(ctx, g.n)
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				w.find("sim", "changing the number of slots to %d: %v", g.n, err)
				return
			}
			w.note("%d slots are wanted: %+v", g.n, state)
		})
	}
}

// changePatience is how long a change of the number of slots may take once all is well: a slot of which a producer holds a record waits until
// that is given up.
const changePatience = 90 * time.Second

// grown waits until the number of slots is as it is to be, and looks that every task stands where it belongs.
func (w *world) grown() {
	if len(w.growth) == 0 {
		return
	}
	ctx := context.Background()
	for began := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		g, err := admin.New(w.admin).Growth(ctx)
		if err != nil {
			w.find("sim", "looking at the number of slots: %v", err)
			return
		}
		if g.Settled() {
			w.note("there are %d slots", g.Base)
			break
		}
		if time.Since(began) > changePatience {
			w.find("slots", "the number of slots still changes %v after all is well: %+v", changePatience, g)
			return
		}
	}
	n, err := w.admin.SlotCount(ctx)
	if err != nil {
		w.find("sim", "counting the slots: %v", err)
		return
	}
	if lost := w.countRows("SELECT COUNT(*) FROM tasks t LEFT JOIN slots s ON s.slot = t.slot WHERE t.slot >= 0 AND s.slot IS NULL"); lost > 0 {
		w.find("slots", "%d tasks name slots that there are not", lost)
	}
	rows, err := w.looks.QueryContext(ctx, "SELECT t.seq, t.replay, t.topic, t.id, t.body, t.slot FROM tasks t JOIN slots s ON s.slot = t.slot WHERE t.pos > s.done")
	if err != nil {
		w.find("sim", "reading where tasks stand: %v", err)
		return
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var m movedTask
		if err := rows.Scan(&m.seq, &m.replay, &m.topic, &m.id, &m.body, &m.to); err != nil {
			w.find("sim", "reading where tasks stand: %v", err)
			return
		}
		if home, ok := m.home(n); ok && home != m.to {
			w.find("slots", "%s/%s stands in slot %d, and belongs to slot %d of %d", m.topic, m.id, m.to, home, n)
			return
		}
	}
}

// movedTask is a task that a transaction has put into another slot.
type movedTask struct {
	seq       int64
	replay    int
	topic, id string
	body      []byte
	from, to  int
}

// home is where it belongs, of n slots.
func (m movedTask) home(n int) (slot int, ok bool) {
	key, ok := schemas.BodyKey(m.body)
	return slots.Of(m.topic, key, task.Hashed(m.seq, m.replay, m.id), n), ok
}

func (m movedTask) String() string {
	return fmt.Sprintf("%s/%s from slot %d to %d", m.topic, m.id, m.from, m.to)
}
