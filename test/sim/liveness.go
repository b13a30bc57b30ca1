package sim

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/chaos/check"
	"github.com/notyet/notyet/test/chaos/history"
)

const (
	// drainPatience is how long after all is well, and after the last due time, something may be left to do.
	drainPatience = 90 * time.Second
	// soon is the span in which nothing may be left to do; what is due far behind it stays.
	soon = 15 * time.Minute
)

// drain waits until nothing is left to do.
func (w *world) drain() {
	patience := drainPatience + w.noteHeld() + w.tenant.patience()
	if w.callbacks > 0 {
		patience += callAttempts * callLongest
		if w.deaf > 0 {
			patience += callUnlucky
		}
	}
	deadline := time.Now().Add(time.Duration(w.longest)*time.Millisecond + patience)
	for quiet := 0; quiet < 3; {
		time.Sleep(time.Second)
		left, lag := w.left(), w.lag()
		quiet++
		select {
		case <-w.asked:
		default: // a request may come long after the task of which it takes up the id
			quiet = 0
		}
		if left != 0 || lag != 0 {
			quiet = 0
		}
		if time.Now().After(deadline) {
			w.find("I12", "not at rest %v after all was well: %d rows are left to do, %d records are not stored", patience, left, lag)
			return
		}
	}
}

// noteHeld notes how long it takes to call back what is held now, and returns it.
func (w *world) noteHeld() time.Duration {
	recall := w.recallTime()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recalls = max(w.recalls, recall)
	return recall
}

// recallTime is how long it takes to call back what is held: a few at a time, an eighth of what may be staged, and each of them is
// claimed again, which takes up to one and a half look-aheads.
func (w *world) recallTime() time.Duration {
	held := w.countAll("SELECT COUNT(*) FROM tasks WHERE pos >= ?", task.Held(0))
	return time.Duration(held/int64(max(w.dispatcher.StageTasks/8, 1))) * w.dispatcher.LookAhead * 3 / 2
}

func (w *world) left() int64 {
	return w.countAll(`SELECT (SELECT COUNT(*) FROM tasks t JOIN slots s ON s.slot = t.slot WHERE t.pos > s.done AND (t.pos < ? OR t.pos >= ?))
		+ (SELECT COUNT(*) FROM outbox) + (SELECT COUNT(*) FROM waiting)`, time.Now().Add(soon).UnixMilli(), task.Held(0))
}

func (w *world) countRows(query string, args ...any) (n int64) {
	if err := w.looks.QueryRow(query, args...).Scan(&n); err != nil {
		w.find("sim", "counting what is left: %v", err)
	}
	return n
}

// ends returns how many records topics have had.
func (w *world) ends(topics ...string) (n int64) {
	ends, err := kadm.NewClient(w.client).ListEndOffsets(context.Background(), topics...)
	if err != nil {
		w.find("sim", "asking where the topics end: %v", err)
		return -1
	}
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

func (w *world) lag() (n int64) {
	if w.several > 0 {
		return w.lagOfAll()
	}
	apart, others := w.tenant.intakes(), int64(0) // no transaction is there
	if w.strange > 0 {
		apart = append(apart, strangerIntake)
	}
	if len(apart) > 0 {
		others = w.ends(apart...)
	}
	n = w.ends(schemas.TopicIntake, schemas.TopicReports, schemas.TopicCancels)
	stored := map[history.OffsetSample]int64{}
	for _, s := range w.sources() {
		if slices.Contains(apart, s.Topic) {
			others -= s.Next
			continue
		}
		n -= s.Next
		stored[history.OffsetSample{Topic: s.Topic, Partition: s.Partition}] = s.Next
	}
	if w.edges.gaps > 0 {
		n = w.visibleEnds(stored) + w.ends(schemas.TopicCancels) - stored[history.OffsetSample{Topic: schemas.TopicCancels}]
	}
	return n + others
}

// rest waits until index and database agree: what the index lacks is noticed at the second of two looks 30 s apart.
func (w *world) rest() {
	begin := time.Now()
	for {
		r, err := w.atRest(context.Background())
		if err != nil {
			w.find("sim", "looking at the rest: %v", err)
			return
		}
		r.Took = time.Since(begin).Milliseconds()
		if r.Agrees() || time.Since(begin) > 2*time.Minute {
			w.rec.History().Rest = r
			return
		}
		time.Sleep(2 * time.Second)
	}
}

func (c *cell) rows(ctx context.Context, query string) (out []history.Pending, err error) {
	rows, err := c.looks.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var p history.Pending
		if err := rows.Scan(&p.Slot, &p.Pos, &p.Seq, &p.Topic, &p.ID); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, rows.Err()
}

const (
	// busiest is how many calls of one server a process may make in a second of virtual time, several seconds on end. A loop
	// that fails or finds nothing, and does not pause, makes more: 2000 where a call takes 1 ms, as each counts twice. What all
	// processes do together grows with their number and the load.
	busiest = 1500
	// busyFor is how many seconds on end it takes to be called a spin: work comes in bursts.
	busyFor = 5
)

// watchCalls looks for loops that spin, until ctx ends. The pace of who lists is the simulator's own: see walk.
func (w *world) watchCalls(ctx context.Context) {
	type caller struct {
		of   *server
		name string
	}
	type count struct{ last, busy int }
	most := busiest
	if w.forgets || w.column < maxBlob || w.madeUp > 0 || w.tenant.attacks() { // thousands of requests, or hundreds of topics, at one instant are work
		most *= 4
	}
	if len(w.growth) > 0 || w.several > 0 { // splits and moves go in steps of a few tasks
		most *= 2
	}
	counts := map[caller]*count{}
	for pause(ctx, time.Second) == nil {
		for _, s := range w.servers() {
			for name, all := range s.callers() {
				if name == lister {
					continue
				}
				c := counts[caller{s, name}]
				if c == nil {
					c = &count{}
					counts[caller{s, name}] = c
				}
				w.busiest = max(w.busiest, all-c.last)
				if all-c.last <= most {
					c.busy = -1
				}
				if c.busy++; c.busy == busyFor {
					w.find("spin", "%s called the %s %d times in a second, and %d seconds on end as often", name, s.name, all-c.last, busyFor)
				}
				c.last = all
			}
		}
	}
}

// ahead is how far ahead slots are claimed at most, in ms.
func (w *world) ahead() int64 {
	return max(w.dispatcher.LookAhead, w.dispatcher.BurstLookAhead).Milliseconds()
}

// judge holds the history against the invariants.
func (w *world) judge(h *history.History) (linear, undecided int) {
	back, ahead := w.stepsBack.Milliseconds(), w.ahead()
	bounds := check.Bounds{
		Window: 3000 + ahead + 2*back, // a retry goes behind what is claimed; and time that is set back passes twice
		Ahead:  1000 + ahead + back,
		Clock:  back,
		Late:   1000 + ahead,
	}
	if w.hush != hushNone { // it may have been asked just before it answered; it is asked again within 47 s, and then calls back what waits
		bounds.Recovery = 70_000
	}
	if w.recalls > 0 {
		bounds.Recovery = 70_000 + w.recalls.Milliseconds()
	}
	result := check.Run(h, bounds)
	w.findings = append(w.findings, result.Findings...)
	return result.Figures.Linear, result.Figures.Undecided
}
