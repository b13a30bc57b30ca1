package intake

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

// restart begins another life of the database. forget is what the life before had, and this one lacks.
func (f *fixture) restart(forget ...string) {
	f.t.Helper()
	f.h.Now, f.h.Life = nil, fmt.Sprintf("'after %d'", f.offset)
	for _, q := range forget {
		_, err := f.db.ExecContext(f.ctx, q)
		require.NoError(f.t, err)
	}
}

// unsureSlots are the slots that are unsure.
func (f *fixture) unsureSlots() (out []int) {
	f.t.Helper()
	slots, err := f.Slots(f.ctx)
	require.NoError(f.t, err)
	for _, s := range slots {
		if s.Unsure {
			out = append(out, s.Slot)
		}
	}
	return out
}

// A claim is forgotten, and the task looks pending: nothing is answered about it until its owner has had its say.
func TestNothingIsTakenAwayInAnotherLife(t *testing.T) {
	for name, ask := range map[string]func(*fixture) *schemas.Request{
		"cancel":                 func(s *fixture) *schemas.Request { return s.cancel("a") },
		"cancel, version":        func(s *fixture) *schemas.Request { return s.cancel("a", version(7)) },
		"fire":                   func(s *fixture) *schemas.Request { return s.fire("a") },
		"replacement":            func(s *fixture) *schemas.Request { return s.schedule("a", version(7)) },
		"a merge":                func(s *fixture) *schemas.Request { return s.schedule("a", merge(schemas.MergeLast)) },
		"keep, may be a new one": func(s *fixture) *schemas.Request { return s.schedule("a", keep) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", version(5)))
				s.claim(t0)
				before := s.row("a")
				s.claim(t0 + 1000)
				require.Empty(t, s.unsureSlots())

				s.restart(fmt.Sprintf("UPDATE slots SET claimed = %d", t0))
				require.Equal(t, s.allSlots(), s.unsureSlots())
				require.Equal(t, "pending", s.state("a"))
				require.Empty(t, s.do(ask(s)), "it waits")
				require.Equal(t, 1, s.last.Waiting)
				require.Nil(t, s.resolve(), "nobody has claimed the slot in this life")
				require.Equal(t, before, s.row("a"))

				// Its owner comes with what it had claimed, and takes the slots anew.
				var had []line.Had
				for _, slot := range s.allSlots() {
					had = append(had, line.Had{Slot: slot, Pos: t0 + 1000})
				}
				_, err := s.Acquire(s.ctx, s.allSlots(), s.epoch, "me", line.Known{Slots: had})
				require.NoError(t, err)
				answers := s.resolve()
				if r := ask(s); r.Op == schemas.OpSchedule {
					require.Nil(t, answers, "the task is in flight")
				} else {
					require.Equal(t, []schemas.State{schemas.StateTooLate}, answers)
				}
				require.Empty(t, s.unsureSlots())
				require.Equal(t, "claimed", s.state("a"))
				s.settle(t0 + 1000)
				require.Len(t, append(answers, s.resolve()...), 1, "its delivery has ended")
				require.NotEqual(t, "cancelled", s.state("a"))
			})
		})
	}
}

// Where no claim was forgotten, the owner's next claim is enough, also one that claims nothing more.
func TestAClaimMakesASlotSure(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"), s.schedule("b"), s.schedule("c"))
		s.claim(t0)
		s.restart()
		require.Empty(t, s.do(s.cancel("a"), s.schedule("b", value("new")), s.fire("c")))
		require.Equal(t, 3, s.last.Waiting)
		require.Nil(t, s.resolve())
		require.Empty(t, s.do(s.schedule("a", value("again"))), "behind the cancel")
		s.claim(t0)
		require.Empty(t, s.unsureSlots())
		require.ElementsMatch(t, []schemas.State{schemas.StateCancelled, schemas.StateScheduled, schemas.StateScheduled, schemas.StateFired}, s.resolve())
		require.Equal(t, "again", string(s.body("a").Value))
		require.Equal(t, "new", string(s.body("b").Value))
		require.Zero(t, s.count("waiting"))
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("a")))
	})
}

