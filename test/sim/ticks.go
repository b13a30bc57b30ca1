package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/timer"
)

// tickTopic is the target of timers. What is about it is judged here, and not by the fault runs' checker.
const tickTopic = "ticks"

// ticks are the timers of a world: what was asked about them, and what came of it.
type ticks struct {
	mu       sync.Mutex
	well     int64 // from then on there are no faults
	requests []*tickRequest
	answers  map[string]schemas.Event // by the position of the request
	missed   map[string]bool          // runs that were dropped, by id
	runs     map[string][]tickRun     // deliveries, by id
}

type tickRequest struct {
	id, op    string
	n         int // it is in the value of what a set delivers
	def       timer.Definition
	partition int32
	offset    int64
	accepted  int64

	ackTimeout int64 // ms; 0: its runs wait for no report
}

func (r *tickRequest) position() string {
	return schemas.DefaultID(schemas.TopicIntake, r.partition, r.offset)
}

type tickRun struct {
	at   int64
	d    schemas.Delivery
	set  string
	from time.Time // when it was handed to the producer
}

// tickDefinitions are timers; From is set when the request is accepted.
var tickDefinitions = []timer.Definition{
	{Every: time.Second}, {Every: 2500 * time.Millisecond}, {Cron: "* * * * * *"}, {Cron: "*/2 * * * * *"}, {Cron: "*/3 * * * * *", Jitter: 700 * time.Millisecond},
	{Every: 1300 * time.Millisecond, Jitter: 2 * time.Second}, {Cron: "*/4 * * * * *", Jitter: 15 * time.Second}, // replaced while runs wait for their jitter
}

// tick draws the life of each timer and sends its requests, each at its time. They are drawn on their own, so that what older seeds draw
// stays as it is.
func (w *world) tick(begin time.Time) {
	r, waits := rand.New(rand.NewPCG(w.seed, 10)), rand.New(rand.NewPCG(w.seed, 79))
	n := 0
	for i := range w.timers {
		id := fmt.Sprintf("tick-%d", i)
		var all []*tickRequest
		for range 1 + r.IntN(6) {
			n++
			all = append(all, &tickRequest{id: id, n: n, op: pick(r, "timer", "timer", "timer-disable", "timer-enable", "timer-delete")})
		}
		all[0].op = "timer"
		if r.IntN(3) > 0 {
			n++
			all = append(all, &tickRequest{id: id, n: n, op: "timer"})
		}
		at := make([]time.Duration, len(all))
		for j := range at {
			at[j] = time.Duration(r.Int64N(int64(w.load)))
			all[j].def = pick(r, tickDefinitions...)
			all[j].def.Misfire = pick(r, timer.MisfireAll, timer.MisfireOnce, timer.MisfireSkip)
			w.waits(all[j], waits)
		}
		slices.Sort(at)
		go func() {
			for j, one := range all {
				time.Sleep(time.Until(begin.Add(at[j])))
				w.askTick(one)
			}
		}()
	}
}

func (w *world) askTick(q *tickRequest) {
	r := &kgo.Record{Topic: schemas.TopicIntake, Key: []byte(q.id)}
	add := func(name, value string) {
		if value != "" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
	}
	add(schemas.HeaderOp, q.op)
	add(schemas.HeaderTopic, tickTopic)
	add(schemas.HeaderID, q.id)
	if q.op == "timer" {
		r.Value = []byte(strconv.Itoa(q.n))
		add(schemas.HeaderCron, q.def.Cron)
		if q.def.Every > 0 {
			add(schemas.HeaderEvery, q.def.Every.String())
		}
		if q.def.Jitter > 0 {
			add(schemas.HeaderJitter, q.def.Jitter.String())
		}
		add(schemas.HeaderMisfire, string(q.def.Misfire))
		if q.ackTimeout > 0 {
			add(schemas.HeaderAck, "report")
			add(schemas.HeaderAckTimeout, fmt.Sprintf("%dms", q.ackTimeout))
			add(schemas.HeaderMaxAttempts, strconv.Itoa(tickAttempts))
			add(schemas.HeaderBackoff, fmt.Sprintf("fixed:%dms", ackBackoff))
		}
		if q.def.Alone {
			add(schemas.HeaderOverlap, "skip")
		}
	}
	w.client.Produce(context.Background(), r, func(r *kgo.Record, err error) {
		if err != nil {
			w.find("sim", "Kafka did not take a request about a timer: %v", err)
			return
		}
		w.ticks.mu.Lock()
		defer w.ticks.mu.Unlock()
		q.partition, q.offset, q.accepted, q.def.From = r.Partition, r.Offset, r.Timestamp.UnixMilli(), r.Timestamp.UnixMilli()
		w.ticks.requests = append(w.ticks.requests, q)
	})
}

