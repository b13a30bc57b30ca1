package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// fetchQueue holds claimed tasks whose bodies are not read yet, by lane. Targets take turns, so that a flood on one delays
// only itself; within a target, classes share by weight, so that fresh work goes first and nothing starves; within a class
// they go by their time, whatever a long look-ahead has brought before.
type fetchQueue struct {
	targets map[uint32]*fetchTarget
	ring    []*fetchTarget // targets with something queued, the next in turn first
	size    int
}

type fetchTarget struct {
	classes [task.Classes]dueHeap
	left    [task.Classes]int // of the weights, in this turn
	size    int
}

// weights of high, normal, low and retried: how many of each a turn may take.
var weights = [task.Classes]int{256, 128, 32, 16}

func newFetchQueue() fetchQueue { return fetchQueue{targets: map[uint32]*fetchTarget{}} }

func (q *fetchQueue) push(t *claimedTask) {
	key := t.lane.Target()
	ft := q.targets[key]
	if ft == nil {
		ft = &fetchTarget{left: weights}
		q.targets[key] = ft
		q.ring = append(q.ring, ft)
	} else if ft.size == 0 {
		q.ring = append(q.ring, ft)
	}
	ft.classes[min(t.lane.Class(), task.Classes-1)].push(t)
	ft.size++
	q.size++
}

// take removes at most n tasks, turn by turn; only such as are to be released at until or before. A target that n cuts short gives
// its place away all the same, and goes on with the rest of its weights when it comes around: under load n is small, and would
// otherwise be the most urgent class's alone.
func (q *fetchQueue) take(n int, until int64) []*claimedTask {
	out := make([]*claimedTask, 0, min(n, q.size))
	// A turn may give nothing since its weights are used up: then the next one gives what there is.
	for idle := 0; len(out) < n && idle < 2*len(q.ring); {
		ft := q.ring[0]
		q.ring = q.ring[1:]
		before := len(out)
		for class := range ft.classes {
			tasks := &ft.classes[class]
			for ft.left[class] > 0 && len(out) < n && len(*tasks) > 0 && (*tasks)[0].at <= until {
				out = append(out, tasks.pop())
				ft.left[class]--
			}
		}
		if idle++; len(out) > before {
			idle = 0
			ft.size -= len(out) - before
		}
		if len(out) < n {
			ft.left = weights
		}
		if ft.size > 0 {
			q.ring = append(q.ring, ft)
		}
	}
	q.size -= len(out)
	if q.size == 0 {
		*q = newFetchQueue() // names of targets that are no more must not pile up
	}
	return out
}

// first is the earliest time at which one of the tasks is to be released; never: there is none.
func (q *fetchQueue) first() int64 {
	at := int64(never)
	for _, ft := range q.ring {
		for _, class := range ft.classes {
			if len(class) > 0 {
				at = min(at, class[0].at)
			}
		}
	}
	return at
}

// fetchTasks bounds one read of bodies: enough to spread the cost of a statement, short enough for the first of them, and
// no more than the store reads at a time.
const fetchTasks = 900

// fetchLoop reads bodies while there is room for them, notes the intents, and stages the tasks.
func (d *Dispatcher) fetchLoop(ctx context.Context) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	for ctx.Err() == nil {
		batch, bytes, wait := d.nextFetch()
		if len(batch) > 0 {
			d.fetch(ctx, batch, bytes)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-d.fetchKick: // something was claimed, or has left memory
		case <-timer.C: // something has come to be due
		}
	}
}

// nextFetch answers tasks to read and how many bytes of bodies there is room for, or after which time to ask again. What is due is
// asked of the clock here, not when a task was claimed: with little room left, tasks that were claimed ahead and are due by now
// go in the order of their time with those that came late.
func (d *Dispatcher) nextFetch() ([]*claimedTask, int, time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.giveWay()
	for {
		room, bytes := d.staging.room()
		if room <= 0 || bytes <= 0 || len(d.unread) == 0 && d.fetching.size == 0 {
			return nil, 0, time.Second
		}
		until := int64(never)
		if d.staging.scarce() {
			until = d.clock.Millis() + lead.Milliseconds()
		}
		var batch []*claimedTask
		if n := min(len(d.unread), d.bite, room); n > 0 {
			batch, d.unread = d.unread[:n:n], d.unread[n:]
		} else if batch = d.fetching.take(min(room, fetchTasks), until); len(batch) == 0 {
			wait := time.Duration(min(d.fetching.first()-until, 1000)) * time.Millisecond
			return nil, 0, max(wait, time.Millisecond)
		}
		again := false
		batch = slices.DeleteFunc(batch, func(t *claimedTask) bool {
			if t.slot.abandoned {
				return true
			}
			parks := d.parksAgain(t)
			again = again || parks
			return parks
		})
		if len(batch) > 0 || again { // there may be many: others get the lock in between
			return batch, bytes, 0
		}
	}
}