// A claim that is for one life moves nothing in another one, and makes no slot sure there.
func TestAClaimInOneLife(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.claim(t0)
		s.restart()
		s.claim(t0)
		first, _, err := s.Stand(s.ctx)
		require.NoError(t, err)
		claim := func(slots ...int) error {
			return s.In(&first).Claim(s.ctx, 0, slots, make([]int64, len(slots)), s.epoch, t0+1000)
		}
		require.NoError(t, claim(0))
		s.h.Life = "'another'"
		require.ErrorIs(t, claim(0, 1), line.ErrLife)
		require.ErrorIs(t, claim(0, 77), handle.ErrFenced)
		require.Equal(t, s.allSlots(), s.unsureSlots())
		require.EqualValues(t, t0, s.slotRow(1).Claimed)
		anyLife := func(to int64, slots ...int) error {
			return s.In(nil).Claim(s.ctx, 0, slots, make([]int64, len(slots)), s.epoch, to)
		}
		require.ErrorIs(t, anyLife(t0+1000, 0, 1), handle.ErrFenced, "an unsure slot does not move")
		require.NoError(t, anyLife(t0, 1))
		require.NoError(t, anyLife(t0+1000, 0, 1))
	})
}

// New tasks do not wait. The life before may have had the same ones, and a dispatcher may have them: what is asked of them next waits.
func TestNewTasksInAnotherLife(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.claim(t0)
		s.restart()
		require.Equal(t, []schemas.State{schemas.StateScheduled, schemas.StateScheduled}, states(s.do(s.schedule("a"), s.schedule("a", value("2")), s.schedule("b"), s.cancel("b"))))
		require.Equal(t, 2, s.last.Waiting)
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("c")))
		require.Equal(t, schemas.StateNotFound, s.answer(s.cancel("unknown")))
		require.Equal(t, schemas.StateKept, s.answer(s.schedule("c", once)))

		b := s.batch(s.cancel("forgotten, perhaps", version(1)))
		_, err := s.Apply(s.ctx, b, store.At(s.now))
		require.ErrorIs(t, err, handle.ErrUnsure)
		require.False(t, BadRecord(err))
		s.claim(t0)
		require.Equal(t, []schemas.State{schemas.StateCancelled}, states(s.apply(b)), "the same batch, again")
		require.ElementsMatch(t, []schemas.State{schemas.StateScheduled, schemas.StateCancelled}, s.resolve())
	})
}

// Nothing that comes before it in its batch makes a cancel of an unknown task sure, unless it makes the task.
func TestCancelOfAnUnknownTaskInAnotherLife(t *testing.T) {
	for name, before := range map[string]func(*fixture) any{
		"a report":          func(*fixture) any { return says("a", 1, schemas.StatusOK) },
		"a cancel":          func(s *fixture) any { return s.cancel("a") },
		"a rejected merge":  func(s *fixture) any { return s.schedule("a", merge(schemas.MergeSum), value("no JSON")) },
		"of an earlier one": func(s *fixture) any { return s.cancel("b") },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.claim(t0)
				s.restart()
				b := s.batch(before(s), s.cancel("a", version(3)))
				_, err := s.Apply(s.ctx, b, store.At(s.now))
				require.ErrorIs(t, err, handle.ErrUnsure)
				s.claim(t0)
				require.Contains(t, states(s.apply(b)), schemas.StateCancelled)
			})
		})
	}
}