// endTicks lets the timers go on for a while when all is well, deletes them, and waits for the answers.
func (w *world) endTicks() {
	if w.timers == 0 {
		return
	}
	w.ticks.well = time.Now().UnixMilli()
	time.Sleep(20 * time.Second)
	for i := range w.timers {
		w.askTick(&tickRequest{id: fmt.Sprintf("tick-%d", i), op: "timer-delete"})
	}
	for began := time.Now(); time.Since(began) < drainPatience; time.Sleep(time.Second) {
		if w.collectTicks() {
			return
		}
	}
	w.find("I12", "requests about timers are not answered %v after all was well", drainPatience)
}

// isTick tells whether a record is about a timer or its runs.
func isTick(r *kgo.Record) bool {
	if r.Topic == schemas.TopicResults {
		e, err := schemas.DecodeEvent(r)
		return err == nil && e.Topic == tickTopic
	}
	if r.Topic == schemas.TopicReports {
		rep, err := schemas.DecodeReport(r)
		return err == nil && rep.Topic == tickTopic
	}
	return r.Topic == tickTopic || r.Topic == schemas.TopicIntake && slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool {
		return h.Key == schemas.HeaderTopic && string(h.Value) == tickTopic
	})
}

// collectTicks reads what came of the timers so far, and reports whether all requests are answered.
func (w *world) collectTicks() bool {
	k := &w.ticks
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answers, k.missed, k.runs = map[string]schemas.Event{}, map[string]bool{}, map[string][]tickRun{}
	for _, a := range w.seen.all() {
		switch {
		case !isTick(a.r) || a.r.Topic == schemas.TopicIntake:
		case a.r.Topic == schemas.TopicResults:
			e, _ := schemas.DecodeEvent(a.r)
			if e.Request != "" {
				if was, ok := k.answers[e.Request]; ok && was != e {
					w.find("timers", "the request at %s was answered %v, and then %v", e.Request, was, e)
				}
				k.answers[e.Request] = e
			}
			if e.State == schemas.StateDead && e.Kind == schemas.KindMissed {
				k.missed[e.ID] = true
			}
		default:
			d, _, err := schemas.ParseDelivery(a.r)
			if err != nil {
				w.find("timers", "a run cannot be read: %v", err)
				continue
			}
			k.runs[d.ID] = append(k.runs[d.ID], tickRun{a.at, d, string(a.r.Value), a.r.Timestamp})
		}
	}
	return !slices.ContainsFunc(k.requests, func(q *tickRequest) bool { _, ok := k.answers[q.position()]; return !ok })
}

// span is a time in which a timer was enabled, under one definition.
type span struct {
	set        *tickRequest
	start, end int64
	applied    int64 // when the request that began it was stored: later than start, where the intake had to wait
	replaces   bool  // the span before, whose runs before start are kept
}

// judgeTicks compares what was delivered with what the requests, as they were answered, demand.
func (w *world) judgeTicks() {
	if w.timers > 0 && w.collectTicks() {
		w.judgeSpans()
		w.judgeAlone()
	}
}

func (w *world) judgeSpans() {
	byTimer := map[string][]*tickRequest{}
	for _, q := range w.ticks.requests {
		byTimer[q.id] = append(byTimer[q.id], q)
	}
	known := map[string]bool{}
	for id, list := range byTimer {
		slices.SortFunc(list, func(a, b *tickRequest) int { return cmp.Compare(a.offset, b.offset) }) // of one key, so of one partition
		w.judgeTimer(id, w.spansOf(list), known)
	}
	for id := range w.ticks.runs {
		if !known[id] {
			w.find("timers", "run %s is of no definition that was in force", id)
		}
	}
}