// fetch reads the bodies of a batch and notes their intents, again and again until it is done: these tasks are claimed.
func (d *Dispatcher) fetch(ctx context.Context, batch []*claimedTask, bytes int) {
	began := time.Now()
	bySeq := make(map[int64]*claimedTask, len(batch))
	seqs := make([]int64, len(batch))
	for i, t := range batch {
		bySeq[t.seq], seqs[i] = t, t.seq
	}
	var rows []task.Task
	var rest []int64
	d.until(ctx, "reading task bodies", func(ctx context.Context) (err error) { rows, rest, err = d.store.Tasks(ctx, seqs, bytes); return err })
	if ctx.Err() != nil {
		return
	}
	if len(rest) > 0 { // no room for their bodies yet
		rows = d.putBack(bySeq, rows, rest)
	}
	d.metrics.bodies.Add(float64(len(rows)))
	rows = d.stillThere(bySeq, rows)
	ready := make([]*claimedTask, 0, len(rows))
	contents := make([]content, len(rows)) // one allocation for all
	intents := make([]sendlog.Intent, 0, len(rows))
	for i := range rows {
		t := bySeq[rows[i].Seq]
		t.content = &contents[i]
		if err := d.prepare(ctx, t, &rows[i]); err != nil {
			d.deadLetter(t, schemas.KindUndeliverable, "its stored body cannot be read: "+err.Error())
			continue
		}
		ready = append(ready, t)
	}
	ready = d.parkUnsent(ready)
	for _, t := range ready {
		if t.record != nil {
			intents = append(intents, sendlog.Intent{Seq: uint64(t.seq), Attempt: t.sending(), Slot: int32(t.slot.number), Epoch: t.slot.epoch,
				Due: t.due, Topic: t.topic, ID: t.id, BodyHash: xxhash.Sum64(t.body)})
		}
	}
	d.until(ctx, "noting intents in the send log", func(ctx context.Context) error {
		if err := d.sent.AppendIntents(ctx, intents); err != nil {
			return err
		}
		return faultpoint.At(faultpoint.DispatcherLogged)
	})
	if ctx.Err() != nil {
		return
	}
	d.metrics.fetchTime.Observe(time.Since(began).Seconds())
	d.lost(bySeq, rows)
	d.stage(ready)
}

// putBack keeps of the rows that were read those that come before every task that was not: one key's tasks must not
// overtake each other here. The others are read again, in smaller bites, so that in the end the first of them fits.
func (d *Dispatcher) putBack(bySeq map[int64]*claimedTask, rows []task.Task, rest []int64) []task.Task {
	order := func(a, b *claimedTask) int { return cmp.Or(cmp.Compare(a.pos, b.pos), cmp.Compare(a.seq, b.seq)) }
	unread := make([]*claimedTask, len(rest), len(bySeq))
	for i, seq := range rest {
		unread[i] = bySeq[seq]
	}
	first := slices.MinFunc(unread, order)
	bite := max(len(rows)/2, 1)
	rows = slices.DeleteFunc(rows, func(row task.Task) bool {
		t := bySeq[row.Seq]
		late := order(t, first) > 0
		if late {
			unread = append(unread, t)
		}
		return late
	})
	for _, t := range unread {
		delete(bySeq, t.seq)
	}
	slices.SortFunc(unread, order)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unread, d.bite = append(unread, d.unread...), bite
	return rows
}

// stillThere leaves out tasks that do not stand any more where they were claimed: a late answer to an earlier sending has ended or moved
// them after the claim was read and before they entered. To send one now would deliver it twice.
func (d *Dispatcher) stillThere(bySeq map[int64]*claimedTask, rows []task.Task) []task.Task {
	return slices.DeleteFunc(rows, func(row task.Task) bool {
		t := bySeq[row.Seq]
		if row.Slot == t.slot.number && row.Pos == t.pos {
			return false
		}
		delete(bySeq, row.Seq)
		d.mu.Lock()
		defer d.mu.Unlock()
		t.status = left
		d.proofs.forget(t.seq)
		d.settleKick.now()
		return true
	})
}

