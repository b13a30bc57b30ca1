package task

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/timer"
)

const began = 1_700_000_000_000

func setEvery(d time.Duration, accepted int64) Change {
	r := schemas.NewRequest(schemas.OpTimer, "orders", "t")
	r.Accepted, r.Timer = accepted, schemas.Timer{Every: d, Timezone: "UTC"}
	return Change{Seq: 7, Request: &r}
}

// TestPendingHoldsAllThatIsNotClaimed: whatever was made late, nothing that may be pending is left out,
// and what must be claimed by now is not looked at for ever.
func TestPendingHoldsAllThatIsNotClaimed(t *testing.T) {
	v := DecideTimer(nil, setEvery(10*time.Second, began), slots.Even(4), began)
	require.Equal(t, schemas.StateTimerSet, v.Event.State)
	tm := *v.Next
	pending := func() (out []int64) {
		runs, err := tm.Pending()
		require.NoError(t, err)
		for _, run := range runs {
			out = append(out, (run-began)/1000)
		}
		return out
	}
	require.Empty(t, pending())
	step := func(now, claimed int64) {
		_, err := tm.Make(Making{Now: began + now, UpTo: began + now + 30_000, Tolerance: time.Minute, Claimed: began + claimed, Room: 100, Bytes: 1 << 20})
		require.NoError(t, err)
	}
	step(0, 5000)
	require.Equal(t, []int64{0, 10, 20, 30}, pending(), "the first stands behind what is claimed: it came late")
	step(4000, 5000)
	require.Equal(t, []int64{0, 10, 20, 30}, pending(), "claimed has not moved")
	step(5001, 5001)
	require.Equal(t, []int64{10, 20, 30}, pending())
	step(20_000, 20_399)
	require.Equal(t, []int64{30, 40, 50}, pending())
}

func TestOneTimerGivesOthersTheirTurn(t *testing.T) {
	v := DecideTimer(nil, setEvery(time.Second, began), slots.Even(4), began)
	tm := *v.Next
	runs, err := tm.Make(Making{Now: began, UpTo: began + 90_000, Tolerance: time.Minute, Room: 7, Bytes: 1 << 20})
	require.NoError(t, err)
	require.Len(t, runs.Tasks, 7)
	require.Equal(t, int64(began+7000), tm.Next, "it goes on from there")
	runs, err = tm.Make(Making{Now: began, UpTo: began + 90_000, Tolerance: time.Minute, Room: 7, Bytes: 1})
	require.NoError(t, err)
	require.Len(t, runs.Tasks, 1, "one at least, however large")
}

// TestALateRequestMakesTheRunsSinceItWasAccepted: those that are missed by then are treated as such.
func TestALateRequestMakesTheRunsSinceItWasAccepted(t *testing.T) {
	v := DecideTimer(nil, setEvery(time.Minute, began), slots.Even(4), began+600_000)
	require.Equal(t, int64(began), v.Next.Next)
	runs, err := v.Next.Make(Making{Now: began + 600_000, UpTo: began + 690_000, Tolerance: time.Second, Room: 100, Bytes: 1 << 20})
	require.NoError(t, err)
	require.Len(t, runs.Dropped, 9, "0 to 8 min")
	require.Len(t, runs.Tasks, 3, "the run of 9 min stands in for them")
	require.Equal(t, timer.RunID("t", began+540_000), runs.Tasks[0].ID)
}

// TestWhenAllRunsAreClaimed: for a timer whose definition does not tell.
func TestWhenAllRunsAreClaimed(t *testing.T) {
	day := timer.LongestJitter.Milliseconds()
	for name, c := range map[string]struct {
		timer Timer
		from  int64 // 0: never
	}{
		"made up to a run":            {Timer{Next: began}, began + day},
		"one of them came late":       {Timer{Next: began, Placed: began + 2*day}, began + 2*day},
		"all are made, until when":    {Timer{Next: NoRun, Definition: timer.Definition{Until: began}}, began + day},
		"all are made, until unknown": {Timer{Next: NoRun}, 0},
		"some are kept":               {Timer{Next: began, Kept: []Kept{{Open: began, To: began + day}}}, began + 2*day},
	} {
		t.Run(name, func(t *testing.T) {
			if c.from == 0 {
				require.False(t, c.timer.AllClaimed(upTo(NoRun), keptIn(upTo(NoRun))))
				return
			}
			require.False(t, c.timer.AllClaimed(upTo(c.from-1), keptIn(upTo(c.from-1))))
			require.True(t, c.timer.AllClaimed(upTo(c.from), keptIn(upTo(c.from))))
		})
	}
}