// continued returns where the runs of a timer begin that is set again: one with the interval that it had keeps its rhythm.
func continued(q, set *tickRequest) int64 {
	if set != nil && q.def.Every > 0 && q.def.Every == set.def.Every {
		return set.def.From
	}
	return q.accepted
}

// spansOf goes through the requests about one timer as the contract decides them.
func (w *world) spansOf(list []*tickRequest) (out []span) {
	var set *tickRequest // nil: there is no timer
	enabled := false
	closeSpan := func(at int64) {
		if enabled {
			out[len(out)-1].end = at
		}
		enabled = false
	}
	for _, q := range list {
		e := w.ticks.answers[q.position()]
		want := map[string]schemas.State{"timer": schemas.StateTimerSet, "timer-enable": schemas.StateTimerEnabled, "timer-disable": schemas.StateTimerDisabled, "timer-delete": schemas.StateTimerDeleted}[q.op]
		if q.op != "timer" && set == nil {
			want = schemas.StateNotFound
		}
		if e.State != want {
			w.find("timers", "%s of %s at %s was answered %s: %s, not %s", q.op, q.id, q.position(), e.State, e.Reason, want)
		}
		switch {
		case q.op == "timer" && set != nil && !enabled: // it stays disabled
			q.def.From = continued(q, set)
			if set = q; e.Due != 0 {
				w.find("timers", "%s set a disabled timer, and was answered with %d as its next run", q.position(), e.Due)
			}
		case q.op == "timer":
			q.def.From = continued(q, set)
			out = append(out, span{set: q, start: min(q.accepted, e.At), applied: e.At, replaces: enabled})
			if enabled {
				out[len(out)-2].end = e.At
			}
			set, enabled = q, true
			if s, err := timer.New(q.def); err == nil {
				if due, _ := s.Next(out[len(out)-1].start - 1); due != e.Due {
					w.find("timers", "%s was answered with %d as its next run, not %d", q.position(), e.Due, due)
				}
			}
		case set == nil:
		case q.op == "timer-enable":
			if !enabled {
				enabled = true
				out = append(out, span{set: set, start: e.At, applied: e.At})
			}
		default:
			closeSpan(e.At)
			if q.op == "timer-delete" {
				set = nil
			}
		}
	}
	return out
}

func (w *world) judgeTimer(id string, spans []span, known map[string]bool) {
	ahead := w.ahead() + 1000 + 2*w.stepsBack.Milliseconds()
	healthy := w.faults == 0 && !w.silent && w.moves == 0 && !w.loses
	last := int64(0) // run that came
	for name := range w.ticks.runs {
		if of, run, ok := timer.SplitRunID(name); ok && of == id {
			last = max(last, run)
		}
	}
	for i, sp := range spans {
		s, err := timer.New(sp.set.def)
		if err != nil {
			w.find("sim", "a definition is wrong: %v", err)
			continue
		}
		// Ten seconds are enough for what is due when all is well; a dispatcher that had lost Kafka asks a target, which it found silent, 47 s
		// later at the latest. What faults delay may lose its place when its timer changes.
		settled := sp.end - 10_000
		if w.loses {
			settled = sp.end - 50_000
		}
		judged := sp.applied < settled && (healthy || w.ticks.well < settled)
		until := sp.end + ahead
		if i+1 < len(spans) && spans[i+1].set == sp.set { // it was enabled again: from there on, runs are that span's
			until = min(until, spans[i+1].start-1)
		}
		for run, ok := s.Next(sp.start - 1); ok && run <= until; run, ok = s.Next(run) {
			due, name := s.Due(tickTopic, id, run), timer.RunID(id, run)
			var here []tickRun
			for _, r := range w.ticks.runs[name] {
				if r.set == strconv.Itoa(sp.set.n) {
					here = append(here, r)
				}
			}
			end, made := sp.end, sp.applied+10_000 < run
			for j := i + 1; j < len(spans) && spans[j].replaces && run < spans[i+1].start; j++ {
				end = spans[j].end // it is kept
			}
			if len(here) > 0 {
				known[name] = true
				w.judgeRun(sp.set, name, due, end+ahead, here, healthy)
				if !slices.ContainsFunc(spans[i+1:], func(o span) bool { return o.set.def.Misfire != sp.set.def.Misfire }) { // a run goes by the policy that its timer has when the run is due
					w.judgeMissed(s, sp.set.def, id, run, here)
				}
			}
			if (judged && due < settled || healthy && made && due < end-10_000) && len(w.ticks.runs[name]) == 0 && !w.ticks.missed[name] {
				w.find("timers", "run %s was due at %d, its timer was enabled until %d, and it never came", name, due, end)
			}
			if w.ticks.missed[name] && sp.set.def.Misfire == timer.MisfireOnce && !sp.set.def.Alone && judged && due < settled && last < run {
				w.find("timers", "run %s was dropped as missed, and no later one came", name)
			}
			if w.ticks.missed[name] && sp.set.def.Misfire == timer.MisfireAll && !slices.ContainsFunc(spans, func(o span) bool { return o.set.def.Misfire != timer.MisfireAll || o.set.def.Alone }) {
				w.find("timers", "run %s was dropped, and its timer delivers all", name)
			}
		}
	}
}

