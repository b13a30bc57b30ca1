package intake

import (
	"cmp"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

const (
	ahead     = 90_000
	tolerance = time.Minute
)

// timerRequest is a request about the timer t of the target.
func (f *fixture) timerRequest(op schemas.Op, change ...func(*schemas.Request)) *schemas.Request {
	r := schemas.NewRequest(op, target, "t")
	r.Accepted, r.Key, r.Value = f.now, []byte("k"), []byte("v")
	if op == schemas.OpTimer {
		r.Timer = schemas.Timer{Every: 10 * time.Second, Timezone: "UTC"}
	}
	for _, c := range change {
		c(&r)
	}
	return &r
}

func every(d time.Duration) func(*schemas.Request) {
	return func(r *schemas.Request) { r.Timer = schemas.Timer{Every: d, Timezone: "UTC"} }
}

// make makes all runs that are to exist by now, and returns how many.
func (f *fixture) make() (n int) {
	f.t.Helper()
	if f.epoch == 0 {
		f.own()
	}
	for range 1000 {
		made, err := f.MakeRuns(f.ctx, f.owned(f.epoch), f.now+ahead, f.now, tolerance, map[[16]byte]bool{})
		require.NoError(f.t, err)
		if made.Timers == 0 {
			return n
		}
		n += made.Runs
	}
	require.FailNow(f.t, "making runs does not end")
	return 0
}

func (f *fixture) owned(epoch int64) (out []store.SlotEpoch) {
	for _, slot := range f.allSlots() {
		out = append(out, store.SlotEpoch{Slot: slot, Epoch: epoch})
	}
	return out
}

// pending returns the runs of the timer that stand in the line behind claimed, in order.
func (f *fixture) pending() (runs []int64) {
	f.t.Helper()
	rows, err := tables.Fetch(f.ctx, f.db, tables.ScanTask, "SELECT "+tables.TaskColumns+" FROM tasks WHERE slot >= 0 ORDER BY due")
	require.NoError(f.t, err)
	slots, err := f.Slots(f.ctx)
	require.NoError(f.t, err)
	for _, row := range rows {
		if src, _ := task.SplitSeq(row.Seq); src == task.RunSource && row.Pos > slots[row.Slot].Claimed {
			runs = append(runs, row.Due)
		}
	}
	return runs
}

func (f *fixture) timer() *task.Timer {
	f.t.Helper()
	rows, err := tables.Fetch(f.ctx, f.db, tables.ScanTimer, "SELECT "+tables.TimerColumns+" FROM timers WHERE id = ?", []byte("t"))
	require.NoError(f.t, err)
	if len(rows) == 0 {
		return nil
	}
	require.Len(f.t, rows, 1)
	return &rows[0]
}

func span(from, to, step int64) (out []int64) {
	for at := from; at <= to; at += step {
		out = append(out, at)
	}
	return out
}

func TestTimersMakeOrdinaryTasks(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		events := s.do(s.timerRequest(schemas.OpTimer, func(r *schemas.Request) {
			r.Settings.Priority, r.Headers = schemas.PriorityHigh, nil
		}))
		require.Equal(t, []schemas.Event{{Topic: target, ID: "t", State: schemas.StateTimerSet, Due: t0, At: t0}}, events)
		require.Equal(t, 10, s.make(), "90 s of them, and the one of now")
		require.Equal(t, span(t0, t0+ahead, 10_000), s.pending())
		require.Zero(t, s.make(), "each once")

		id := timer.RunID("t", t0+20_000)
		require.Equal(t, "pending", s.state(id))
		body := s.body(id)
		require.Equal(t, schemas.Run{Timer: "t", DropFrom: t0 + 30_000}, body.Settings.Run)
		require.Equal(t, schemas.PriorityHigh, body.Settings.Priority)
		require.Equal(t, "v", string(body.Value))
		require.Equal(t, s.timer().Slot, s.row(id).Slot)

		cancel := schemas.NewRequest(schemas.OpCancel, target, id)
		require.Equal(t, schemas.StateCancelled, s.answer(&cancel))
		fire := schemas.NewRequest(schemas.OpFire, target, timer.RunID("t", t0+30_000))
		require.Equal(t, schemas.StateFired, s.answer(&fire))

		s.now += 5000
		s.deliver(s.now)
		require.Equal(t, "delivered", s.state(timer.RunID("t", t0)))
		require.Equal(t, "delivered", s.state(timer.RunID("t", t0+30_000)))
		s.now += 5000
		require.Equal(t, 1, s.make())
		require.NotContains(t, s.pending(), t0+20_000, "a cancelled run is not made again")
	})
}