// A run that its owner may have is not taken away with its timer: the timer that replaces it would make the run once more, and both would
// be delivered.
func TestTimerChangesInAnotherLife(t *testing.T) {
	for name, op := range map[string]schemas.Op{"replaced": schemas.OpTimer, "disabled": schemas.OpTimerDisable, "deleted": schemas.OpTimerDelete} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.timerRequest(schemas.OpTimer))
				require.Equal(t, 10, s.make())
				s.claim(t0)
				run := s.row(timer.RunID("t", t0+10_000))
				s.claim(t0 + 10_000)
				s.restart(fmt.Sprintf("UPDATE slots SET claimed = %d", t0))

				b := s.batch(s.timerRequest(op, func(r *schemas.Request) { r.Value = []byte("new") }))
				_, err := s.Apply(s.ctx, b, store.At(s.now))
				require.ErrorIs(t, err, handle.ErrUnsure)
				require.False(t, BadRecord(err))
				require.Zero(t, s.make())
				require.Equal(t, run, s.row(timer.RunID("t", t0+10_000)))

				s.claim(t0 + 10_000)
				s.apply(b)
				require.Empty(t, s.pending())
				require.Equal(t, run, s.row(timer.RunID("t", t0+10_000)), "its owner has it")
			})
		})
	}
}

// A cancel that waited for the owner is answered once the owner has the task, however long the task's attempts go on. What waits behind it,
// and a cancel that waits behind a replacement, wait on.
func TestWhatTheOwnerHasIsTooLate(t *testing.T) {
	for name, ask := range map[string]func(*fixture, string) *schemas.Request{
		"cancel": func(s *fixture, id string) *schemas.Request { return s.cancel(id) },
		"fire":   func(s *fixture, id string) *schemas.Request { return s.fire(id) },
	} {
		for _, when := range []string{"in flight", "waits for a report"} {
			t.Run(name+", "+when, func(t *testing.T) {
				each(t, func(t *testing.T, s *fixture) {
					s.do(s.schedule("a", wantReport), s.schedule("b", wantReport))
					s.claim(t0 - 1000)
					s.restart()
					require.Empty(t, s.do(ask(s, "a"), s.schedule("a", value("new")), s.schedule("b", value("new")), ask(s, "b")))
					require.Nil(t, s.resolve())
					s.claim(t0 + 1000)
					if when != "in flight" {
						s.settle(t0+1000, s.transition("a", task.StateReport, t0+61_000, 1), s.transition("b", task.StateReport, t0+61_000, 1))
					}
					require.Equal(t, []schemas.State{schemas.StateTooLate}, s.resolve())
					require.Nil(t, s.resolve(), "and nothing is looked at again and again")
					require.Equal(t, 3, s.count("waiting"))
				})
			})
		}
	}
}

// A report on an attempt waits as long as a later one may be on its way. A cancel of what waits for a report is too late in any life.
func TestReportsInAnotherLife(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport))
		s.awaitReport("a", 1)
		s.restart()
		require.Equal(t, schemas.StateTooLate, s.answer(s.cancel("a")))
		require.Empty(t, s.do(says("a", 1, schemas.StatusOK)))
		require.Nil(t, s.resolve())
		s.claim(s.now)
		require.Equal(t, []schemas.State{schemas.StateSucceeded}, s.resolve())
	})
}

// The owner itself decides reports of what it settles.
func TestAnOwnerSettlesInAnotherLife(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport))
		s.claim(t0 + 1000)
		require.Empty(t, s.do(says("a", 1, schemas.StatusOK)))
		s.restart()
		s.settle(t0+1000, s.transition("a", task.StateReport, t0+61_000, 1))
		require.Equal(t, "succeeded", s.state("a"))
	})
}

// More than can wait is tried again, and not rejected: room comes with the next claim.
func TestTooManyInAnotherLife(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"))
		s.claim(t0)
		s.restart()
		many := make([]any, schemas.MaxWaiting+1)
		for i := range many {
			many[i] = s.schedule("a", value(fmt.Sprint(i)))
		}
		b := s.batch(many...)
		_, err := s.Apply(s.ctx, b, store.At(s.now))
		require.ErrorIs(t, err, handle.ErrUnsure)
		s.claim(t0)
		s.apply(b)
		require.Equal(t, fmt.Sprint(schemas.MaxWaiting), string(s.body("a").Value))
	})
}

