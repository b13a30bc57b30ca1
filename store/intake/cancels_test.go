package intake

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// sweeper cancels many as the API and a scanner do, in a partition of its own.
type sweeper struct {
	Intake
	source Source
	next   int64
	audit  int64
	now    func() int64
}

func newSweeper(ctx context.Context, in Intake, partition int32, now func() int64) (*sweeper, error) {
	source, err := in.Source(ctx, "cancels", [16]byte{2}, partition, 0)
	return &sweeper{Intake: in, source: source, now: now}, err
}

// list returns the record for the next page of a list.
func (w *sweeper) list(ctx context.Context, f look.ListFilter) (task.Cancels, *look.ListPlace, error) {
	many, more, err := look.New(w.h.Ref()).ListCancels(ctx, f)
	if many.Audit = w.audit; err == nil {
		var id []byte
		id, err = tables.ReadMeta(ctx, w.h.DB, handle.InstallationID)
		many.Installation = string(id)
	}
	return many, more, err
}

// decide has a record stored.
func (w *sweeper) decide(ctx context.Context, many task.Cancels) (swept, error) {
	if len(many.Tasks) == 0 {
		return swept{}, nil
	}
	b := Batch{Advance: []Advance{{w.source.ID, w.next, w.next + 1}}, Changes: []task.Change{{Seq: task.Seq(w.source.ID, w.next), Cancels: &many}}}
	applied, err := w.Apply(ctx, b, w.now)
	if err != nil {
		return swept{}, err
	}
	w.next++
	out := swept{Applied: applied}
	for _, e := range out.events() {
		switch e.State {
		case schemas.StateCancelled:
			out.Cancelled++
		case schemas.StateTooLate:
			out.TooLate++
		}
	}
	return out, nil
}

// swept is what cancels of many have done.
type swept struct {
	Applied
	Cancelled, TooLate int64
}

func (s swept) events() (out []schemas.Event) {
	for _, box := range s.Events {
		out = append(out, box.Events...)
	}
	return out
}

// sweeper is the fixture's own.
func (f *fixture) sweeper() *sweeper {
	f.t.Helper()
	if f.sweeps == nil {
		var err error
		f.sweeps, err = newSweeper(f.ctx, f.Intake, 0, func() int64 { return f.now })
		require.NoError(f.t, err)
	}
	return f.sweeps
}

// cancelAll cancels page by page and adds up what was done.
func (f *fixture) cancelAll(filter look.ListFilter) (all swept) {
	f.t.Helper()
	for w := f.sweeper(); ; {
		many, more, err := w.list(f.ctx, filter)
		require.NoError(f.t, err)
		done, err := w.decide(f.ctx, many)
		require.NoError(f.t, err)
		all.Cancelled, all.TooLate = all.Cancelled+done.Cancelled, all.TooLate+done.TooLate
		all.Removed, all.Events = append(all.Removed, done.Removed...), append(all.Events, done.Events...)
		if filter.After = more; more == nil {
			return all
		}
	}
}