func TestTimerRequests(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for _, op := range []schemas.Op{schemas.OpTimerEnable, schemas.OpTimerDisable, schemas.OpTimerDelete} {
			require.Equal(t, schemas.StateNotFound, s.answer(s.timerRequest(op)))
			require.Equal(t, schemas.StateNotFound, s.answer(s.timerRequest(op, version(3))))
		}
		require.Nil(t, s.timer(), "nothing is remembered of what was not there")
		require.Equal(t, schemas.StateTimerSet, s.answer(s.timerRequest(schemas.OpTimer, version(5))))
		require.Equal(t, schemas.StateStale, s.answer(s.timerRequest(schemas.OpTimer, version(4))))
		require.Equal(t, schemas.StateStale, s.answer(s.timerRequest(schemas.OpTimerDisable, version(4))))
		require.Equal(t, schemas.StateTimerSet, s.answer(s.timerRequest(schemas.OpTimer, every(20*time.Second))))
		require.Equal(t, int64(5), s.timer().Version, "a request without a version keeps it")
		require.Equal(t, schemas.StateTimerEnabled, s.answer(s.timerRequest(schemas.OpTimerEnable)))
		require.Equal(t, schemas.StateTimerDisabled, s.answer(s.timerRequest(schemas.OpTimerDisable, version(6))))
		require.Equal(t, schemas.StateTimerDisabled, s.answer(s.timerRequest(schemas.OpTimerDisable)))
		require.Zero(t, s.make())

		s.now += 25_000
		events := s.do(s.timerRequest(schemas.OpTimerEnable))
		require.Equal(t, schemas.StateTimerEnabled, events[0].State)
		require.Equal(t, int64(t0+40_000), events[0].Due, "what passed while it was disabled is never made")
		s.make()
		require.Equal(t, span(t0+40_000, s.now+ahead, 20_000), s.pending())

		require.Equal(t, schemas.StateTimerDeleted, s.answer(s.timerRequest(schemas.OpTimerDelete, version(7))))
		require.Empty(t, s.pending())
		require.Equal(t, schemas.StateNotFound, s.answer(s.timerRequest(schemas.OpTimerDelete)))
		require.Equal(t, schemas.StateStale, s.answer(s.timerRequest(schemas.OpTimer, version(7))))
		require.Equal(t, schemas.StateTimerSet, s.answer(s.timerRequest(schemas.OpTimer, version(8))))
		require.Equal(t, []schemas.State{schemas.StateTimerDisabled, schemas.StateTimerEnabled, schemas.StateTimerDeleted}, states(s.do(
			s.timerRequest(schemas.OpTimerDisable), s.timerRequest(schemas.OpTimerEnable), s.timerRequest(schemas.OpTimerDelete))))

		n, err := s.RetireTimers(s.ctx, s.now)
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = s.RetireTimers(s.ctx, s.now+1)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Nil(t, s.timer())
	})
}

