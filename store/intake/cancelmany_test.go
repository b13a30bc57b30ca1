package intake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/outbox"
	"github.com/notyet/notyet/task"
)

func noRest(context.Context, time.Duration) error { return nil }

// cancelAll cancels piece by piece and adds up what was done.
func (f *fixture) cancelAll(filter CancelFilter) Cancelled {
	f.t.Helper()
	var all Cancelled
	for {
		done, err := f.CancelPiece(f.ctx, filter, all.Entry, noRest)
		require.NoError(f.t, err)
		all.Cancelled, all.TooLate, all.Entry = all.Cancelled+done.Cancelled, all.TooLate+done.TooLate, done.Entry
		all.Removed, all.Events = append(all.Removed, done.Removed...), append(all.Events, done.Events...)
		if filter.After = done.More; filter.After == nil {
			return all
		}
	}
}

func TestCancelManyIsManyCancels(t *testing.T) {
	for name, c := range map[string]struct {
		filter  CancelFilter
		cancels []string
		tooLate []string
	}{
		"all":               {CancelFilter{}, []string{"a1", "a2", "a9", "b1", "other"}, []string{"claimed", "waits"}},
		"topic":             {CancelFilter{Topic: target}, []string{"a1", "a2", "a9", "b1"}, []string{"claimed", "waits"}},
		"topic and prefix":  {CancelFilter{Topic: target, IDPrefix: "a"}, []string{"a1", "a2", "a9"}, nil},
		"prefix":            {CancelFilter{IDPrefix: "a"}, []string{"a1", "a2", "a9"}, nil},
		"prefix of none":    {CancelFilter{IDPrefix: "A"}, nil, nil},
		"prefix of claimed": {CancelFilter{IDPrefix: "cl"}, nil, []string{"claimed"}},
		"from":              {CancelFilter{From: t0 + 50_000}, []string{"a9"}, []string{"waits"}},
		"to":                {CancelFilter{Topic: target, From: t0 + 25_000, To: t0 + 40_000}, []string{"a2"}, nil},
		"to, not included":  {CancelFilter{Topic: target, IDPrefix: "a", To: t0 + 31_000}, []string{"a1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("waits", wantReport))
				s.awaitReport("waits", 1)
				s.do(s.schedule("a1", in(20*time.Second)), s.schedule("a2", in(30*time.Second)), s.schedule("a9", in(90*time.Second)), s.schedule("b1", in(20*time.Second)),
					s.schedule("claimed", in(0)), s.schedule("other", in(20*time.Second), func(r *schemas.Request) { r.Topic = "bills" }))
				s.claim(s.row("claimed").Pos)
				s.do(s.schedule("ended", in(25*time.Second)), s.cancel("ended"))
				before := s.dump()
				places := map[int64]handle.Place{}
				for _, id := range []string{"a1", "a2", "a9", "b1"} {
					places[s.place(id).Seq] = s.place(id)
				}

				done := s.cancelAll(c.filter)
				require.EqualValues(t, len(c.cancels), done.Cancelled)
				require.EqualValues(t, len(c.tooLate), done.TooLate)
				require.Len(t, done.Removed, len(c.cancels))
				for _, p := range done.Removed {
					if was, ok := places[p.Seq]; ok {
						require.Equal(t, was, p, "for the index")
					}
				}
				told := map[string]schemas.State{}
				pending := s.pendingEvents(100, outbox.TransitionSource)
				require.Equal(t, len(done.Events), len(pending), "they wait in the outbox until they are published")
				for _, box := range pending {
					for _, e := range box.Events {
						require.NotZero(t, e.At)
						require.Empty(t, e.Request)
						told[e.ID] = e.State
					}
				}
				require.Len(t, told, len(c.cancels)+len(c.tooLate))
				for _, id := range c.cancels {
					require.Equal(t, schemas.StateCancelled, told[id])
				}
				for _, id := range c.tooLate {
					require.Equal(t, schemas.StateTooLate, told[id])
				}
				if len(told) == 0 {
					require.Equal(t, before, s.dump())
				}
				for _, id := range c.cancels {
					if id != "other" {
						require.Equal(t, "cancelled", s.state(id))
						require.Empty(t, s.row(id).Body)
						require.Equal(t, schemas.StateCancelled, s.answer(s.cancel(id)), "a cancel of its own is a repeated one")
					}
				}
				require.Zero(t, s.cancelAll(c.filter).Cancelled, "repeated")
			})
		})
	}
}

// A task that was told too late is delivered, even where its owner gives it back.
func TestCancelManyKeepsItsPromiseOfTooLate(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"))
		s.claim(t0 + 2000)
		require.EqualValues(t, 1, s.cancelAll(CancelFilter{Topic: target}).TooLate)
		back := s.transition("a", task.StateLine, t0+5000, 0)
		s.settle(t0+2000, back)
		require.Equal(t, "waiting_retry", s.state("a"))
		require.EqualValues(t, 1, s.cancelAll(CancelFilter{Topic: target}).TooLate)
	})
}