func TestCancelManyIsManyCancels(t *testing.T) {
	for name, c := range map[string]struct {
		filter  look.ListFilter
		cancels []string
		tooLate []string
	}{
		"all":               {look.ListFilter{}, []string{"a1", "a2", "a9", "b1", "other"}, []string{"claimed", "waits"}},
		"topic":             {look.ListFilter{Topic: target}, []string{"a1", "a2", "a9", "b1"}, []string{"claimed", "waits"}},
		"topic and prefix":  {look.ListFilter{Topic: target, IDPrefix: "a"}, []string{"a1", "a2", "a9"}, nil},
		"prefix":            {look.ListFilter{IDPrefix: "a"}, []string{"a1", "a2", "a9"}, nil},
		"prefix of none":    {look.ListFilter{IDPrefix: "A"}, nil, nil},
		"prefix of claimed": {look.ListFilter{IDPrefix: "cl"}, nil, []string{"claimed"}},
		"from":              {look.ListFilter{From: t0 + 50_000}, []string{"a9"}, []string{"waits"}},
		"to":                {look.ListFilter{Topic: target, From: t0 + 25_000, To: t0 + 40_000}, []string{"a2"}, nil},
		"to, not included":  {look.ListFilter{Topic: target, IDPrefix: "a", To: t0 + 31_000}, []string{"a1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("waits", wantReport))
				s.awaitReport("waits", 1)
				s.do(s.schedule("a1", in(20*time.Second)), s.schedule("a2", in(30*time.Second), version(4)), s.schedule("a9", in(90*time.Second)), s.schedule("b1", in(20*time.Second)),
					s.schedule("claimed", in(0)), s.schedule("other", in(20*time.Second), func(r *schemas.Request) { r.Topic = "bills" }))
				s.claim(s.row("claimed").Pos)
				s.do(s.schedule("ended", in(25*time.Second)), s.cancel("ended"))
				w := s.sweeper()
				before, places := s.dump(), map[int64]handle.Place{}
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
				pending := s.pendingEvents(100, w.source.ID)
				require.Equal(t, len(done.Events), len(pending), "they wait in the outbox until they are published")
				for _, box := range pending {
					for _, e := range box.Events {
						require.NotZero(t, e.At)
						require.Equal(t, "cancels/0/0", e.Request, "the place of the record")
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
		require.EqualValues(t, 1, s.cancelAll(look.ListFilter{Topic: target}).TooLate)
		back := s.transition("a", task.StateLine, t0+5000, 0)
		s.settle(t0+2000, back)
		require.Equal(t, "waiting_retry", s.state("a"))
		require.EqualValues(t, 1, s.cancelAll(look.ListFilter{Topic: target}).TooLate)
	})
}

// A cancel is about what was listed: whatever else has the identity by the time it is decided is left alone.
func TestCancelManyLeavesAloneWhatWasNotListed(t *testing.T) {
	for name, change := range map[string]func(s *fixture) any{
		"replaced":               func(s *fixture) any { return s.schedule("a", in(time.Hour), tagged("all"), value("new")) },
		"merged":                 func(s *fixture) any { return s.schedule("a", in(time.Hour), tagged("all"), merge(schemas.MergeLast)) },
		"fired":                  func(s *fixture) any { return s.fire("a") },
		"cancelled and made new": func(s *fixture) any { s.do(s.cancel("a")); return s.schedule("a", in(time.Hour), tagged("all")) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", in(time.Hour), tagged("all")), s.schedule("b", in(time.Hour), tagged("all")))
				many, more, err := s.sweeper().list(s.ctx, look.ListFilter{Tag: "all"})
				require.NoError(t, err)
				require.Nil(t, more)
				s.do(change(s))
				before := s.row("a")
				done, err := s.sweeper().decide(s.ctx, many)
				require.NoError(t, err)
				require.EqualValues(t, 1, done.Cancelled)
				require.Len(t, done.events(), 1, "the other one's")
				require.Equal(t, before, s.row("a"))
				require.Equal(t, "pending", s.state("a"))
				require.Equal(t, "cancelled", s.state("b"))
			})
		})
	}
}

// What waits for a task came before the cancel. A task that is being delivered is too late, whatever is to follow it. One that was given
// back is decided after what waits for it.
func TestCancelManyComesAfterWhatWaits(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", value("old")))
		s.claim(t0 + 2000)
		require.Empty(t, s.do(s.schedule("a", value("new"), in(time.Hour))), "it waits")
		many, _, err := s.sweeper().list(s.ctx, look.ListFilter{Topic: target})
		require.NoError(t, err)
		s.settle(t0+2000, s.transition("a", task.StateLine, t0+5000, 0))
		require.Equal(t, "pending", s.state("a"))
		before := s.dump()
		_, err = s.sweeper().decide(s.ctx, many)
		require.ErrorIs(t, err, ErrLater)
		require.Equal(t, before, s.dump())
		s.resolve()
		done, err := s.sweeper().decide(s.ctx, many)
		require.NoError(t, err)
		require.Zero(t, done.Cancelled+done.TooLate)
		require.Equal(t, "new", string(s.body("a").Value))

		s.do(s.schedule("b"))
		s.claim(t0 + 3000)
		require.Empty(t, s.do(s.schedule("b", value("new"), in(2*time.Hour))), "it waits")
		require.EqualValues(t, 1, s.cancelAll(look.ListFilter{Topic: target, To: t0 + 60_000}).TooLate)
		s.settle(t0+3000, s.transition("b", task.StateRetry, t0+5000, 0))
		require.Equal(t, "waiting_retry", s.state("b"))
		s.claim(t0 + 6000)
		s.settle(t0 + 6000)
		s.resolve()
		require.Equal(t, "new", string(s.body("b").Value))
	})
}