// TestATimerThatIsSetAtEachStartOfAProgram: no run is added, none is moved, and none is written anew.
func TestATimerThatIsSetAtEachStartOfAProgram(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		require.Equal(t, schemas.StateTimerSet, s.answer(s.timerRequest(schemas.OpTimer)))
		s.make()
		s.now += 23_000
		s.deliver(s.now)
		s.make()
		pending, row := s.pending(), s.row(timer.RunID("t", t0+50_000))
		for range 3 {
			s.now += 1000
			events := s.do(s.timerRequest(schemas.OpTimer))
			require.Equal(t, []schemas.State{schemas.StateTimerSet}, states(events))
			require.Equal(t, int64(t0+30_000), events[0].Due)
			require.Equal(t, pending, s.pending())
			require.Equal(t, row, s.row(timer.RunID("t", t0+50_000)))
			require.Zero(t, s.make())
		}
		other := s.timerRequest(schemas.OpTimer, func(r *schemas.Request) { r.Value = []byte("other") })
		require.Equal(t, int64(t0+30_000), s.do(other)[0].Due)
		require.Empty(t, s.pending())
		s.make()
		require.Equal(t, pending, s.pending())
		require.Equal(t, "other", string(s.body(timer.RunID("t", t0+50_000)).Value))

		require.Equal(t, schemas.StateTimerDisabled, s.answer(s.timerRequest(schemas.OpTimerDisable)))
		require.Zero(t, s.do(s.timerRequest(schemas.OpTimer))[0].Due)
		require.Zero(t, s.make())
		require.Empty(t, s.pending(), "it stays disabled")
	})
}

func TestTimersThatMakeNoSenseAreRejected(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		past := int64(t0 - 1000)
		for reason, def := range map[string]schemas.Timer{
			`notyet-cron "0 0 30 2 *" never comes`:                     {Cron: "0 0 30 2 *"},
			`notyet-cron "61 * * * *" `:                                {Cron: "61 * * * *"},
			`notyet-jitter "48h0m0s" is 48h0m0s`:                       {Every: time.Hour, Jitter: 48 * time.Hour},
			`notyet-until "2023-11-14T22:13:19Z" `:                     {Every: time.Hour, Until: &past},
			`notyet-timezone "Europe/Nowhere" "Europe/Nowhere" is not`: {Every: time.Hour, Timezone: "Europe/Nowhere"},
		} {
			events := s.do(s.timerRequest(schemas.OpTimer, func(r *schemas.Request) { r.Timer = def }))
			require.Equal(t, schemas.StateRejected, events[0].State)
			require.Contains(t, events[0].Reason, reason)
		}
		require.Nil(t, s.timer())
		require.Equal(t, 5, s.count("dead_letters"))
	})
}

// TestChangedTimersLoseWhatIsNotClaimed: and nothing else, whatever became of its runs meanwhile.
func TestChangedTimersLoseWhatIsNotClaimed(t *testing.T) {
	for name, op := range map[string]schemas.Op{"replaced": schemas.OpTimer, "disabled": schemas.OpTimerDisable, "deleted": schemas.OpTimerDelete} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.timerRequest(schemas.OpTimer))
				s.make()
				own := schemas.NewRequest(schemas.OpSchedule, target, timer.RunID("t", t0+40_000))
				own.Due, own.Accepted = t0+45_000, t0
				s.do(&own) // a caller's own task in place of a run
				retry := timer.RunID("t", t0)
				s.claim(t0 + 20_000)
				s.settle(t0, s.transition(retry, task.StateRetry, t0+50_000, 1))
				events := s.do(s.timerRequest(op, every(time.Hour)))
				require.Len(t, events, 1)
				require.NotEqual(t, schemas.StateRejected, events[0].State)
				require.Equal(t, "claimed", s.state(timer.RunID("t", t0+20_000)), "claimed: it is delivered")
				require.Equal(t, "waiting_retry", s.state(retry))
				require.Equal(t, "pending", s.state(own.ID))
				require.Empty(t, s.state(timer.RunID("t", t0+30_000)))
				require.Len(t, s.last.Removed, 6, "30 s to 90 s, but for the caller's")
				if op != schemas.OpTimer {
					require.Zero(t, s.make())
				}
			})
		})
	}
}

