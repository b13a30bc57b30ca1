package sim

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/chaos/history"
	"github.com/notyet/notyet/test/lettertest"
)

// observer reads all topics as they grow. It notes when the broker had each record: kfake knows no LogAppendTime.
type observer struct {
	w      *world
	client *kgo.Client
	done   chan struct{}
	mu     sync.Mutex
	seen   []arrival
}

type arrival struct {
	at int64
	r  *kgo.Record
}

func (w *world) observe() *observer {
	visible := kgo.ReadUncommitted()
	if w.edges.gaps > 0 {
		visible = kgo.ReadCommitted()
	}
	c, err := kafka.New(kafka.Config{Dial: w.network.DialContext}, zap.NewNop(), kgo.ConsumeTopics(append(w.targets(), schemas.TopicIntake, schemas.TopicReports, schemas.TopicResults)...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(visible), kgo.FetchMaxWait(30*time.Second), kgo.FetchMaxBytes(64<<20), kgo.MetadataMaxAge(time.Hour))
	if err != nil {
		panic(err) // it depends on nothing
	}
	o := &observer{w: w, client: c, done: make(chan struct{})}
	go o.run()
	return o
}

func (o *observer) run() {
	defer close(o.done)
	for {
		fetches := o.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		at := time.Now().UnixMilli()
		fetches.EachRecord(func(r *kgo.Record) {
			o.mu.Lock()
			known := o.known(r)
			if !known {
				o.seen = append(o.seen, arrival{at, r})
			}
			o.mu.Unlock()
			switch r.Topic {
			case ackTopic:
				o.w.report(r)
			case tickTopic:
				o.w.reportTick(r)
			case replayedTopic:
				o.w.reportReplayed(r)
			}
		})
	}
}

// all is what has come, without what was written from a copy of the database: see rehearsal.go.
func (o *observer) all() []arrival {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(o.seen), func(a arrival) bool { return o.w.bySecond(a.r) })
}

func (o *observer) close() {
	o.client.Close()
	<-o.done
}

// history is all that can be known of the run by now.
func (w *world) history(begin, end time.Time) *history.History {
	h := w.rec.History()
	h.Run = history.Run{Seed: w.seed, Intake: schemas.TopicIntake, Slots: w.slots, Session: w.session.Milliseconds(), Start: begin.UnixMilli(), End: end.UnixMilli(), Retention: w.dispatcher.Retention.Milliseconds()}
	ops := make(map[int64]*history.Op, len(h.Ops))
	for i := range h.Ops {
		ops[h.Ops[i].N] = &h.Ops[i]
	}
	for _, a := range w.seen.all() {
		w.place(h, ops, a)
	}
	if w.quota.Reject || w.quota.UnknownTargets > 0 {
		w.markRejected(h)
	}
	var dead []task.DeadLetter
	for _, c := range w.cells {
		some, err := lettertest.All(context.Background(), letters.New(c.admin), letters.Filter{Limit: 100_000})
		if err != nil {
			w.find("sim", "reading the dead letters: %v", err)
		}
		dead = append(dead, some...)
	}
	for _, d := range dead {
		if isOrigin(d.Topic) || d.Topic == strangerIntake || d.Topic == replayedTopic || isTenants(d.TaskID) {
			continue
		}
		h.Letters = append(h.Letters, history.Letter{Topic: d.Topic, ID: d.TaskID, Kind: d.Kind, Reason: d.Reason, Attempt: d.Attempt, DiedAt: d.DiedAt})
	}
	for _, n := range w.nodes {
		if !n.scans {
			if err := h.ReadSendLog(context.Background(), n.name, n.sendlog(), 0, zap.NewNop()); err != nil {
				w.find("sim", "%v", err)
			}
		}
	}
	h.ForgetSent(func(topic string) bool {
		return isOrigin(topic) || isTenants(topic) || topic == sweptTopic || topic == replayedTopic
	})
	h.Sent = slices.DeleteFunc(h.Sent, func(s history.Sent) bool {
		source, _ := task.SplitSeq(s.Seq)
		return task.IsRunSource(source)
	})
	return h
}