// A claim that comes between the decision and the locks wins: what it has taken is too late.
func TestCancelManyMeetsAClaim(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		if s.backend.sqlite {
			t.Skip("it has one writer at a time")
		}
		s.do(s.schedule("taken", in(time.Minute)), s.schedule("left", in(time.Hour)))
		w := s.sweeper()
		many, _, err := w.list(s.ctx, look.ListFilter{Topic: target})
		require.NoError(t, err)
		decisions := 0
		w.now = func() int64 {
			if decisions++; decisions == 1 {
				s.claim(t0 + 60_000)
			}
			return s.now
		}
		done, err := w.decide(s.ctx, many)
		require.NoError(t, err)
		require.Equal(t, 2, decisions)
		require.EqualValues(t, 1, done.Cancelled)
		require.EqualValues(t, 1, done.TooLate)
		require.Equal(t, "claimed", s.state("taken"))
		require.Equal(t, "cancelled", s.state("left"))
	})
}

// The cancels of one record are decided together, and counted in the entry of the audit log that they name.
func TestCancelManyIsCounted(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		const tasks = 1040
		var all []any
		for i := range tasks {
			all = append(all, s.schedule(fmt.Sprint("t", i), in(time.Duration(i)*time.Millisecond+time.Hour)))
		}
		s.do(append(all, s.schedule("claimed"))...)
		s.claim(t0 + 2000)
		s.by(admin.AuditEntry{What: "cancel many", Detail: "{}"})
		entry, err := s.BeginAudit(s.ctx)
		require.NoError(t, err)
		s.ctx = t.Context()
		s.sweeper().audit = entry
		require.EqualValues(t, 1+tasks, s.sweepAndCount(look.ListFilter{Topic: target, Limit: 500}))
		found := s.audited()
		require.Len(t, found, 1)
		require.EqualValues(t, tasks, found[0].Count)
		s.sweeper().audit = 0
		require.Zero(t, s.cancelAll(look.ListFilter{Topic: target}).Cancelled)
	})
}

// sweepAndCount compares what each record has done with what a look at its tasks says, and returns their number.
func (f *fixture) sweepAndCount(filter look.ListFilter) (n int64) {
	f.t.Helper()
	for w := f.sweeper(); ; {
		many, more, err := w.list(f.ctx, filter)
		require.NoError(f.t, err)
		rec := look.CancelRecord{Topic: w.source.Topic, Partition: w.source.Partition, Offset: w.next, Tasks: many.Tasks}
		_, _, decided, err := look.New(f.Store).Cancelled(f.ctx, rec)
		require.NoError(f.t, err)
		require.False(f.t, decided)
		done, err := w.decide(f.ctx, many)
		require.NoError(f.t, err)
		cancelled, tooLate, decided, err := look.New(f.Store).Cancelled(f.ctx, rec)
		require.NoError(f.t, err)
		require.True(f.t, decided)
		require.Equal(f.t, []int64{done.Cancelled, done.TooLate}, []int64{cancelled, tooLate})
		n += cancelled + tooLate
		if filter.After = more; more == nil {
			return n
		}
	}
}

// Where the database was set back, cancels that are read again wait for the requests of what they are about, and have the same end.
func TestCancelManyIsReadAgain(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		first := s.batch(s.schedule("a", in(time.Hour)), s.schedule("gone", in(time.Hour), value("old")), s.schedule("held", in(time.Second)))
		second := s.batch(s.schedule("gone", in(time.Hour), value("new")), s.schedule("again", in(time.Hour)))
		s.apply(first)
		s.apply(second)
		s.claim(t0 + 1000)
		s.hold("held")
		many, _, err := s.sweeper().list(s.ctx, look.ListFilter{Topic: target})
		require.NoError(t, err)
		done, err := s.sweeper().decide(s.ctx, many)
		require.NoError(t, err)
		require.EqualValues(t, 4, done.Cancelled)

		for _, table := range []string{"tasks", "outbox"} { // the database forgets all that, and keeps the sources' numbers
			_, err := s.db.ExecContext(s.ctx, "DELETE FROM "+table)
			require.NoError(t, err)
		}
		_, err = s.db.ExecContext(s.ctx, "UPDATE sources SET next_offset = 0")
		require.NoError(t, err)
		again := &sweeper{Intake: s.Intake, source: s.sweeper().source, now: store.At(s.now)}
		_, err = again.decide(s.ctx, many)
		require.ErrorIs(t, err, ErrLater)
		s.apply(first)
		_, err = again.decide(s.ctx, many)
		require.ErrorIs(t, err, ErrLater, "one of them was replaced before it was listed")
		s.apply(second)
		done, err = again.decide(s.ctx, many)
		require.NoError(t, err)
		require.EqualValues(t, 4, done.Cancelled)
		require.Empty(t, s.live())
	})
}