func TestARequestAboutARunAndItsTimerAreDecidedApart(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.timerRequest(schemas.OpTimer))
		s.make()
		cancel := schemas.NewRequest(schemas.OpCancel, target, timer.RunID("t", t0+30_000))
		offset := s.offset
		_, err := s.Apply(s.ctx, s.batch(s.timerRequest(schemas.OpTimerDisable), &cancel), store.At(s.now))
		require.True(t, BadRecord(err), "the batch is cut: %v", err)
		s.offset = offset
		require.Equal(t, schemas.StateTimerDisabled, s.answer(s.timerRequest(schemas.OpTimerDisable)))
		require.Equal(t, schemas.StateNotFound, s.answer(&cancel))
	})
}

// TestRunsAreMadeByTheOwner: under its epoch, and once, whoever makes them.
func TestRunsAreMadeByTheOwner(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.timerRequest(schemas.OpTimer))
		s.own()
		first := s.epoch
		s.make()
		s.now += 20_000
		s.own()
		before := s.dump()
		_, err := s.MakeRuns(s.ctx, s.owned(first), s.now+ahead, s.now, tolerance, nil)
		require.ErrorIs(t, err, handle.ErrFenced)
		require.Equal(t, before, s.dump(), "nothing was made")
		require.Equal(t, 2, s.make())
		require.Equal(t, span(t0, s.now+ahead, 10_000), s.pending())
		require.NoError(t, s.Abandon(s.ctx, s.allSlots(), s.epoch))
		s.now += 20_000
		_, err = s.MakeRuns(s.ctx, s.owned(s.epoch), s.now+ahead, s.now, tolerance, nil)
		require.ErrorIs(t, err, handle.ErrFenced, "given back")
	})
}

func TestRunsAfterAnOutage(t *testing.T) {
	for misfire, want := range map[schemas.Misfire]struct{ made, dropped int }{
		schemas.MisfireOnce: {8, 360 - 10 - 6 - 1}, schemas.MisfireSkip: {7, 360 - 10 - 6}, schemas.MisfireAll: {360 - 10 + 1, 0},
	} {
		t.Run(misfire.String(), func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.timerRequest(schemas.OpTimer, func(r *schemas.Request) { r.Timer.Misfire = misfire }))
				s.make() // up to t0+90 s
				s.now += 3600_000
				dropped := 0
				for range 100 {
					made, err := s.MakeRuns(s.ctx, s.owned(s.epoch), s.now, s.now, tolerance, nil)
					require.NoError(t, err)
					for _, box := range made.Events {
						for _, e := range box.Events {
							require.Equal(t, schemas.KindMissed, e.Kind)
							dropped++
						}
					}
				}
				require.Equal(t, want.made, len(s.pending())-10)
				require.Equal(t, want.dropped, dropped)
				require.Zero(t, s.count("dead_letters"))
			})
		})
	}
}

// TestATimerThatCannotBeReadDelaysNobody: a version to come may have set it.
func TestATimerThatCannotBeReadDelaysNobody(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.timerRequest(schemas.OpTimer))
		other := s.timerRequest(schemas.OpTimer)
		other.ID = "unreadable"
		s.do(other)
		for _, definition := range []string{`{"moon":"full"}`, `not JSON`} {
			_, err := s.db.ExecContext(s.ctx, "UPDATE timers SET definition = ? WHERE id = ?", []byte(definition), []byte("unreadable"))
			require.NoError(t, err)
			skip := map[[16]byte]bool{}
			for range 3 {
				s.own()
				_, err = s.MakeRuns(s.ctx, s.owned(s.epoch), s.now+ahead, s.now, tolerance, skip)
				require.NoError(t, err)
			}
			require.Len(t, skip, 1)
			require.Len(t, s.pending(), int(s.now+ahead-t0)/10_000+1)
			s.now += 10_000
		}
		_, err := s.db.ExecContext(s.ctx, "UPDATE timers SET open = 0 WHERE id = ?", []byte("unreadable")) // as if it had made runs
		require.NoError(t, err)
		disable := s.timerRequest(schemas.OpTimerDisable)
		disable.ID = "unreadable"
		offset := s.offset
		_, err = s.Apply(s.ctx, s.batch(disable), store.At(s.now))
		require.True(t, BadRecord(err), "this request is refused, and the intake goes on: %v", err)
		s.offset = offset
	})
}

