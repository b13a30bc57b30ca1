package sim

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/timer"
)

// TestTheJudgeOfTimersNotices: each mistake that is planted into a run that is right.
func TestTheJudgeOfTimersNotices(t *testing.T) {
	const begin = 1_000_000
	id := func(run int64) string { return timer.RunID("tick-0", run) }
	for name, plant := range map[string]struct {
		change func(w *world)
		found  string
	}{
		"nothing": {func(*world) {}, ""},
		"lost":    {func(w *world) { delete(w.ticks.runs, id(begin+3000)) }, "never came"},
		"dropped": {func(w *world) { w.ticks.missed[id(begin+3000)] = true }, "delivers all"},
		"early":   {func(w *world) { w.ticks.runs[id(begin+3000)][0].at-- }, "1 ms early"},
		"made twice": {func(w *world) {
			runs := w.ticks.runs[id(begin+3000)]
			again := runs[0]
			again.d.Key = "another"
			w.ticks.runs[id(begin+3000)] = append(runs, again)
		}, "differ"},
		"sent twice": {func(w *world) {
			w.ticks.runs[id(begin+3000)] = append(w.ticks.runs[id(begin+3000)], w.ticks.runs[id(begin+3000)]...)
		}, "nothing had failed"},
		"after its end":  {func(w *world) { w.deliverTick(1, begin+40_000) }, "no definition"},
		"while disabled": {func(w *world) { w.deliverTick(1, begin+34_000) }, "no definition"},
		"of another set": {func(w *world) { w.ticks.runs[id(begin+3000)][0].set = "7" }, "no definition"},
		"due elsewhere":  {func(w *world) { w.ticks.runs[id(begin+3000)][0].d.Due++ }, "says that it is due"},
		"a wrong answer": {func(w *world) { w.answerTick(1, schemas.StateTimerSet, begin, begin+1000) }, "next run"},
		"another rhythm": {func(w *world) {
			w.ticks.requests[1].op, w.ticks.requests[1].accepted = "timer", begin+30_500
			w.answerTick(2, schemas.StateTimerSet, begin+30_500, begin+30_500)
		}, "as its next run, not 1031000"},
		"enabled by a set": {func(w *world) {
			w.ticks.requests = append(w.ticks.requests, &tickRequest{id: "tick-0", op: "timer", n: 3, offset: 2, accepted: begin + 40_000, def: w.ticks.requests[0].def})
			w.answerTick(3, schemas.StateTimerSet, begin+40_000, begin+40_000)
		}, "set a disabled timer"},
		"another answer": {func(w *world) { w.answerTick(2, schemas.StateNotFound, begin+30_000, 0) }, "not timer_disabled"},
		"dropped rightly": {func(w *world) {
			w.ticks.requests[0].def.Misfire = timer.MisfireSkip
			w.ticks.missed[id(begin)] = true
			delete(w.ticks.runs, id(begin))
		}, ""},
		"dropped for one that never came": {func(w *world) {
			w.ticks.requests[0].def.Misfire = timer.MisfireOnce
			for run := int64(begin + 10_000); run <= begin+30_000; run += 1000 {
				w.ticks.missed[id(run)] = true
				delete(w.ticks.runs, id(run))
			}
		}, "no later one came"},
		"not kept by its replacement": {func(w *world) {
			w.ticks.requests[0].def.Jitter, w.ticks.requests[1].op = 10*time.Minute, "timer"
			w.ticks.requests[1].def = timer.Definition{Cron: "@yearly"}
			w.ticks.requests[1].accepted = begin + 30_000
			w.answerTick(2, schemas.StateTimerSet, begin+30_000, 365*86_400_000)
			w.ticks.requests = append(w.ticks.requests, &tickRequest{id: "tick-0", op: "timer-delete", n: 3, offset: 2, accepted: begin + 3600*1000})
			w.answerTick(3, schemas.StateTimerDeleted, begin+3600*1000, 0)
			w.ticks.runs = map[string][]tickRun{}
		}, "never came"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{}
			w.dispatcher.LookAhead = 400 * time.Millisecond
			w.ticks.answers, w.ticks.missed, w.ticks.runs = map[string]schemas.Event{}, map[string]bool{}, map[string][]tickRun{}
			for i, op := range []string{"timer", "timer-disable"} {
				w.ticks.requests = append(w.ticks.requests, &tickRequest{id: "tick-0", op: op, n: i + 1, offset: int64(i), accepted: begin,
					def: timer.Definition{Every: time.Second, From: begin, Misfire: timer.MisfireAll}})
			}
			w.answerTick(1, schemas.StateTimerSet, begin, begin)
			w.answerTick(2, schemas.StateTimerDisabled, begin+30_000, 0)
			for run := int64(begin); run <= begin+30_000; run += 1000 {
				w.deliverTick(1, run)
			}
			plant.change(w)
			w.judgeSpans()
			if plant.found == "" {
				require.Empty(t, w.findings)
				return
			}
			require.NotEmpty(t, w.findings)
			require.Contains(t, w.findings[0].What, plant.found)
		})
	}
}

func (w *world) answerTick(n int, state schemas.State, at, due int64) {
	w.ticks.answers[w.ticks.requests[n-1].position()] = schemas.Event{State: state, At: at, Due: due}
}

func (w *world) deliverTick(n int, run int64) {
	id := timer.RunID("tick-0", run)
	w.ticks.runs[id] = append(w.ticks.runs[id], tickRun{at: run, set: strconv.Itoa(n), d: schemas.Delivery{ID: id, Timer: "tick-0", Due: run, Attempt: 1, Key: id}})
}