// The database was set back to a state in which the listed task's request waits for an earlier task of its id, which is in doubt again.
func TestCancelManyOfWhatWaitsAgain(t *testing.T) {
	for name, later := range map[string]bool{"the last": false, "with a later one": true} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", value("old")), s.schedule("b", in(time.Hour)))
				s.claim(t0 + 2000)
				listed := s.batch(s.schedule("a", value("listed"), in(time.Hour)))
				require.Empty(t, s.apply(listed), "it waits")
				if later {
					require.Empty(t, s.do(s.schedule("a", value("later"), in(2*time.Hour))))
				}
				many, _, err := s.sweeper().list(s.ctx, look.ListFilter{Topic: target, From: t0 + 60_000})
				require.NoError(t, err)
				require.Len(t, many.Tasks, 1)
				key := task.Ident(target, "a")
				many.Tasks = append(many.Tasks, task.Listed{Ident: key[:], Seq: listed.Changes[0].Seq, Due: s.row("b").Due})
				for range 2 { // the second time, it was ahead of its turn
					w := &sweeper{Intake: s.Intake, source: s.sweeper().source, next: s.sweeper().next, now: store.At(s.now)}
					done, err := w.decide(s.ctx, many)
					require.NoError(t, err)
					for _, e := range done.events() {
						require.Equal(t, "b", e.ID)
					}
					s.sweeper().next = w.next
				}
				require.Equal(t, "cancelled", s.state("b"))
				require.Equal(t, "claimed", s.state("a"))
				s.claim(t0 + 3000)
				s.settle(t0 + 3000)
				if told := s.resolve(); later {
					require.Equal(t, []schemas.State{schemas.StateScheduled, schemas.StateCancelled, schemas.StateScheduled}, told)
					require.Equal(t, "later", string(s.body("a").Value))
					return
				} else {
					require.Equal(t, []schemas.State{schemas.StateScheduled, schemas.StateCancelled}, told)
				}
				require.Equal(t, "cancelled", s.state("a"))
				told := s.last.Events[0].Events
				require.Equal(t, "cancels/0/0", told[len(told)-1].Request, "the place of the record")
			})
		})
	}
}

// A record that was passed, or that the database has forgotten, is not decided while its tasks are pending.
func TestCancelManyThatWasPassed(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", in(time.Hour)))
		w := s.sweeper()
		many, _, err := w.list(s.ctx, look.ListFilter{Topic: target})
		require.NoError(t, err)
		var passed Batch
		passed.Advance = []Advance{{w.source.ID, 0, 1}}
		passed.Skip(w.source.ID, 0, 1)
		_, err = s.Apply(s.ctx, passed, store.At(s.now))
		require.NoError(t, err)
		_, _, decided, err := look.New(s.Store).Cancelled(s.ctx, look.CancelRecord{Topic: w.source.Topic, Partition: w.source.Partition, Tasks: many.Tasks})
		require.NoError(t, err)
		require.False(t, decided)
	})
}

// Nothing is waited for that cannot come: of a partition that was restarted, nothing more is stored.
func TestCancelManyOfARetiredSource(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", in(time.Hour)))
		many, _, err := s.sweeper().list(s.ctx, look.ListFilter{Topic: target})
		require.NoError(t, err)
		many.Tasks[0].Seq += 5
		_, err = s.sweeper().decide(s.ctx, many)
		require.ErrorIs(t, err, ErrLater)
		src := s.source
		src.Next = 1
		_, err = s.Restart(s.ctx, src, 0)
		require.NoError(t, err)
		done, err := s.sweeper().decide(s.ctx, many)
		require.NoError(t, err)
		require.Zero(t, done.Cancelled)
	})
}

