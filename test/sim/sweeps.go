package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/test/recordtest"
)

// sweepSeeds is the first seed in which many tasks are cancelled by a filter: what earlier seeds draw stays as it is.
const sweepSeeds = 15 << 48

// sweptTopic is the target of tasks that are cancelled by filters. Its records are judged here, and not by the fault runs' checker.
const sweptTopic = "swept"

// decidedAnew is how soon after a set-back all is read again and decided: slots are unsure for a while, and cancels come later then.
const decidedAnew = 15 * time.Second

// sweeps are the tasks of a world that filters select, or do not, and the cancels of many.
type sweeps struct {
	begin  time.Time
	asking sync.WaitGroup
	mu     sync.Mutex
	asked  map[string][]*sweptTask // by id, in the order of the intake
	made   []sweep
}

// sweptTask is a request for a task.
type sweptTask struct {
	n         int
	id, tag   string
	due       int64
	sent      time.Time
	scheduled int64 // when that was told: it is stored since then at the latest; 0: never
	delivered bool
	cancelled bool
	tooLate   int64 // when that was told; 0: never
	one       bool  // a cancel of this id alone was sent
}

// sweep is a cancel of many, from its call to its return.
type sweep struct {
	filter         api.CancelMany
	call, returned time.Time
}

func (s *sweep) selects(q *sweptTask) bool {
	return strings.HasPrefix(q.id, s.filter.IDPrefix) && (s.filter.Tag == "" || s.filter.Tag == q.tag) &&
		q.due >= s.filter.From.Millis() && (s.filter.To == (api.Instant{}) || q.due < s.filter.To.Millis())
}

// drawSweeps draws how often many tasks are cancelled, and how many by one record. Requests that are rejected at a quota have no end that is
// told here. The events of these tasks would be too many for a results topic that is silent.
func (p *plan) drawSweeps() {
	if r := rand.New(rand.NewPCG(p.seed, 401)); !p.quota.Reject && !p.forgets && !p.silent && p.hush == hushNone {
		p.sweeps = 1 + r.IntN(6)
		p.cancels = api.CancelsConfig{Tasks: pick(r, 1, 3, 10, 500), Ahead: pick(r, 1, 2, 4)}
	}
}

// sweep sends the requests for the tasks, some of them just when tasks are cancelled, and cancels as a process of its own.
func (w *world) sweep(begin time.Time) {
	if w.sweeps == 0 {
		return
	}
	w.swept.begin, w.swept.asked = begin, map[string][]*sweptTask{}
	r := rand.New(rand.NewPCG(w.seed, 409))
	at := make([]time.Duration, w.sweeps)
	for i := range at {
		at[i] = time.Duration(r.Int64N(int64(w.load)))
		f := api.CancelMany{Topic: sweptTopic, Tag: pick(r, "go", "go", "")}
		if f.Tag == "" {
			f.IDPrefix, f.Topic = "all-1", pick(r, sweptTopic, "")
		} else if r.IntN(3) == 0 {
			from := begin.UnixMilli() + r.Int64N(w.load.Milliseconds())
			f.From, f.To = api.At(from), api.At(from+1+r.Int64N(w.longest))
		}
		w.swept.asking.Go(func() {
			time.Sleep(time.Until(begin.Add(at[i])))
			w.cancelMany(f)
		})
	}
	n := 0
	for i := range 5 + r.IntN(60) {
		id, when := fmt.Sprint("all-", i), begin.Add(time.Duration(r.Int64N(int64(w.load))))
		single := r.IntN(6) == 0
		var all []*sweptTask
		for range 1 + r.IntN(4) {
			n++
			q := &sweptTask{n: n, id: id, tag: pick(r, "go", "stay"), sent: when, due: when.UnixMilli() + 1 + r.Int64N(w.longest), one: single}
			if before := len(all); before > 0 && q.due <= all[before-1].due {
				q.due = all[before-1].due + 1 // each has one of its own, so that an answer names a request
			}
			all = append(all, q)
			if when = when.Add(time.Duration(r.Int64N(2000)) * time.Millisecond); r.IntN(2) == 0 {
				if aimed := begin.Add(at[r.IntN(len(at))]).Add(time.Duration(r.IntN(20)-10) * time.Millisecond); aimed.After(q.sent) {
					when = aimed
				}
			}
		}
		w.swept.asked[id] = all
		w.swept.asking.Go(func() {
			for _, q := range all {
				time.Sleep(time.Until(q.sent))
				w.askSwept(q.id, strconv.Itoa(q.n), schemas.HeaderAt, strconv.FormatInt(q.due, 10), schemas.HeaderTag, q.tag, schemas.HeaderEvents, "all")
			}
			if single {
				time.Sleep(time.Until(when))
				w.askSwept(id, "", schemas.HeaderOp, "cancel")
			}
		})
	}
}