// TestATimerThatCannotBeReadCanBeGotRidOf: once none of its runs can be pending.
func TestATimerThatCannotBeReadCanBeGotRidOf(t *testing.T) {
	for op, want := range map[schemas.Op]schemas.State{schemas.OpTimer: schemas.StateTimerSet, schemas.OpTimerDisable: schemas.StateTimerDisabled, schemas.OpTimerDelete: schemas.StateTimerDeleted} {
		t.Run(op.String(), func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.timerRequest(schemas.OpTimer))
				s.make()
				_, err := s.db.ExecContext(s.ctx, "UPDATE timers SET definition = ?", []byte(`{"moon":"full"}`))
				require.NoError(t, err)
				next := s.timer().Next
				for _, claimed := range []int64{s.now, next, next + timer.LongestJitter.Milliseconds() - 1} {
					s.claim(claimed)
					offset := s.offset
					_, err := s.Apply(s.ctx, s.batch(s.timerRequest(op)), store.At(s.now))
					require.True(t, BadRecord(err), "a run may be pending: %v", err)
					s.offset = offset
				}
				s.claim(next + timer.LongestJitter.Milliseconds())
				require.Equal(t, want, s.answer(s.timerRequest(op)))
			})
		})
	}
}

// TestOnePageOfRunsIsBounded: by timers, by runs and by bytes.
func TestOnePageOfRunsIsBounded(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var requests []any
		for i := range 3 {
			r := s.timerRequest(schemas.OpTimer, every(time.Second))
			r.ID, r.Value = string(rune('a'+i)), make([]byte, 2<<20)
			requests = append(requests, r)
		}
		s.do(requests...)
		s.own()
		made, err := s.MakeRuns(s.ctx, s.owned(s.epoch), s.now+10_000, s.now, tolerance, nil)
		require.NoError(t, err)
		require.LessOrEqual(t, made.Runs, makeBytes/(2<<20)+1)
		require.Positive(t, made.Runs)
		total := made.Runs
		for made.Timers > 0 {
			made, err = s.MakeRuns(s.ctx, s.owned(s.epoch), s.now+10_000, s.now, tolerance, nil)
			require.NoError(t, err)
			total += made.Runs
		}
		require.Equal(t, 33, total)
	})
}

// TestTimersDeliverExactlyTheirRuns draws requests, takeovers, claims and pauses, and compares what is
// delivered with a small model: when claimed moves, the runs of the definition in force up to there.
func TestTimersDeliverExactlyTheirRuns(t *testing.T) {
	for seed := range uint64(5) {
		each(t, func(t *testing.T, s *fixture) {
			rng := rand.New(rand.NewPCG(seed, 7))
			want := map[int64]bool{}
			var def timer.Definition
			var since, claimed int64
			enabled := false
			s.own()
			for range 60 {
				switch rng.IntN(8) {
				case 0:
					r := s.timerRequest(schemas.OpTimer, every(time.Duration(1+rng.IntN(15))*time.Second))
					r.Timer.Misfire = schemas.MisfireAll
					if rng.IntN(3) == 0 {
						r.Timer = schemas.Timer{Cron: "*/7 * * * * *", Timezone: "UTC", Misfire: schemas.MisfireAll}
					}
					require.Equal(t, schemas.StateTimerSet, s.answer(r))
					next := timer.Definition{Cron: r.Timer.Cron, Every: r.Timer.Every, From: s.now}
					if next.Every > 0 && next.Every == def.Every {
						next.From = def.From // its rhythm
					}
					enabled = enabled || def == timer.Definition{}
					def, since = next, s.now
				case 1:
					if s.answer(s.timerRequest(schemas.OpTimerDisable)) == schemas.StateTimerDisabled {
						enabled = false
					}
				case 2:
					if s.answer(s.timerRequest(schemas.OpTimerEnable)) == schemas.StateTimerEnabled && !enabled {
						enabled, since = true, s.now
					}
				case 3:
					s.own()
				case 4:
					if rng.IntN(5) == 0 && s.answer(s.timerRequest(schemas.OpTimerDelete)) == schemas.StateTimerDeleted {
						enabled, def = false, timer.Definition{}
					}
				case 5:
					s.make()
				default:
					s.now += rng.Int64N(20_000)
					s.make()
					claimed = max(claimed, s.now+rng.Int64N(400))
					s.claim(claimed)
					s.settle(claimed)
					if enabled {
						schedule, err := timer.Parse(def)
						require.NoError(t, err)
						for run, ok := schedule.Next(since - 1); ok && run <= claimed; run, ok = schedule.Next(run) {
							want[run] = true
						}
					}
				}
			}
			rows, err := tables.Fetch(s.ctx, s.db, tables.ScanTask, "SELECT "+tables.TaskColumns+" FROM tasks")
			require.NoError(t, err)
			got := map[int64]bool{}
			for _, row := range rows {
				if row.Pos <= claimed {
					got[row.Due] = true
				}
			}
			require.Equal(t, want, got, "seed %d", seed)
		})
	}
}

