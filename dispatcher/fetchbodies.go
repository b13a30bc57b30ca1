package dispatcher

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// fetcher reads the bodies of claimed tasks while there is room for them, and hands them to the sender. Only its own loop uses it.
type fetcher struct {
	*shared
	flight   *inFlight
	backlog  *backlog
	parking  *parking
	policies *policies
	sender   *sender
	sent     *sendlog.Log
	sources  *sources
	tracer   *tracing.Tracer // nil: nobody is traced
}

func newFetcher(fl *inFlight, pk *parking, sd *sender, sent *sendlog.Log) *fetcher {
	return &fetcher{shared: fl.shared, flight: fl, backlog: fl.backlog, parking: pk, policies: pk.outlets.policies, sender: sd, sent: sent, sources: &sources{store: fl.store}}
}

// run reads bodies while there is room for them, notes the intents, and stages the tasks.
func (f *fetcher) run(ctx context.Context) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	for ctx.Err() == nil {
		batch, bytes, wait := f.nextFetch()
		if len(batch) > 0 {
			f.fetch(ctx, batch, bytes)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-f.kicks.fetch: // something was claimed, or has left memory
		case <-timer.C: // something has come to be due
		}
	}
}

// nextFetch returns tasks to read and how many bytes of bodies there is room for, or after which time to ask again. What is due is
// asked of the clock here, not when a task was claimed: with little room left, tasks that were claimed ahead and are due by now
// go in the order of their time with those that came late.
func (f *fetcher) nextFetch() ([]*claimedTask, int, time.Duration) {
	room, bytes, scarce := f.room()
	if room <= 0 || bytes <= 0 {
		return nil, 0, time.Second
	}
	until := int64(never)
	if scarce {
		until = f.clock.Millis() + lead.Milliseconds()
	}
	for {
		batch, wait := f.backlog.take(room, until)
		if len(batch) == 0 {
			return nil, 0, wait
		}
		batch, again := f.readable(batch)
		if len(batch) > 0 || again { // there may be many: others get the lock in between
			return batch, bytes, 0
		}
	}
}

// room makes some where it is scarce, and says how much there is. Only the fetch loop takes of it.
func (f *fetcher) room() (tasks, bytes int, scarce bool) {
	f.flight.mu.Lock()
	defer f.flight.mu.Unlock()
	f.parking.giveWay()
	tasks, bytes = f.flight.staging.room()
	return tasks, bytes, f.flight.staging.scarce()
}

// readable leaves out tasks whose slots are lost, and tasks that are held or put off without their bodies. aside says that some were
// held or put off.
func (f *fetcher) readable(batch []*claimedTask) (out []*claimedTask, aside bool) {
	f.flight.mu.Lock()
	defer f.flight.mu.Unlock()
	out = slices.DeleteFunc(batch, func(t *claimedTask) bool {
		if t.slot.abandoned {
			return true
		}
		goes := f.policies.diverts(t) || f.parking.parksAgain(t)
		aside = aside || goes
		return goes
	})
	return out, aside
}

// fetch reads the bodies of a batch and notes their intents, again and again until it is done: these tasks are claimed.
func (f *fetcher) fetch(ctx context.Context, batch []*claimedTask, bytes int) {
	began := time.Now()
	bySeq := make(map[int64]*claimedTask, len(batch))
	seqs := make([]int64, len(batch))
	for i, t := range batch {
		bySeq[t.seq], seqs[i] = t, t.seq
	}
	var rows []task.Task
	var rest []int64
	f.until(ctx, "reading task bodies", func(ctx context.Context) (err error) { rows, rest, err = f.store.Tasks(ctx, seqs, bytes); return err })
	if ctx.Err() != nil {
		return
	}
	if len(rest) > 0 { // no room for their bodies yet
		rows = f.putBack(bySeq, rows, rest)
	}
	f.metrics.bodies.Add(float64(len(rows)))
	f.until(ctx, "reading the sources of tasks", func(ctx context.Context) error { return f.sources.learn(ctx, rows) })
	if ctx.Err() != nil {
		return
	}
	rows = f.stillThere(bySeq, rows)
	ready := make([]*claimedTask, 0, len(rows))
	contents := make([]content, len(rows)) // one allocation for all
	for i := range rows {
		t := bySeq[rows[i].Seq]
		t.content = &contents[i]
		if err := f.prepare(t, &rows[i]); err != nil {
			f.flight.deadLetter(t, schemas.KindUndeliverable, "no record can be made of it: "+err.Error())
			continue
		}
		ready = append(ready, t)
	}
	ready = f.parking.parkUnsent(ready)
	f.noteIntents(ctx, ready)
	if ctx.Err() != nil {
		return
	}
	f.metrics.fetchTime.Observe(time.Since(began).Seconds())
	f.lost(bySeq, rows)
	f.stage(ready)
}