func (w *world) askSwept(id, value string, pairs ...string) {
	r := &kgo.Record{Topic: schemas.TopicIntake, Key: []byte(id), Value: []byte(value), Headers: recordtest.Headers(append(pairs, schemas.HeaderTopic, sweptTopic, schemas.HeaderID, id)...)}
	w.client.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
		if err != nil {
			w.find("sim", "Kafka did not take a request about a task to be cancelled by a filter: %v", err)
		}
	})
}

// cancelMany cancels as the API does. A request whose answer is lost is repeated.
func (w *world) cancelMany(f api.CancelMany) {
	ctx, p := context.Background(), newProcess("canceller")
	st, err := store.Open(ctx, store.Config{Connector: w.db.of(p), MaxConns: 2, Clock: w.db.clock, Life: lifeOf}, zap.NewNop())
	if err != nil {
		w.note("nothing is cancelled by %+v: %v", f, err)
		return
	}
	defer func() { _ = st.Close() }()
	local := api.NewLocal(st, nil)
	local.Cancels.Tasks, local.Cancels.Ahead = w.cancels.Tasks, w.cancels.Ahead
	local.Cancels.Kafka = func(context.Context) (*kgo.Client, error) { return w.client, nil }
	s := sweep{filter: f, call: time.Now()}
	w.note("tasks are cancelled by %+v", f)
	for cancelled, tooLate := int64(0), int64(0); ; {
		done, err := local.CancelMany(ctx, f)
		cancelled, tooLate = cancelled+done.Cancelled, tooLate+done.TooLate
		if err != nil {
			w.note("cancelling by %+v: %v", f, err)
			time.Sleep(time.Second)
			continue
		}
		if f.Cursor = done.Cursor; f.Cursor == "" {
			w.note("%d tasks were cancelled by %+v, and it was too late for %d", cancelled, f, tooLate)
			break
		}
	}
	s.returned = time.Now()
	w.swept.mu.Lock()
	defer w.swept.mu.Unlock()
	w.swept.made = append(w.swept.made, s)
}

// isSwept tells whether a record is about a task that filters may select.
func isSwept(r *kgo.Record) bool {
	if r.Topic == schemas.TopicResults {
		e, err := schemas.DecodeEvent(r)
		return err == nil && e.Topic == sweptTopic
	}
	if r.Topic != schemas.TopicIntake {
		return r.Topic == sweptTopic
	}
	for _, h := range r.Headers {
		if h.Key == schemas.HeaderTopic && string(h.Value) == sweptTopic {
			return true
		}
	}
	return false
}