func TestRunsAreNumberedOnce(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var a, b runNumbers
		require.NoError(t, a.reserve(s.ctx, s.Intake, 10, t0))
		require.NoError(t, b.reserve(s.ctx, s.Intake, 10, t0))
		var all []int64
		for _, r := range []*runNumbers{&a, &b} {
			seqs, err := r.take(10)
			require.NoError(t, err)
			all = append(all, seqs...)
		}
		_, err := s.db.ExecContext(s.ctx, "UPDATE meta SET value = 0 WHERE name = ?", runCounter) // as of a backup
		require.NoError(t, err)
		var c runNumbers
		require.NoError(t, c.reserve(s.ctx, s.Intake, 10, t0+1000))
		seqs, err := c.take(10)
		require.NoError(t, err)
		all = append(all, seqs...)
		slices.Sort(all)
		require.Len(t, slices.Compact(all), 30)
		_, err = c.take(2 * runBlock)
		require.Error(t, err)
		sources, err := s.DeliverySources(s.ctx)
		require.NoError(t, err)
		require.Equal(t, task.RunSource, sources[len(sources)-1].ID)
		require.NotEqual(t, sources[len(sources)-1].DeliveryKey(1, 1), sources[0].DeliveryKey(1, 1))
	})
}

// TestSlotsTakeTurns: a page of timers with much to do begins behind the slot that the page before ended in.
func TestSlotsTakeTurns(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var requests []any
		for i := range makeTimers + 50 {
			r := s.timerRequest(schemas.OpTimer)
			r.ID = "timer-" + strconv.Itoa(i)
			requests = append(requests, r)
		}
		s.do(requests...)
		rows, err := tables.Fetch(s.ctx, s.db, tables.ScanTimer, "SELECT "+tables.TimerColumns+" FROM timers")
		require.NoError(t, err)
		slotOf := map[[16]byte]int{}
		for _, r := range rows {
			slotOf[task.Ident(r.Topic, r.ID)] = r.Slot
		}
		owned := s.owned(1)
		for from := range owned {
			keys, last, err := s.dueTimers(s.ctx, slices.Concat(owned[from:], owned[:from]), s.now+ahead, nil, makeTimers, makeBytes)
			require.NoError(t, err)
			require.Len(t, keys, makeTimers)
			turn := func(slot int) int { return (slot - from + len(owned)) % len(owned) }
			served := map[[16]byte]bool{}
			for _, k := range keys {
				served[[16]byte(k.([]byte))] = true
				require.LessOrEqual(t, turn(slotOf[[16]byte(k.([]byte))]), turn(last))
			}
			for ident, slot := range slotOf {
				require.True(t, served[ident] || turn(slot) >= turn(last), "slot %d is before %d in a page from %d on", slot, last, from)
			}
		}
	})
}