func (w *world) place(h *history.History, ops map[int64]*history.Op, a arrival) {
	r := a.r
	if isTick(r) || isCall(r) || isSwept(r) || isReplayed(r) {
		return
	}
	switch r.Topic {
	case schemas.TopicIntake:
		o := ops[requestOf(r.Value)]
		if o == nil || o.Accepted != 0 {
			w.find("sim", "%s/%d/%d is of nobody, or a second copy", r.Topic, r.Partition, r.Offset)
			return
		}
		o.Partition, o.Offset, o.Accepted = r.Partition, r.Offset, r.Timestamp.UnixMilli()
	case schemas.TopicReports:
		rep, err := schemas.DecodeReport(r)
		if isUnreadable(r) {
			return
		}
		if err != nil {
			w.find("sim", "reading a report: %v", err)
			return
		}
		after := int64(-1)
		if rep.RetryAfter >= 0 {
			after = rep.RetryAfter.Milliseconds()
		}
		h.Reports = append(h.Reports, history.Report{Topic: rep.Topic, ID: rep.ID, Attempt: rep.Attempt, Status: rep.Status.String(), RetryAfter: after, At: a.at, Delivery: rep.Delivery})
	case schemas.TopicResults:
		e, err := schemas.DecodeEvent(r)
		if err != nil {
			w.find("schema", "reading an event: %v", err)
			return
		}
		if slices.Contains(answerStates, e.State) && e.Kind != schemas.KindReport && e.Request == "" {
			w.find("answers", "%s/%s: %s does not name its request", e.Topic, e.ID, e.State)
		}
		if isStrange(e.Request) || isTenants(e.ID) || e.Kind == schemas.KindReport { // see judgeUnreadable
			return
		}
		h.Events = append(h.Events, history.Event{Topic: e.Topic, ID: e.ID, State: string(e.State), Due: e.Due, At: a.at, Attempt: e.Attempt, Decided: e.At, Request: e.Request})
	default:
		d, rest, err := schemas.ParseDelivery(r)
		if err != nil {
			w.find("I3", "%s/%d/%d: %v", r.Topic, r.Partition, r.Offset, err)
			return
		}
		if op := lastRequestOf(r.Value); op > 0 && d.Tag != tagsOf(op) {
			w.find("I3", "%s/%d/%d has the tags %q, and its request %d had %q", r.Topic, r.Partition, r.Offset, d.Tag, op, tagsOf(op))
		}
		all, combined := requestsIn(r.Value)
		if !combined {
			all = nil
		}
		h.Deliveries = append(h.Deliveries, history.Delivery{Op: lastRequestOf(r.Value), Merged: all, Topic: r.Topic, ID: d.ID, Key: d.Key, Attempt: d.Attempt, Replay: d.Replay, Due: d.Due, At: a.at,
			Partition: r.Partition, Offset: r.Offset, Hash: hashOf(r, rest, combined)})
	}
}

// answerStates are those that nothing but a request brings about.
var answerStates = []schemas.State{
	schemas.StateScheduled, schemas.StateMerged, schemas.StateKept, schemas.StateStale, schemas.StateRejected, schemas.StateNotFound, schemas.StateFired,
	schemas.StateTimerSet, schemas.StateTimerEnabled, schemas.StateTimerDeleted,
}

// sample notes the slots as the database has them, and how much is held, until ctx ends.
func (w *world) sample(ctx context.Context) {
	last := map[int]history.SlotSample{}
	for pause(ctx, 500*time.Millisecond) == nil {
		slots, err := w.admin.Slots(ctx)
		if err != nil {
			continue
		}
		for _, s := range slots {
			now := history.SlotSample{Slot: s.Slot, Epoch: s.Epoch, Owner: s.Owner, Claimed: s.Claimed, Done: s.Done}
			if s.GivenUp() { // soon it is gone, or made anew
				now = history.SlotSample{Slot: s.Slot, Gone: true}
			}
			if now != last[s.Slot] {
				last[s.Slot] = now
				now.At = time.Now().UnixMilli()
				w.rec.Slot(now)
			}
		}
		w.sampleOffsets(ctx)
		w.noteHeld()
	}
}

// sampleOffsets notes how far Kafka, and after that the database, has the intake.
func (w *world) sampleOffsets(ctx context.Context) {
	committed := w.committed(ctx)
	sources, err := intake.New(w.admin).Sources(ctx)
	if err != nil {
		return
	}
	if w.setback.lost > 0 || w.forgetful.lost > 0 || w.logCut.yes { // Kafka has more, rightly
		return
	}
	for _, s := range sources {
		c, _ := committed.Lookup(s.Topic, s.Partition)
		w.rec.Offset(history.OffsetSample{At: time.Now().UnixMilli(), Topic: s.Topic, Partition: s.Partition, Committed: c.At, Stored: s.Next})
	}
}

// atRest is what the index and the database hold, with nothing under way.
func (w *world) atRest(ctx context.Context) (history.Rest, error) {
	r := history.Rest{Until: time.Now().Add(w.scanner.Window - min(5*time.Minute, w.scanner.Window/2)).UnixMilli()}
	if w.several > 0 {
		return w.allAtRest(ctx, r)
	}
	slots, err := w.admin.Slots(ctx)
	if err != nil {
		return r, err
	}
	ix, err := w.indexOf(nil, zap.NewNop())
	if err != nil {
		return r, err
	}
	defer ix.Close()
	rows, err := w.cells[0].rows(ctx, "SELECT t.slot, t.pos, t.seq, t.topic, t.id FROM tasks t JOIN slots s ON s.slot = t.slot WHERE t.pos > s.done")
	if err != nil {
		return r, err
	}
	r.Pending = rows
	if w.alone { // the database is the index
		for _, p := range rows {
			r.Index = append(r.Index, p.Entry)
		}
		return r, nil
	}
	for _, s := range slots {
		entries, err := ix.Range(ctx, s.Slot, -1<<52, 1<<52)
		if err != nil {
			return r, err
		}
		for _, e := range entries {
			r.Index = append(r.Index, history.Entry(e))
		}
	}
	return r, nil
}