// A dispatcher of the version before does not say in which life it takes and claims.
func TestAnOwnerOfTheVersionBefore(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"))
		s.restart(fmt.Sprintf("UPDATE slots SET epoch = 1, owner = 'old', claimed = %d", t0))
		require.Empty(t, s.unsureSlots())
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("a")))
	})
}

// The first dispatcher that an installation ever had may be forgotten too.
func TestSlotsThatNobodyHad(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		require.Empty(t, s.unsureSlots())
		s.restart()
		require.Equal(t, s.allSlots(), s.unsureSlots())
		s.own()
		require.Empty(t, s.unsureSlots())
	})
}

// An owner brings with it how far it had claimed. Slots of a later owner stay as they are.
func TestAcquireWithMoreThanTheDatabaseHas(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.claim(t0)
		_, err := s.Acquire(s.ctx, []int{3}, s.epoch+2, "later")
		require.NoError(t, err)
		had := []line.Had{{Slot: 0, Pos: t0 + 5}, {Slot: 1, Pos: t0 - 5}, {Slot: 3, Pos: t0 + 5}}
		got, err := s.Acquire(s.ctx, s.allSlots(), s.epoch+1, "me", line.Known{Slots: had})
		require.NoError(t, err)
		claimed := func(slots []store.Slot) (out []int64) {
			for _, slot := range slots {
				out = append(out, slot.Claimed)
			}
			return out
		}
		require.Equal(t, []int64{t0 + 5, t0, t0}, claimed(got))
		all, err := s.Slots(s.ctx)
		require.NoError(t, err)
		require.Equal(t, []int64{t0 + 5, t0, t0, t0}, claimed(all))
	})
}

// All connections to one server see one life, whenever they ask, and its name is short enough for its column.
func TestLifeOfAServer(t *testing.T) {
	for _, b := range backends() {
		if b.sqlite {
			continue
		}
		cfg := b.fresh(t)
		var lives []string
		var seconds []int64
		for len(seconds) < 3 { // the server's clock has shown as many
			s := open(t, cfg)
			var life string
			var second int64
			require.NoError(t, handle.Of(s).DB.QueryRowContext(t.Context(), "SELECT "+handle.Of(s).Life+", UNIX_TIMESTAMP()").Scan(&life, &second))
			require.NoError(t, s.Close())
			require.Len(t, life, 32)
			if len(lives) == 0 || lives[len(lives)-1] != life {
				lives = append(lives, life)
			}
			if len(seconds) == 0 || seconds[len(seconds)-1] != second {
				seconds = append(seconds, second)
			}
		}
		require.Len(t, lives, 1)
	}
}

// takings are how an owner may tell the database what its producers have.
var takings = map[string]func(s *fixture, known line.Known) error{
	"the slots are taken anew": func(s *fixture, known line.Known) error {
		_, err := s.Acquire(s.ctx, s.allSlots(), s.epoch+1, "me", known)
		return err
	},
	"the slots are given away": func(s *fixture, known line.Known) error { return s.Abandon(s.ctx, s.allSlots(), s.epoch, known) },
}