// Cancels in another life of the database come later, once the slots are sure.
func TestCancelManyInAnotherLife(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"), s.schedule("b"))
		s.claim(t0)
		many, _, err := s.sweeper().list(s.ctx, look.ListFilter{Topic: target})
		require.NoError(t, err)
		s.restart()
		_, err = s.sweeper().decide(s.ctx, many)
		require.ErrorIs(t, err, ErrLater)
		require.Equal(t, "pending", s.state("a"))
		s.claim(t0)
		done, err := s.sweeper().decide(s.ctx, many)
		require.NoError(t, err)
		require.EqualValues(t, 2, done.Cancelled)
	})
}

// A restored database has forgotten deliveries: what is proven to have been sent is too late for cancels that are read again.
func TestCancelManyIsJudgedBesideDeliveries(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("sent"), s.schedule("refused", value("kept")), s.schedule("reported", wantReport), s.schedule("left"))
		many, _, err := s.sweeper().list(s.ctx, look.ListFilter{Topic: target})
		require.NoError(t, err)
		s.SetEvidence(proofs{"sent": {Attempt: 1, At: t0}, "refused": {Attempt: 1, At: t0, Refused: "too large"}, "reported": {Attempt: 1, At: t0}})
		defer s.SetEvidence(nil)
		done, err := s.sweeper().decide(s.ctx, many)
		require.NoError(t, err)
		require.EqualValues(t, 1, done.Cancelled)
		for id, state := range map[string]string{"sent": "succeeded", "refused": "dead", "reported": "waiting_report", "left": "cancelled"} {
			require.Equal(t, state, s.state(id), id)
		}
		require.True(t, s.body("reported").Settings.Ack == schemas.AckReport)
	})
}

// Bodies are not read: the transaction is no larger for them.
func TestCancelManyReadsNoBodies(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		big := strings.Repeat("x", 1<<20)
		for i := range 4 {
			s.do(s.schedule(fmt.Sprint(i), value(big), tagged("big"), in(time.Hour)))
		}
		s.do(s.schedule("other", in(time.Hour), tagged("big")))
		require.EqualValues(t, 5, s.cancelAll(look.ListFilter{Topic: target}).Cancelled)
		require.Len(t, s.listed(look.ListFilter{Tag: "big", Ended: true}), 5, "their tags are remembered")
		rows, err := tables.Fetch(s.ctx, s.db, tables.ScanTask, "SELECT "+tables.TaskColumns+" FROM tasks")
		require.NoError(t, err)
		for _, row := range rows {
			require.Empty(t, row.Body)
		}
	})
}

func TestCancelsStandAlone(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", in(time.Hour)))
		many, _, err := s.sweeper().list(s.ctx, look.ListFilter{Topic: target})
		require.NoError(t, err)
		b := s.batch(s.schedule("b"))
		b.Advance = append(b.Advance, Advance{s.sweeper().source.ID, 0, 1})
		b.Changes = append(b.Changes, task.Change{Seq: task.Seq(s.sweeper().source.ID, 0), Cancels: &many})
		_, err = s.Apply(s.ctx, b, store.At(s.now))
		require.ErrorContains(t, err, "beside other changes")
	})
}

func TestCancelledByFilterIsNeverTaken(t *testing.T)   { holds(t, sweepingChanges) }
func TestTakingTheCancelledByFilterShows(t *testing.T) { notices(t, noSharedLock, sweepingChanges) }

// sweepingChanges cancels tasks by their prefix.
func sweepingChanges(s *fixture) *violations {
	return aboutWhenTaken(s, func(w *writer, prefix string, seqs map[string]int64) {
		sweeps, err := newSweeper(s.ctx, w.Intake, int32(w.source.Partition), nowMillis)
		if err == nil {
			var many task.Cancels
			if many, _, err = sweeps.list(s.ctx, look.ListFilter{Topic: target, IDPrefix: prefix, Limit: 1000}); err == nil {
				sweeps.next = sweeps.source.Next
				var done swept
				done, err = sweeps.decide(s.ctx, many)
				for _, e := range done.events() {
					if e.State == schemas.StateCancelled {
						delete(seqs, e.ID)
					}
				}
			}
		}
		if err != nil {
			w.v.fail(err)
		}
	})
}