// lost handles claimed tasks whose rows are gone. Nobody may do that, short of a hand in the database: they cannot be sent,
// and must not hold up their line.
func (d *Dispatcher) lost(bySeq map[int64]*claimedTask, rows []task.Task) {
	for i := range rows {
		delete(bySeq, rows[i].Seq)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range bySeq {
		t.status = left
		d.proofs.forget(t.seq)
		d.log.Error("a claimed task has no row", zap.Int64("seq", t.seq), zap.Int("slot", t.slot.number), zap.Bool("abandoned", t.slot.abandoned))
	}
}

// until runs f, each time within a bound, until it succeeds or ctx ends. A broken send log stays broken: the dispatcher
// ends, and another takes its slots.
func (d *Dispatcher) until(ctx context.Context, what string, f func(context.Context) error) {
	const bound = 30 * time.Second
	for failures := 1; ctx.Err() == nil; failures++ {
		try, cancel := context.WithTimeout(ctx, bound)
		err := f(try)
		cancel()
		if err == nil {
			return
		}
		d.metrics.retries.Inc()
		if errors.Is(err, sendlog.ErrBroken) {
			d.fail(fmt.Errorf("%s: %w", what, err))
			<-ctx.Done()
			return
		}
		if ctx.Err() == nil {
			d.log.Warn("trying again", zap.String("doing", what), zap.Error(err))
		}
		sleep(ctx, pauseAfter(failures))
	}
}

// prepare makes the record of a task, whole but for the instant at which it is sent.
func (d *Dispatcher) prepare(ctx context.Context, t *claimedTask, row *task.Task) error {
	t.topic, t.id, t.due, t.attempt, t.replay, t.state = row.Topic, row.ID, row.Due, row.Attempt, row.Replay, row.State
	t.body, t.size = row.Body, len(row.Body)+500
	body, err := schemas.DecodeBody(row.Body)
	if err != nil {
		return err
	}
	t.settings = body.Settings
	t.at = t.due
	if t.attempt > 0 {
		t.at = t.pos
	}
	if t.state == task.StateReport {
		t.at += d.transit().Milliseconds()
		return nil // nothing to send: its report is missing
	}
	key, err := d.sources.deliveryKey(ctx, row.Seq, int(t.sending()))
	if err != nil {
		return err
	}
	headers := make([]kgo.RecordHeader, len(body.Headers), len(body.Headers)+5)
	copy(headers, body.Headers)
	t.record = &kgo.Record{Topic: row.Topic, Key: body.Key, Value: body.Value, Headers: schemas.AppendDelivery(headers, schemas.Delivery{
		ID: row.ID, Due: row.Due, Attempt: t.attempt + 1, Key: key, Replay: row.Replay,
	})}
	return nil
}

// stage puts tasks with bodies before the release loop.
func (d *Dispatcher) stage(ready []*claimedTask) {
	now := d.clock.Millis()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range ready {
		if t.slot.abandoned {
			continue
		}
		t.status = staged
		if t.at < now {
			d.metrics.stagedLate.Inc()
		}
		d.staging.add(t)
		if done, ok := d.proofs.take(t.seq, t.sending()); ok && t.doubt && t.record != nil {
			d.metrics.proven.Inc()
			d.outcomes = append(d.outcomes, outcome{task: t, at: done.At, known: true})
			d.settleKick.now()
			continue
		}
		d.due.push(t)
	}
	d.releaseKick.now()
}

// unstage forgets what staging held, if it still holds it. mu is held.
func (d *Dispatcher) unstage(t *claimedTask) {
	if d.staging.remove(t) {
		t.record, t.body = nil, nil
		d.fetchKick.now()
	}
}

// sources answers idempotency keys from intake positions.
type sources struct {
	store *store.Store
	known map[int]store.Source
}

func (s *sources) deliveryKey(ctx context.Context, seq int64, attempt int) (string, error) {
	src, offset := task.SplitSeq(seq)
	known, ok := s.known[src]
	for failures := 1; !ok; failures++ {
		all, err := s.store.Sources(ctx)
		if err == nil {
			s.known = make(map[int]store.Source, len(all))
			for _, a := range all {
				s.known[a.ID] = a
			}
			if known, ok = s.known[src]; !ok {
				return "", store.ErrNotFound
			}
			break
		}
		if sleep(ctx, pauseAfter(failures)); ctx.Err() != nil {
			return "", err
		}
	}
	return known.DeliveryKey(offset, attempt), nil
}

// dueHeap orders staged tasks by the instant of their release; those of one instant by class and then as they came.
type dueHeap []*claimedTask

func (h dueHeap) less(a, b *claimedTask) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	if ac, bc := a.lane.Class(), b.lane.Class(); ac != bc {
		return ac < bc
	}
	return a.seq < b.seq
}

func (h *dueHeap) push(t *claimedTask) {
	*h = append(*h, t)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.less(s[i], s[up]) {
			break
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *dueHeap) pop() *claimedTask {
	s := *h
	top, last := s[0], len(s)-1
	s[0], s[last] = s[last], nil
	s = s[:last]
	for i := 0; ; {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < last && h.less(s[c], s[least]) {
				least = c
			}
		}
		if least == i {
			break
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
	*h = s
	return top
}

// untilDue is how long until the first staged task is due; at most a second. mu is held.
func (h dueHeap) untilDue(now time.Time) time.Duration {
	if len(h) == 0 {
		return time.Second
	}
	// Aim at the start of the due millisecond.
	return min(max(time.UnixMilli(h[0].at).Sub(now), 0), time.Second)
}