// TestKeptRunsOfAnotherSlotMayBePending: the timer's own slot says nothing about them.
func TestKeptRunsOfAnotherSlotMayBePending(t *testing.T) {
	day := timer.LongestJitter.Milliseconds()
	set := Timer{Slot: 1, Next: began, Kept: []Kept{{Slot: 2, Open: began - 1, To: began}}}
	claimed := map[int]int64{1: began + 2*day, 2: began - 1}
	of := func(slot int) int64 { return claimed[slot] }
	require.False(t, set.AllClaimed(of, keptIn(of)))
	claimed[2] = began + day
	require.True(t, set.AllClaimed(of, keptIn(of)))
}

// keptIn is claimed for kept runs, while the number of slots does not change.
func keptIn(claimed func(int) int64) func(Kept) int64 {
	return func(k Kept) int64 { return claimed(k.Slot) }
}

func upTo(claimed int64) func(int) int64 { return func(int) int64 { return claimed } }

// TestUntilTheBeginningOfTimeIsNotForEver: Unix ms 0 is an instant like any other, and has passed.
func TestUntilTheBeginningOfTimeIsNotForEver(t *testing.T) {
	from, until := int64(-86_400_000), int64(0)
	c := setEvery(time.Minute, began)
	c.Request.Timer.From, c.Request.Timer.Until = &from, &until
	v := DecideTimer(nil, c, slots.Even(4), began)
	require.Equal(t, schemas.StateRejected, v.Event.State)
	require.Contains(t, v.Event.Reason, "notyet-until")
	require.Nil(t, v.Next)
}

// TestATimerThatIsSetAgainKeepsItsRhythm: unless it says where its runs begin, or has another interval.
func TestATimerThatIsSetAgainKeepsItsRhythm(t *testing.T) {
	const hour, later = 3_600_000, began + 1_500_000
	set := func(cur *Timer, change func(*schemas.Request)) TimerVerdict {
		c := setEvery(time.Hour, later)
		change(c.Request)
		v := DecideTimer(cur, c, slots.Even(4), later)
		require.Equal(t, schemas.StateTimerSet, v.Event.State, v.Event.Reason)
		return v
	}
	made := func(when schemas.Timer) *Timer {
		c := setEvery(time.Hour, began)
		c.Request.Timer = when
		v := DecideTimer(nil, c, slots.Even(4), began)
		_, err := v.Next.Make(Making{Now: began, UpTo: began + 90_000, Tolerance: time.Minute, Claimed: began, Room: 100, Bytes: 1 << 20})
		require.NoError(t, err)
		return v.Next
	}
	hourly := schemas.Timer{Every: time.Hour, Timezone: "UTC"}
	cur := made(hourly)

	v := set(cur, func(*schemas.Request) {})
	require.False(t, v.Clear, "nothing has changed, so its runs stay")
	require.Equal(t, int64(began+hour), v.Event.Due)
	want := *cur
	require.Equal(t, &want, v.Next)

	v = set(cur, func(r *schemas.Request) { r.Value, r.Version = []byte("other"), 5 })
	require.True(t, v.Clear, "runs with the earlier value go")
	require.Equal(t, []int64{began + hour, began + hour, 5}, []int64{v.Next.Next, v.Event.Due, v.Next.Version})
	require.Equal(t, []int64{began, began}, []int64{v.Next.Definition.From, v.Next.Definition.Set})

	v = set(cur, func(r *schemas.Request) { r.Timer.Jitter = time.Minute })
	require.Equal(t, int64(began+hour), v.Next.Next)
	v = set(cur, func(r *schemas.Request) { r.Timer.Every = 30 * time.Minute })
	require.Equal(t, []int64{later, later}, []int64{v.Next.Next, v.Next.Definition.Set}, "another interval begins now")
	from := int64(began + 60_000)
	v = set(cur, func(r *schemas.Request) { r.Timer.From = &from })
	require.Equal(t, from+hour, v.Next.Next, "from says where runs lie")
	again := set(v.Next, func(*schemas.Request) {})
	require.Equal(t, from+hour, again.Next.Next, "its origin stays")
	from = began + 10*hour
	v = set(set(cur, func(r *schemas.Request) { r.Timer.From = &from }).Next, func(*schemas.Request) {})
	require.Equal(t, from, v.Next.Next, "and if it is yet to come")

	cron := schemas.Timer{Cron: "0 * * * *", Timezone: "Europe/Berlin"}
	cur = made(cron)
	v = set(cur, func(r *schemas.Request) { r.Timer = cron })
	require.False(t, v.Clear)
	require.Equal(t, cur.Definition, v.Next.Definition)
	v = set(cur, func(r *schemas.Request) { r.Timer = schemas.Timer{Cron: "0 * * * *", Timezone: "UTC"} })
	require.True(t, v.Clear)
	require.Equal(t, int64(later), v.Next.Definition.Set, "another expression, since now")
	cur.Definition.From = from
	v = set(cur, func(r *schemas.Request) { r.Timer = cron })
	require.Less(t, v.Next.Next, from, "an expression needs no origin: it runs from now on")
}

