package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// walkSeeds is the first seed whose tasks are listed meanwhile, in pages of one to five.
const walkSeeds = regimeSeeds

// lister is the name of who lists.
const lister = "lister"

// walk lists tasks as a process of its own, most often while the number of slots changes.
func (w *world) walk(begin time.Time) {
	if !w.has(walkSeeds) || w.setback.lost > 0 || w.several > 0 { // a task may be away while its target moves to and fro
		return
	}
	r := rand.New(rand.NewPCG(w.seed, 701))
	for range 3 + r.IntN(8) {
		at := time.Duration(r.Int64N(int64(w.load)))
		if len(w.growth) > 0 && r.IntN(4) > 0 {
			at = w.growth[r.IntN(len(w.growth))].at + time.Duration(r.IntN(1000)-300)*time.Millisecond
		}
		f, rest := look.ListFilter{Limit: 1 + r.IntN(5)}, time.Duration(1+r.IntN(60))*time.Millisecond
		switch r.IntN(3) {
		case 0:
			f.Topic = plainTopics[r.IntN(2)]
		case 1:
			f.Tag = pick(r, "t0", "t1", "t2")
		}
		w.walking.Go(func() {
			time.Sleep(time.Until(begin.Add(at)))
			w.walkOnce(f, rest)
		})
	}
}

// walkOnce reads a list to its end. A task that stands in line throughout must be in it. A task that its target brings
// forward meanwhile, from the held ones or from those that were put off, may be on no page.
func (w *world) walkOnce(f look.ListFilter, rest time.Duration) {
	ctx := context.Background()
	st, err := store.Open(ctx, store.Config{Connector: w.db.of(newProcess(lister)), MaxConns: 2, Clock: w.db.clock, Life: lifeOf}, zap.NewNop())
	if err != nil {
		w.note("nothing is listed: %v", err)
		return
	}
	defer func() { _ = st.Close() }()
	last, forward := map[int64]standingTask{}, map[int64]bool{}
	standing := func() map[int64]standingTask {
		now := w.standing(f)
		for seq, one := range now {
			was := last[seq]
			forward[seq] = forward[seq] || one.pos < was.pos && (one.slot == was.slot || was.pos >= task.Held(0))
			last[seq] = one
		}
		return now
	}
	before, listed, pages := standing(), map[int64]bool{}, 0
	for {
		page, err := look.New(st).List(ctx, f)
		if err != nil {
			w.note("listing %+v: %v", f, err)
			time.Sleep(time.Second)
			continue
		}
		pages++
		for _, v := range page.Tasks {
			listed[v.Seq] = true
		}
		if f.After = page.More; f.After == nil {
			break
		}
		standing()
		time.Sleep(rest)
	}
	w.note("a list of %d pages has %d tasks: topic %q, tag %q", pages, len(listed), f.Topic, f.Tag)
	after := standing()
	for seq, was := range before {
		is, there := after[seq]
		if there && is.attempt == was.attempt && is.due == was.due && is.pos >= was.pos && !forward[seq] && !listed[seq] {
			w.find("lists", "%s/%s stood at %d in slot %d, then at %d in slot %d, and is on none of %d pages (topic %q, tag %q)", is.topic, is.id, was.pos, was.slot, is.pos, is.slot, pages, f.Topic, f.Tag)
		}
	}
}

// standingTask is a task in line.
type standingTask struct {
	topic, id     string
	pos, due      int64
	slot, attempt int
}

// standing are the tasks in line that a filter selects, by seq.
func (w *world) standing(f look.ListFilter) map[int64]standingTask {
	out := map[int64]standingTask{}
	rows, err := w.looks.Query("SELECT t.seq, t.topic, t.id, t.pos, t.due, t.slot, t.attempt, t.body FROM tasks t JOIN slots s ON s.slot = t.slot WHERE t.pos > s.done")
	if err != nil {
		w.find("sim", "reading what stands in line: %v", err)
		return out
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var seq int64
		var one standingTask
		var body []byte
		if err := rows.Scan(&seq, &one.topic, &one.id, &one.pos, &one.due, &one.slot, &one.attempt, &body); err != nil {
			w.find("sim", "reading what stands in line: %v", err)
			return out
		}
		if (f.Topic == "" || f.Topic == one.topic) && (f.Tag == "" || slices.Contains(schemas.Tags(schemas.BodyTag(body)), f.Tag)) {
			out[seq] = one
		}
	}
	return out
}
