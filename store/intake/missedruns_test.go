package intake

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

// TestTimersRememberWhatWasMissed: while they were disabled, after an outage, and where they were alone. The
// count of dropped runs does not depend on their events.
func TestTimersRememberWhatWasMissed(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		const minute = 60_000
		s.do(s.timerRequest(schemas.OpTimer, every(time.Minute), func(r *schemas.Request) { r.Settings.Events = schemas.EventsNone }))
		s.make()
		s.deliver(t0)
		s.now = t0 + 10_000
		s.do(s.timerRequest(schemas.OpTimerDisable))
		require.Equal(t, []task.Gap{{From: t0, Why: task.WhyDisabled}}, s.timer().Gaps, "from the first run that it may have taken away")
		s.now = t0 + 5*minute + 1000
		s.do(s.timerRequest(schemas.OpTimerDisable))
		s.do(s.timerRequest(schemas.OpTimerEnable))
		want := []task.Gap{{From: t0, To: s.now, Why: task.WhyDisabled}}
		require.Equal(t, want, s.timer().Gaps)

		s.now = t0 + 500*minute // nobody made runs, and then it takes several pages
		dropped := 0
		for {
			made, err := s.MakeRuns(s.ctx, s.owned(s.epoch), s.now+ahead, s.now, tolerance, map[[16]byte]bool{})
			require.NoError(t, err)
			if dropped += made.Dropped; made.Timers == 0 {
				break
			}
			require.Empty(t, made.Events)
		}
		require.Equal(t, 492, dropped, "6 to 497; the next one of each other is at most a minute late")
		want = append(want, task.Gap{From: t0 + 6*minute, To: t0 + 497*minute + 1, Why: task.WhyMisfire})
		require.Equal(t, want, s.timer().Gaps)

		s.do(s.timerRequest(schemas.OpTimer, every(2*time.Minute)))
		require.Equal(t, want, s.timer().Gaps, "they are facts, whatever the timer is by now")
		states := map[int64]string{}
		for at := int64(t0); at <= s.now; at += minute {
			state, why := s.timer().Untold(at, s.now, 0)
			states[(at-t0)/minute] = strings.TrimSpace(state + " " + why)
		}
		require.Equal(t, []string{"missed disabled", "missed disabled", "missed misfire", "missed misfire", "unknown replaced", "coming"},
			[]string{states[1], states[5], states[6], states[497], states[498], states[500]})
	})
}

// TestDroppedRunsSayWhy: of those that are refused when they are due.
func TestDroppedRunsSayWhy(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.timerRequest(schemas.OpTimer, func(r *schemas.Request) {
			r.Timer.Overlap, r.Settings.Ack = schemas.OverlapSkip, schemas.AckReport
		}))
		s.make()
		s.now += 25_000
		s.claim(s.now)
		var starts []line.Start
		for _, at := range []int64{t0, t0 + 10_000, t0 + 20_000} {
			run := s.row(timer.RunID("t", at))
			starts = append(starts, line.Start{SlotEpoch: store.SlotEpoch{Slot: run.Slot, Epoch: s.epoch}, Seq: run.Seq, Topic: target, Timer: "t", Run: at, Alone: true})
		}
		for range 2 { // the answer was lost
			refused, err := s.StartRuns(s.ctx, starts, s.now, tolerance)
			require.NoError(t, err)
			require.Len(t, refused, 2)
		}
		require.Equal(t, []task.Gap{{From: t0 + 10_000, To: t0 + 20_001, Why: task.WhyOverlap}}, s.timer().Gaps)
		var gone []line.Transition
		for _, r := range starts[1:] {
			gone = append(gone, s.transition(timer.RunID("t", r.Run), task.StateDead, 0, 0))
		}
		s.settle(s.now, gone...)
		runs, err := look.New(s.Store).GetRuns(s.ctx, target, []string{timer.RunID("t", t0), timer.RunID("t", t0+10_000), timer.RunID("t", t0+30_000), "none"})
		require.NoError(t, err)
		require.Len(t, runs, 3)
		require.Equal(t, []bool{false, true, false}, []bool{runs[timer.RunID("t", t0)].Dropped, runs[timer.RunID("t", t0+10_000)].Dropped, runs[timer.RunID("t", t0+30_000)].Dropped})
		require.Equal(t, task.WhyOverlap, s.timer().Dropped(t0+20_000))
	})
}

// TestGapsAreBounded: the column holds them, and what is left out are the oldest.
func TestGapsAreBounded(t *testing.T) {
	timers := task.Timer{Definition: timer.Definition{Cron: strings.Repeat("0,", 700) + "0 * * * *"}}
	schedule, err := timer.Parse(timer.Definition{Every: time.Second})
	require.NoError(t, err)
	for i := range int64(100) {
		timers.Miss(schedule, t0+i*10_000, t0+i*10_000+1, task.WhyOverlap)
	}
	require.Len(t, timers.Gaps, task.MostGaps)
	require.Equal(t, int64(t0+990_000), timers.Gaps[task.MostGaps-1].From)
	text, err := tables.EncodeDefinition(&timers)
	require.NoError(t, err)
	require.LessOrEqual(t, len(text), tables.MaxDefinition)
	require.Contains(t, string(text), "1700000990000")
	require.NotContains(t, string(text), "1700000840000")
}