// putBack keeps of the rows that were read those that come before every task that was not: one key's tasks must not
// overtake each other here. The others are read again, in smaller bites, so that in the end the first of them fits.
func (f *fetcher) putBack(bySeq map[int64]*claimedTask, rows []task.Task, rest []int64) []task.Task {
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
	f.backlog.putBack(unread, bite)
	return rows
}

// lost handles claimed tasks whose rows are gone. Nobody may do that, short of a hand in the database: they cannot be sent,
// and must not hold up their slot.
func (f *fetcher) lost(bySeq map[int64]*claimedTask, rows []task.Task) {
	for i := range rows {
		delete(bySeq, rows[i].Seq)
	}
	f.flight.mu.Lock()
	defer f.flight.mu.Unlock()
	for _, t := range bySeq {
		t.status = left
		f.flight.proofs.forget(t.seq)
		f.log.Error("a claimed task has no row", zap.Int64("seq", t.seq), zap.Int("slot", t.slot.number), zap.Bool("abandoned", t.slot.abandoned))
	}
}

// prepare makes the record of a task, whole but for the instant at which it is sent.
func (f *fetcher) prepare(t *claimedTask, row *task.Task) error {
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
		t.at += f.cfg.transit().Milliseconds()
		return nil // nothing to send: its report is missing
	}
	key, err := f.sources.deliveryKey(row.Seq, int(t.sendNumber()))
	if err != nil {
		return err
	}
	d := schemas.Delivery{ID: row.ID, Due: row.Due, Attempt: t.attempt + 1, Key: key, Replay: row.Replay, Timer: body.Settings.Run.Timer}
	t.trace = newTraced(f.tracer.Caller(body.Headers), key)
	if c := body.Settings.Callback; c.URL != "" {
		t.record = &kgo.Record{Topic: row.Topic, Key: body.Key, Value: body.Value}
		t.call = &callback.Request{URL: c.URL, Method: c.Method, Body: body.Value, Headers: body.Headers, Delivery: d, Timeout: body.Settings.AckTimeout}
		return nil
	}
	headers := make([]kgo.RecordHeader, len(body.Headers), len(body.Headers)+6)
	copy(headers, body.Headers)
	t.record = &kgo.Record{Topic: row.Topic, Key: body.Key, Value: body.Value, Headers: schemas.AppendDelivery(headers, d)}
	return nil
}

// stage hands tasks with their bodies to the sender; those that the send log proves delivered, to the settler.
func (f *fetcher) stage(ready []*claimedTask) {
	now := f.clock.Millis()
	f.flight.mu.Lock()
	defer f.flight.mu.Unlock()
	for _, t := range ready {
		if t.slot.abandoned {
			continue
		}
		t.status = staged
		f.policies.keepsTurn(t)
		if t.at < now {
			f.metrics.stagedLate.Inc()
		}
		f.flight.staging.add(t)
		if at, ok := f.flight.proofs.take(t); ok && t.doubt && t.record != nil {
			f.metrics.proven.Inc()
			f.flight.unsettled.delivered(t)
			f.flight.inbox.concludes(outcome{task: t, at: at, known: true})
			f.kicks.settle.now()
			continue
		}
		f.sender.await(t)
	}
	f.kicks.release.now()
}

// stillThere leaves out tasks that do not stand any more where they were claimed: a late answer to an earlier sending has ended or moved
// them after the claim was read and before they entered. To send one now would deliver it twice.
func (f *fetcher) stillThere(bySeq map[int64]*claimedTask, rows []task.Task) []task.Task {
	return slices.DeleteFunc(rows, func(row task.Task) bool {
		t := bySeq[row.Seq]
		if row.Slot == t.slot.number && row.Pos == t.pos {
			return false
		}
		delete(bySeq, row.Seq)
		f.flight.mu.Lock()
		defer f.flight.mu.Unlock()
		t.status = left
		f.flight.proofs.forget(t.seq)
		f.kicks.settle.now()
		return true
	})
}