// TestADisabledTimerStaysDisabledWhenItIsSet: enabled, it goes on in its rhythm.
func TestADisabledTimerStaysDisabledWhenItIsSet(t *testing.T) {
	for _, when := range []schemas.Timer{{Every: time.Hour, Timezone: "UTC"}, {Cron: "0 * * * *", Timezone: "UTC"}} {
		request := func(op schemas.Op, accepted int64) Change {
			r := schemas.NewRequest(op, "orders", "t")
			r.Accepted = accepted
			if op == schemas.OpTimer {
				r.Timer = when
			}
			return Change{Seq: 7, Request: &r}
		}
		v := DecideTimer(nil, request(schemas.OpTimer, began), slots.Even(4), began)
		first := v.Event.Due
		v = DecideTimer(v.Next, request(schemas.OpTimerDisable, began+1), slots.Even(4), began+1)
		changed := request(schemas.OpTimer, began+2)
		changed.Request.Value = []byte("other")
		v = DecideTimer(v.Next, changed, slots.Even(4), began+2)
		require.Equal(t, schemas.StateTimerSet, v.Event.State)
		require.Zero(t, v.Event.Due)
		require.Contains(t, v.Event.Reason, "disabled")
		require.Equal(t, TimerDisabled, v.Next.State)
		runs, err := v.Next.Pending()
		require.NoError(t, err)
		require.Empty(t, runs)
		require.Equal(t, WhyDisabled, v.Next.gap(began+5_000_000), "it still makes none")

		v = DecideTimer(v.Next, request(schemas.OpTimerEnable, began+2*3_600_000), slots.Even(4), began+2*3_600_000)
		require.Equal(t, TimerEnabled, v.Next.State)
		require.Zero(t, (v.Event.Due-first)%3_600_000, "in its rhythm")
		body, err := schemas.DecodeBody(v.Next.Body)
		require.NoError(t, err)
		require.Equal(t, "other", string(body.Value))

		v = DecideTimer(v.Next, request(schemas.OpTimerDisable, began+3*3_600_000), slots.Even(4), began+3*3_600_000)
		v = DecideTimer(v.Next, request(schemas.OpTimerDelete, began+3*3_600_000), slots.Even(4), began+3*3_600_000)
		v = DecideTimer(v.Next, request(schemas.OpTimer, began+3*3_600_000+1), slots.Even(4), began+3*3_600_000+1)
		require.Equal(t, TimerEnabled, v.Next.State, "after it was deleted it is a new one")
		if when.Every > 0 {
			require.Equal(t, int64(began+3*3_600_000+1), v.Next.Next)
		}
	}
}