// What waited for the task came before the cancel, and is decided before it.
func TestCancelManyComesAfterWhatWaits(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", value("old")))
		s.claim(t0 + 2000)
		require.Empty(t, s.do(s.schedule("a", value("new"), in(time.Hour))), "it waits")
		back := s.transition("a", task.StateLine, t0+5000, 0)
		s.settle(t0+2000, back)
		require.Equal(t, "pending", s.state("a"))
		require.Equal(t, 1, s.count("waiting"))
		require.EqualValues(t, 1, s.cancelAll(CancelFilter{Topic: target}).Cancelled)
		require.Zero(t, s.count("waiting"))
		require.Equal(t, "cancelled", s.state("a"))
		require.Empty(t, s.resolve())
	})
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", value("old")))
		s.claim(t0 + 2000)
		require.Empty(t, s.do(s.schedule("a", value("new"), in(time.Hour))), "it waits")
		back := s.transition("a", task.StateLine, t0+5000, 0)
		s.settle(t0+2000, back)
		require.Zero(t, s.cancelAll(CancelFilter{Topic: target, To: t0 + 60_000}).Cancelled, "the replacement is not due in that time")
		require.Equal(t, "new", string(s.body("a").Value))
		require.Equal(t, "pending", s.state("a"))
	})
}

// An id that gets requests as fast as they are decided holds up nobody: what comes after the cancel is
// decided after it.
func TestCancelManyEndsWhateverComesMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		more := func(n int) { // this decides some of those before, as a scanner does
			var requests []any
			for range n {
				requests = append(requests, s.schedule("a", value("later"), in(time.Hour)))
			}
			s.do(requests...)
		}
		s.do(s.schedule("a", value("first")), s.schedule("b", in(time.Minute)))
		s.claim(t0 + 2000)
		more(2*waitingPiece + 100)
		s.settle(t0+2000, s.transition("a", task.StateLine, t0+5000, 0))
		rounds := 0
		done, err := s.CancelPiece(s.ctx, CancelFilter{Topic: target}, 0, func(context.Context, time.Duration) error {
			if rounds++; rounds > 10 {
				return errors.New("it does not come to an end")
			}
			if s.state("a") == "pending" {
				more(2*waitingPiece + 50)
				require.Greater(t, s.count("waiting"), waitingPiece, "more than one transaction decides")
			}
			return nil
		})
		require.NoError(t, err)
		require.EqualValues(t, 2, done.Cancelled)
		require.Equal(t, "cancelled", s.state("a"))
		require.NotZero(t, s.count("waiting"))
		s.resolve()
		require.Equal(t, "pending", s.state("a"), "a task of the requests that came later")
	})
}

// A piece that has no more time while it waits for what came before says where to go on: at its beginning.
func TestCancelManyWaitsNoLongerThanItMay(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", value("first")), s.schedule("b", in(time.Minute)))
		s.claim(t0 + 2000)
		var requests []any
		for range waitingPiece + 50 {
			requests = append(requests, s.schedule("a", value("later"), in(time.Hour)))
		}
		require.Empty(t, s.do(requests...), "they wait")
		s.settle(t0+2000, s.transition("a", task.StateLine, t0+5000, 0))
		f := CancelFilter{Topic: target, Ends: time.Now()}
		done, err := s.CancelPiece(s.ctx, f, 0, noRest)
		require.NoError(t, err)
		require.EqualValues(t, 1, done.Cancelled)
		require.NotNil(t, done.More)
		f.After = done.More
		done, err = s.CancelPiece(s.ctx, f, done.Entry, noRest)
		require.NoError(t, err)
		require.EqualValues(t, 1, done.Cancelled)
		require.Nil(t, done.More)
		require.Equal(t, "cancelled", s.state("a"))
		require.Equal(t, "cancelled", s.state("b"))
	})
}

// Each piece, and each of its transactions, is bounded, and one entry of the audit log counts all.
func TestCancelManyInPieces(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		const tasks = 2*cancelPiece + 40
		var all []any
		for i := range tasks {
			all = append(all, s.schedule(fmt.Sprint("t", i), in(time.Duration(i)*time.Millisecond+time.Hour)))
		}
		s.do(all...)
		s.by(admin.AuditEntry{What: "cancel many", Detail: "{}"})
		piece, err := s.CancelPiece(s.ctx, CancelFilter{Topic: target}, 0, noRest)
		require.NoError(t, err)
		require.EqualValues(t, cancelPiece, piece.Cancelled)
		require.NotNil(t, piece.More)
		require.NotZero(t, piece.Entry)
		next, err := s.CancelPiece(s.ctx, CancelFilter{Topic: target, After: piece.More}, piece.Entry, noRest)
		require.NoError(t, err)
		require.EqualValues(t, cancelPiece, next.Cancelled)
		require.Equal(t, piece.Entry, next.Entry)
		require.EqualValues(t, 40, s.cancelAll(CancelFilter{Topic: target}).Cancelled)
		s.ctx = t.Context()
		found := s.audited()
		require.EqualValues(t, []int64{40, 2 * cancelPiece}, []int64{found[0].Count, found[1].Count})
		require.Len(t, found, 2)
	})
}

