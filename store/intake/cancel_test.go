package intake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

func TestCancelPending(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"), s.schedule("b"))
		place := s.place("a")
		s.now += 5
		require.Equal(t, []schemas.Event{{Topic: target, ID: "a", State: schemas.StateCancelled, Due: t0 + 1000, At: s.now}}, s.do(s.cancel("a")))
		require.Equal(t, []handle.Place{place}, s.last.Removed)
		require.Empty(t, s.last.Added)
		require.Equal(t, "cancelled", s.state("a"))
		require.Empty(t, s.row("a").Body, "nobody needs it any more")

		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("a")), "repeated")
		require.Empty(t, s.last.Removed)

		s.claim(t0 + 10_000)
		entries, err := s.Entries(s.ctx, []line.Range{{Slot: 0, From: 0, To: s.now + 1e6}, {Slot: 1, From: 0, To: s.now + 1e6}, {Slot: 2, From: 0, To: s.now + 1e6}, {Slot: 3, From: 0, To: s.now + 1e6}})
		require.NoError(t, err)
		require.Len(t, entries, 1)
		require.Equal(t, s.row("b").Seq, entries[0].Seq)

		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a")), "an id whose task has ended may be used again")
		require.Equal(t, "pending", s.state("a"))
	})
}

// not_found leaves nothing behind: the schedule that follows is an ordinary one.
func TestCancelUnknown(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		require.Equal(t, schemas.StateNotFound, s.answer(s.cancel("a", tell(schemas.EventsNone))))
		require.Zero(t, s.count("tasks"))
		require.Equal(t, schemas.StateNotFound, s.answer(s.cancel("a")))
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a")))
	})
}

// After the claim the owner has it: too_late, and the delivery goes on.
func TestCancelTooLate(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"), s.schedule("b", wantReport), s.schedule("c", wantReport))
		s.claim(t0 + 999)
		require.Equal(t, "pending", s.state("a"), "one millisecond before the claim")
		s.claim(t0 + 1000)
		tooLate := func(id, when string) {
			t.Helper()
			want := s.row(id)
			if when == "claimed" {
				want.State = task.StateRetry // so that it stays out of reach: see TestTooLateHolds
			}
			events := s.do(s.cancel(id, version(9)))
			require.Len(t, events, 1, when)
			require.Equal(t, schemas.StateTooLate, events[0].State, when)
			require.EqualValues(t, t0+1000, events[0].Due)
			require.NotEmpty(t, events[0].Reason)
			require.Equal(t, want, s.row(id), when)
		}
		tooLate("a", "claimed")
		s.settle(t0+1000, s.transition("b", task.StateReport, t0+60_000, 1), s.transition("c", task.StateRetry, t0+9_000, 1))
		tooLate("a", "delivered")
		tooLate("b", "a report is awaited")
		tooLate("c", "a retry is due later")
		s.claim(t0 + 9_000)
		tooLate("c", "the retry is claimed")
		s.do(says("b", 1, schemas.StatusOK))
		tooLate("b", "succeeded")
		s.settle(t0+9_000, s.transition("c", task.StateDead, 0, 2))
		tooLate("c", "dead")
	})
}

// A cancel that overtakes its own schedule wins by its version.
func TestCancelWithVersionLeavesATombstone(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("a", version(5))))
		require.Equal(t, schemas.StateStale, s.answer(s.schedule("a", version(4))))
		require.Equal(t, schemas.StateStale, s.answer(s.schedule("a", version(5))))
		require.Equal(t, schemas.StateStale, s.answer(s.cancel("a", version(4))))
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("a", version(5))), "repeated")
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("a")), "repeated without a version")
		require.Equal(t, schemas.StateStale, s.answer(s.schedule("a", version(5))), "the repetition has not forgotten it")
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("a", version(7))))
		require.Equal(t, schemas.StateStale, s.answer(s.schedule("a", version(7))), "the tombstone has grown")
		require.Equal(t, schemas.StateNotFound, s.answer(s.fire("a", version(7))))

		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a", version(8))))
		require.EqualValues(t, 8, s.row("a").Version)
	})
}