// TestAWrongDefinitionIsRejected: the reason has the header, the value, what is wrong with it and the fix.
func TestAWrongDefinitionIsRejected(t *testing.T) {
	for reason, when := range map[string]schemas.Timer{
		`notyet-cron "0 24 * * *" hour field "24": "24" is wrong: write a number from 0 to 23`:                                                     {Cron: "0 24 * * *"},
		`notyet-cron "0 10 * * ? *" has EventBridge's form, the minute first and the year last: write "0 10 * * ?", with days of the week by name`: {Cron: "0 10 * * ? *"},
		`notyet-cron "CRON_TZ=Asia/Tokyo 0 9 * * *" names a time zone: leave CRON_TZ=Asia/Tokyo out, and send notyet-timezone Asia/Tokyo`:          {Cron: "CRON_TZ=Asia/Tokyo 0 9 * * *"},
		`notyet-cron "0 0 30 2 *" never comes: correct its day and its month`:                                                                      {Cron: "0 0 30 2 *"},
		`notyet-jitter "48h0m0s" is 48h0m0s: it must be 0 to 24h0m0s`:                                                                              {Cron: "@daily", Jitter: 48 * time.Hour},
	} {
		c := setEvery(0, began)
		c.Request.Timer = when
		v := DecideTimer(nil, c, slots.Even(4), began)
		require.Equal(t, schemas.StateRejected, v.Event.State)
		require.Equal(t, reason, v.Event.Reason)
		require.Equal(t, reason, v.Dead.Reason)
		require.Nil(t, v.Next)
	}
}

// TestARunIsMadeAgainAsItWas: byte for byte, if its timer has still to make it.
func TestARunIsMadeAgainAsItWas(t *testing.T) {
	c := setEvery(10*time.Second, began)
	c.Request.Timer.Jitter, c.Request.Value = 3*time.Second, []byte("v")
	v := DecideTimer(nil, c, slots.Even(4), began)
	before, tm := *v.Next, *v.Next
	made, err := tm.Make(Making{Now: began, UpTo: began + 90_000, Tolerance: time.Minute, Room: 100, Bytes: 1 << 20})
	require.NoError(t, err)
	require.Len(t, made.Tasks, 10)
	for i, want := range made.Tasks {
		run := began + int64(i)*10_000
		require.Equal(t, want, before.RunAgain(run, began))
		require.Nil(t, before.RunAgain(run+1, began), "no run")
		require.Nil(t, tm.RunAgain(run, began), "it was made")
	}
	before.State = TimerDisabled
	require.Nil(t, before.RunAgain(began, began))
}

// A timer that has moved is set again, twice, by requests from before. Its runs were sent as long as they were made, and no others.
func TestRunsThatWereSentElsewhere(t *testing.T) {
	const hour = int64(3_600_000)
	moved := &Timer{Topic: "orders", ID: "t", Version: -1, Definition: timer.Definition{Every: time.Second, From: began}, Next: began + hour, Open: began + hour, Moved: began + 2*hour, Body: []byte("other")}
	set := func(cur *Timer, every time.Duration, accepted int64) *Timer {
		v := DecideTimer(cur, setEvery(every, accepted), slots.Even(4), began+3*hour)
		require.Equal(t, schemas.StateTimerSet, v.Event.State)
		return v.Next
	}
	once := set(moved, 2*time.Second, began+hour-3000)
	require.Equal(t, []int64{began + hour - 3000, began + hour - 2000, began + hour - 1000}, once.Elsewhere)
	twice := set(once, 3*time.Second, began+hour-3000)
	require.Equal(t, once.Elsewhere, twice.Elsewhere, "none of the second definition was made")
	require.Len(t, set(moved, 2*time.Second, 0).Elsewhere, MostElsewhere, "however long ago")
	deleted := schemas.NewRequest(schemas.OpTimerDelete, "orders", "t")
	deleted.Accepted = began + hour - 3000
	v := DecideTimer(moved, Change{Seq: 1, Request: &deleted}, slots.Even(4), began+3*hour)
	require.Equal(t, once.Elsewhere, set(v.Next, 2*time.Second, began+hour-2000).Elsewhere)
}