// collectSwept reads what came of the tasks.
func (w *world) collectSwept() {
	find := func(id string, which func(q *sweptTask) bool, what string) *sweptTask {
		for _, q := range w.swept.asked[id] {
			if which(q) {
				return q
			}
		}
		w.find("sweeps", "%s: %s is about no request", id, what)
		return &sweptTask{}
	}
	for _, a := range w.seen.all() {
		switch {
		case !isSwept(a.r) || a.r.Topic == schemas.TopicIntake:
		case a.r.Topic == sweptTopic:
			d, _, err := schemas.ParseDelivery(a.r)
			if err != nil {
				w.find("sweeps", "a delivery cannot be read: %v", err)
				continue
			}
			q := find(d.ID, func(q *sweptTask) bool { return strconv.Itoa(q.n) == string(a.r.Value) }, "a delivery")
			q.delivered = true
			if d.Tag != q.tag || d.Due != q.due {
				w.find("I3", "%s was delivered with the tag %s, due %d, not %s, %d", d.ID, d.Tag, d.Due, q.tag, q.due)
			}
		default:
			e, _ := schemas.DecodeEvent(a.r)
			if e.State == schemas.StateNotFound {
				continue
			}
			q := find(e.ID, func(q *sweptTask) bool { return q.due == e.Due }, "an answer: "+string(e.State))
			switch e.State {
			case schemas.StateScheduled:
				q.scheduled = a.at
			case schemas.StateCancelled:
				q.cancelled = true
			case schemas.StateTooLate:
				q.tooLate = a.at
			case schemas.StateDispatched, schemas.StateSucceeded:
			default:
				w.find("sweeps", "%s was answered %s: %s", e.ID, e.State, e.Reason)
			}
		}
	}
}

// forgot says that the database has forgotten what was told at an instant.
func (w *world) forgot(at int64) bool {
	from := w.swept.begin.Add(w.setback.from)
	return w.setback.lost > 0 && at >= from.UnixMilli() && at <= from.Add(w.setback.lost).UnixMilli()
}

// judgeSweeps: each task is delivered, or cancelled by whom it was to be, or replaced. All that a filter selects is cancelled, unless it is due
// or asked about meanwhile.
func (w *world) judgeSweeps() {
	if w.sweeps == 0 {
		return
	}
	w.collectSwept()
	within := max(w.dispatcher.LookAhead, w.dispatcher.BurstLookAhead) + time.Second + 2*w.stepsBack
	forgets := w.swept.begin.Add(w.setback.from)
	anew := forgets.Add(w.setback.lost + decidedAnew) // what was decided before a set-back is decided again
	if w.setback.lost == 0 {
		anew = time.Time{}
	}
	for id, all := range w.swept.asked {
		for i, q := range all {
			meant := q.one
			for _, s := range w.swept.made {
				meant = meant || s.selects(q)
				alone := i+1 == len(all) && !q.one || i+1 < len(all) && all[i+1].sent.After(s.returned)
				early := q.scheduled > 0 && q.scheduled < s.call.UnixMilli() // the broker's time is cut to milliseconds
				if s.call.Before(anew) && s.returned.After(forgets) {
					continue // it may not see what the database has forgotten
				}
				if s.selects(q) && early && alone && time.UnixMilli(q.due).After(s.returned.Add(within)) && !q.cancelled {
					w.find("sweeps", "%s, due %d, was there before a cancel of all that it is one of, and is not cancelled", id, q.due)
				}
			}
			switch {
			case q.cancelled && (q.delivered || q.tooLate > 0) && time.UnixMilli(q.due).Before(anew):
			case q.cancelled && q.delivered && w.kept.doubts[name{sweptTopic, id}] == q.due: // it was claimed in the backup, and given back unsent since
			case q.cancelled && q.delivered:
				w.find("I5", "%s, due %d, was answered cancelled, and delivered", id, q.due)
			case q.cancelled && !meant:
				w.find("sweeps", "%s, due %d, was cancelled, and nobody had asked for it", id, q.due)
			case q.tooLate > 0 && !q.delivered && i+1 < len(all) && w.forgot(q.tooLate): // with the claim, so a request behind it replaced the task
			case q.tooLate > 0 && !q.delivered:
				w.find("I5", "%s, due %d, was answered too_late, and not delivered", id, q.due)
			case !q.cancelled && !q.delivered && i+1 == len(all):
				w.find("I1", "%s, due %d, was neither delivered nor cancelled", id, q.due)
			}
		}
	}
}