// judgeMissed: skip delivers no missed run. Once delivers the latest of them; behind a backlog a later one may not be on its way, so three
// missed runs in a row that are sent at about one time are wrong. A run that may have been sent goes again, however late.
func (w *world) judgeMissed(s timer.Schedule, def timer.Definition, id string, run int64, copies []tickRun) {
	if w.truth == nil || def.Misfire == timer.MisfireAll {
		return
	}
	const grace = 1000
	missed := func(run, at int64) bool {
		return at > s.Due(tickTopic, id, run)+w.dispatcher.MisfireAfter.Milliseconds()+w.stepsBack.Milliseconds()+grace
	}
	for _, c := range copies {
		at := c.from.UnixMilli()
		if !missed(run, at) || c.d.Attempt > 1 || w.truth.maybeSent(name{tickTopic, c.d.ID}) {
			continue
		}
		together := def.Misfire == timer.MisfireSkip
		if !together {
			second, _ := s.Next(run)
			third, _ := s.Next(second)
			near := func(run int64) bool {
				return missed(run, at) && slices.ContainsFunc(w.ticks.runs[timer.RunID(id, run)], func(o tickRun) bool { return o.from.Sub(c.from).Abs() < 500*time.Millisecond })
			}
			together = near(second) && near(third)
		}
		if together {
			w.find("timers", "run %s was sent at %d, after it was missed", c.d.ID, at)
		}
	}
}

// judgeRun looks at the copies of one run.
func (w *world) judgeRun(q *tickRequest, name string, due, until int64, copies []tickRun, healthy bool) {
	most := 1
	if q.ackTimeout > 0 {
		most = tickAttempts
	}
	byAttempt := map[int][]tickRun{}
	for _, r := range copies {
		same := append(byAttempt[r.d.Attempt], r)
		byAttempt[r.d.Attempt] = same
		switch {
		case r.d.Due != due:
			w.find("timers", "run %s says that it is due at %d, not %d", name, r.d.Due, due)
		case r.at < due:
			w.find("timers", "run %s came %d ms early", name, due-r.at)
		case due > until:
			w.find("timers", "run %s was due at %d, %d ms after all that may be claimed when its timer ended", name, due, due-until)
		case r.d.Attempt < 1 || r.d.Attempt > most:
			w.find("timers", "run %s came as attempt %d, and %d may be made", name, r.d.Attempt, most)
		case r.d.Key != same[0].d.Key || !strings.HasPrefix(name, r.d.Timer+"@"):
			w.find("timers", "copies of run %s differ: %v and %v", name, same[0].d, r.d)
		}
	}
	for attempt, same := range byAttempt {
		if (healthy || w.lostElsewhere(tickTopic, name, due)) && len(same) > 1 {
			w.find("timers", "attempt %d of run %s came %d times, and nothing had failed", attempt, name, len(same))
		}
	}
}