// What a producer has cannot be cancelled, wherever the database has its row; what nobody has can, and what has ended stays as it is.
func TestWhatProducersHaveIsOutOfReach(t *testing.T) {
	for name, take := range takings {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				var known line.Known
				sent := func(attempt int, ids ...string) {
					for _, id := range ids {
						known.Sent = append(known.Sent, line.Sent{Seq: s.row(id).Seq, Number: task.SendNumber(0, attempt)})
					}
				}
				s.do(s.schedule("report", wantReport), s.schedule("told", wantReport))
				s.now += 1000
				s.claim(s.now)
				s.settle(s.now, s.transition("report", task.StateReport, s.now+60_000, 1), s.transition("told", task.StateReport, s.now+60_000, 1))
				s.do(s.schedule("retry", wantReport))
				s.retry("retry", time.Hour)
				s.do(s.schedule("done", in(time.Millisecond)), s.schedule("held", in(time.Millisecond)))
				s.now += 10
				s.claim(s.now)
				s.hold("held")
				require.True(t, task.IsHeld(s.row("held").Pos))
				sent(2, "report", "retry")
				sent(1, "told", "done", "held")
				known.Sent = append(known.Sent, line.Sent{Seq: 1 << 60, Number: 1})
				many := make([]any, tables.MaxRows+10)
				for i := range many {
					many[i] = s.schedule(fmt.Sprint("many", i), in(time.Hour))
				}
				s.do(append(many, s.schedule("free", in(time.Hour)))...)
				for i := range many {
					sent(1, fmt.Sprint("many", i))
				}
				s.restart()
				require.NoError(t, take(s, known))
				require.NoError(t, take(s, known), "once more")
				if name == "the slots are given away" {
					s.own()
				}
				for _, id := range []string{"held", "many0", fmt.Sprint("many", len(many)-1)} {
					require.Equal(t, schemas.StateTooLate, s.answer(s.cancel(id)), id)
				}
				require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("free")))
				require.Empty(t, s.do(s.stop("report"), s.stop("retry"), s.stop("held")), "attempts of which the database knows nothing are under way")
				require.Equal(t, schemas.StateStopped, s.answer(s.stop("told")))
				require.Equal(t, task.StateLine, s.row("done").State)
			})
		})
	}
}

// The same, if the database has forgotten even the request: it is read again behind the taking, in one batch with its cancel or before.
func TestWhatProducersHaveIsOutOfReachBeforeItIsReadAgain(t *testing.T) {
	for name, take := range takings {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				offset := s.offset
				requests := func() []any {
					return []any{s.schedule("one", in(time.Millisecond)), s.schedule("two", in(time.Millisecond)), s.schedule("free", in(time.Millisecond)), s.schedule("fired", in(time.Hour)), s.schedule("reported", in(time.Millisecond), wantReport)}
				}
				s.do(requests()...)
				var known line.Known
				for id, attempts := range map[string]int{"one": 1, "two": 1, "fired": 1, "reported": 2} {
					row := s.row(id)
					known.Sent = append(known.Sent, line.Sent{Slot: row.Slot, Seq: row.Seq, Number: task.SendNumber(0, attempts)})
				}
				s.restart("DELETE FROM tasks", fmt.Sprintf("UPDATE sources SET next_offset = %d WHERE src = %d", offset, s.source.ID))
				s.offset = offset
				require.NoError(t, take(s, known))
				require.NoError(t, take(s, known), "once more")
				if name == "the slots are given away" {
					s.own()
				}
				again := s.batch(append(requests(), s.cancel("one"))...)
				for i := range again.Changes {
					again.Changes[i].Again = true
				}
				told := map[string]schemas.State{}
				for _, e := range s.apply(again) {
					told[e.ID] = e.State
				}
				require.Equal(t, schemas.StateTooLate, told["one"])
				require.Equal(t, schemas.StateTooLate, s.answer(s.cancel("two")))
				require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("free")))
				require.Equal(t, schemas.StateTooLate, s.answer(s.fire("fired")))
				require.Empty(t, s.do(s.schedule("two", in(time.Hour))), "it waits for the delivery")
				undecided, err := s.Undecided(s.ctx, math.MaxInt64)
				require.NoError(t, err)
				require.Zero(t, undecided)
				for _, id := range []string{"one", "two", "fired", "reported"} {
					require.Equal(t, task.StateRetry, s.row(id).State, id)
				}
				s.now += 1000
				s.claim(s.now)
				reported := s.row("reported")
				s.settle(s.now, s.transition("reported", task.StateReport, s.now+60_000, 1))
				require.Equal(t, "waiting_retry", s.state("fired"), "it is sent again when it is due, because nobody has read the fire yet")
				require.Equal(t, []schemas.State{schemas.StateScheduled}, s.resolve())
				require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("two")))
				require.Equal(t, schemas.StateSucceeded, s.answer(s.about(reported, 1, schemas.StatusOK)))
			})
		})
	}
}