// A versioned cancel of a pending task is remembered in the same way: its own schedule may come a second time.
func TestCancelPendingWithVersion(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", version(5)))
		require.Equal(t, schemas.StateStale, s.answer(s.cancel("a", version(4))))
		require.Equal(t, "pending", s.state("a"))
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("a", version(5))))
		require.Equal(t, schemas.StateStale, s.answer(s.schedule("a", version(5))))

		s.do(s.schedule("b", version(5)))
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("b")), "without a version: nothing but this task")
		require.Equal(t, schemas.StateStale, s.answer(s.schedule("b", version(4))), "whose version is remembered")
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("b", version(5))), "the cancel of version 5, late")
		require.Equal(t, schemas.StateStale, s.answer(s.schedule("b", version(5))), "holds off a schedule of version 5")

		s.do(s.schedule("c"))
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("c", version(0))))
		require.Equal(t, schemas.StateStale, s.answer(s.schedule("c", version(0))), "0 is a version like any other")
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("c")), "a request without a version applies")
		require.EqualValues(t, 0, s.row("c").Version, "and keeps the stored one")
	})
}

// Who was told too_late counts on a delivery: neither another cancel nor a replacement may come before it, though the owner
// gives the task back unsent.
func TestTooLateHolds(t *testing.T) {
	for name, ask := range map[string]func(s *fixture) *schemas.Request{
		"cancel": func(s *fixture) *schemas.Request { return s.cancel("a") },
		"fire":   func(s *fixture) *schemas.Request { return s.fire("a") },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", value("old")))
				s.claim(t0 + 2000)
				require.Equal(t, schemas.StateTooLate, s.answer(ask(s)))
				back := s.transition("a", task.StateLine, t0+5000, 0)
				_, err := s.Settle(s.ctx, s.doneUpTo(t0+2000, back), []line.Transition{back}, store.At(s.now))
				require.NoError(t, err)

				require.Equal(t, schemas.StateTooLate, s.answer(s.cancel("a")))
				s.do(s.schedule("a", value("new"), in(time.Hour)))
				s.resolve()
				require.Equal(t, "old", string(s.body("a").Value))
				require.Equal(t, "waiting_retry", s.state("a"))
				s.claim(t0 + 6000)
				s.settle(t0 + 6000)
				s.resolve()
				require.Equal(t, "new", string(s.body("a").Value), "once it is delivered")
				require.Equal(t, "pending", s.state("a"))
			})
		})
	}
}

func TestFire(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", in(time.Hour), version(3)))
		old, oldPlace := s.row("a"), s.place("a")
		s.now += 7
		require.Equal(t, schemas.StateStale, s.answer(s.fire("a", version(2))))
		require.Equal(t, []schemas.Event{{Topic: target, ID: "a", State: schemas.StateFired, Due: s.now, At: s.now}}, s.do(s.fire("a", tell(schemas.EventsNone))))
		row := s.row("a")
		require.Equal(t, []handle.Place{oldPlace}, s.last.Removed)
		require.Equal(t, []handle.Place{s.place("a")}, s.last.Added)
		require.Equal(t, s.now, row.Due, "the delivery's notyet-due is the time of the fire")
		require.Equal(t, s.now, row.Pos)
		require.Equal(t, old.Body, row.Body)
		require.EqualValues(t, 3, row.Version)

		s.claim(s.now)
		require.Equal(t, schemas.StateTooLate, s.answer(s.fire("a")))
		s.settle(s.now)
		require.Equal(t, schemas.StateTooLate, s.answer(s.fire("a")))
		require.Equal(t, schemas.StateNotFound, s.answer(s.fire("unknown", version(1))))
		require.Equal(t, 1, s.count("tasks"), "a fire of nothing leaves nothing")

		s.do(s.schedule("b"))
		s.do(s.cancel("b"))
		require.Equal(t, schemas.StateNotFound, s.answer(s.fire("b")), "it is not pending any more")
		require.Equal(t, "cancelled", s.state("b"))
	})
}

// A fire in a slot that was claimed far ahead is released by its due time, not by its place.
func TestFireBehindClaimed(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", in(time.Hour)))
		s.claim(t0 + 5000)
		require.Equal(t, schemas.StateFired, s.answer(s.fire("a", version(4))))
		require.EqualValues(t, t0, s.row("a").Due)
		require.EqualValues(t, t0+5001, s.row("a").Pos)
		require.EqualValues(t, 4, s.row("a").Version)
		require.Equal(t, "pending", s.state("a"))
	})
}