func TestCancelManyBoundsTheBytesOfATransaction(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		big := string(bytes.Repeat([]byte("x"), cancelBytes/4))
		for i := range 6 {
			s.do(s.schedule(fmt.Sprint(i), value(big)))
		}
		var left []int
		done, err := s.CancelPiece(s.ctx, CancelFilter{Topic: target}, 0, func(context.Context, time.Duration) error {
			left = append(left, len(s.listed(look.ListFilter{Topic: target})))
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, []int{2, 0}, left)
		require.EqualValues(t, 6, done.Cancelled)
	})
}

// A task that is replaced after it was listed is found by its identity, and bounds count what it has become.
func TestCancelManyFindsWhatWasReplacedMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var records []any
		for i := range cancelTasks {
			records = append(records, s.schedule(fmt.Sprintf("o-%03d", i), tagged("all")))
		}
		big := string(bytes.Repeat([]byte("x"), cancelBytes))
		soon, far := in(2*time.Second), in(time.Hour)
		for _, id := range []string{"stays", "grows", "grows-too", "leaves", "loses-its-tag", "ends"} {
			records = append(records, s.schedule(id, soon, tagged("all")))
		}
		s.do(records...)
		transactions := 0
		done, err := s.CancelPiece(s.ctx, CancelFilter{Tag: "all", To: t0 + 60_000}, 0, func(context.Context, time.Duration) error {
			if transactions++; transactions == 1 {
				s.do(s.schedule("grows", soon, tagged("all"), value(big)))
				s.do(s.schedule("grows-too", soon, tagged("all"), value(big)))
				s.do(s.schedule("leaves", far, tagged("all")), s.schedule("loses-its-tag", soon), s.cancel("ends"))
			}
			return nil
		})
		require.NoError(t, err)
		require.Nil(t, done.More)
		require.Equal(t, 5, transactions, "the first; one of those that still have their rows; each large one alone; the last two")
		for id, state := range map[string]string{"stays": "cancelled", "grows": "cancelled", "grows-too": "cancelled", "leaves": "pending", "loses-its-tag": "pending", "ends": "cancelled"} {
			require.Equal(t, state, s.state(id), id)
		}
	})
}

func TestCancelledByFilterIsNeverTaken(t *testing.T)   { holds(t, sweepingChanges) }
func TestTakingTheCancelledByFilterShows(t *testing.T) { notices(t, noSharedLock, sweepingChanges) }

// sweepingChanges cancels tasks by their prefix.
func sweepingChanges(s *fixture) *violations {
	return aboutWhenTaken(s, func(w *writer, prefix string, seqs map[string]int64) {
		done, err := w.CancelPiece(s.ctx, CancelFilter{Topic: target, IDPrefix: prefix}, 0, noRest)
		if err != nil {
			w.v.fail(err)
		}
		for _, box := range done.Events {
			for _, e := range box.Events {
				if e.State == schemas.StateCancelled {
					delete(seqs, e.ID)
				}
			}
		}
	})
}

// A cancel of many goes on for as long as 40 s, with the time of when its piece began. A report that comes meanwhile, and is decided by
// the cancel, gets a backoff that counts from before the report.
func TestBackoffOfAReportFoundByACancelOfMany(t *testing.T) {
	eachEmbedded(t, func(t *testing.T, s *fixture) {
		var records []any
		for i := range cancelTasks {
			records = append(records, s.schedule(fmt.Sprintf("o-%03d", i)))
		}
		s.do(append(records, s.schedule("z", in(1500*time.Millisecond), wantReport, fixedBackoff(5*time.Second)))...)
		s.h.Now = func() time.Time { return time.UnixMilli(s.now) }
		s.claim(t0 + 2000)
		rested := false
		_, err := s.CancelPiece(s.ctx, CancelFilter{Topic: target}, 0, func(context.Context, time.Duration) error {
			if !rested {
				rested = true
				s.now += 20_000 // a transaction that waits for a lock, and the rest after it
				s.do(says("z", 1, schemas.StatusRetry))
				_, err := s.Settle(s.ctx, nil, []line.Transition{s.transition("z", task.StateReport, s.now+60_000, 1)}, store.At(s.now))
				require.NoError(t, err)
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, "waiting_retry", s.state("z"))
		require.GreaterOrEqual(t, s.row("z").Pos, s.now+5000, "the backoff counts from the report; early by %d ms", s.now+5000-s.row("z").Pos)
	})
}