// TestAReplacementKeepsRunsThatWaitForTheirJitter: and what comes after it takes them away, unless it is a replacement too.
func TestAReplacementKeepsRunsThatWaitForTheirJitter(t *testing.T) {
	for name, c := range map[string]struct {
		then []schemas.Op
		kept []int64 // seconds
	}{
		"replaced":                     {nil, []int64{0, 10, 20}},
		"replaced twice":               {[]schemas.Op{schemas.OpTimer}, []int64{0, 10, 20, 25, 35}},
		"replaced, enabled":            {[]schemas.Op{schemas.OpTimerEnable}, []int64{0, 10, 20}},
		"replaced, disabled":           {[]schemas.Op{schemas.OpTimerDisable}, nil},
		"replaced twice, disabled":     {[]schemas.Op{schemas.OpTimer, schemas.OpTimerDisable}, nil},
		"replaced, disabled, enabled":  {[]schemas.Op{schemas.OpTimerDisable, schemas.OpTimerEnable}, nil},
		"replaced, deleted":            {[]schemas.Op{schemas.OpTimerDelete}, nil},
		"replaced, deleted, set again": {[]schemas.Op{schemas.OpTimerDelete, schemas.OpTimer}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				jitter := func(r *schemas.Request) { r.Timer.Jitter, r.Timer.From = time.Hour, &r.Accepted }
				s.do(s.timerRequest(schemas.OpTimer, jitter))
				s.make()
				s.now += 25_000
				s.do(s.timerRequest(schemas.OpTimer, jitter, func(r *schemas.Request) { r.Value = []byte("new") }))
				s.make()
				s.now += 20_000
				for _, op := range c.then {
					s.do(s.timerRequest(op, jitter))
				}
				var kept []int64
				rows, err := tables.Fetch(s.ctx, s.db, tables.ScanTask, "SELECT "+tables.TaskColumns+" FROM tasks WHERE slot >= 0")
				require.NoError(t, err)
				for _, row := range rows {
					_, run, _ := timer.SplitRunID(row.ID)
					if set := s.timer(); set == nil || run < set.Definition.From {
						require.True(t, run >= t0+25_000 || string(s.body(row.ID).Value) == "v", "as it was made")
						kept = append(kept, (run-t0)/1000)
					}
				}
				slices.Sort(kept)
				require.Equal(t, c.kept, kept)
			})
		})
	}
}

// TestOfEarlierDefinitionsTheLatestAreKnown: however often a timer is replaced, and whatever fits into its row.
func TestOfEarlierDefinitionsTheLatestAreKnown(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		jitter := func(r *schemas.Request) { r.Timer.Jitter, r.Timer.From = time.Hour, &r.Accepted }
		for range task.MostKept + 3 {
			s.do(s.timerRequest(schemas.OpTimer, jitter))
			s.make()
			s.now += 25_000
		}
		kept := s.timer().Kept
		require.Len(t, kept, task.MostKept)
		require.True(t, slices.IsSortedFunc(kept, func(a, b task.Kept) int { return cmp.Compare(a.Open, b.Open) }))
		require.Equal(t, s.timer().Definition.From, kept[len(kept)-1].To, "the latest is the one before")

		long := timer.Definition{Cron: strings.Repeat("0,", 400) + "0 * * * *"}
		text, err := tables.EncodeDefinition(&task.Timer{Definition: long, Kept: []task.Kept{{Definition: long, Open: 1}, {Definition: long, Open: 2}}})
		require.NoError(t, err)
		require.LessOrEqual(t, len(text), tables.MaxDefinition)
		var stored tables.StoredDefinition
		require.NoError(t, json.Unmarshal(text, &stored))
		require.Equal(t, long, stored.Definition)
		require.Len(t, stored.Kept, 1)
		require.EqualValues(t, 2, stored.Kept[0].Open)
	})
}
