package intake

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
)

// A schedule for a task that is being delivered is neither lost nor overtaken by the delivery: it waits.
func TestScheduleWhileInFlight(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", version(1)))
		s.claim(t0 + 1000)
		first := s.row("a")
		require.Empty(t, s.do(s.schedule("a", version(2), value("new"), in(5000*ms))), "answered when it takes effect")
		require.Equal(t, 1, s.last.Waiting)
		require.Equal(t, first, s.row("a"), "the delivery goes on with what was claimed")
		require.Nil(t, s.resolve(), "not before the task has ended")

		s.settle(t0 + 1000)
		require.Equal(t, []schemas.State{schemas.StateScheduled}, s.resolve())
		require.Zero(t, s.last.Waiting)
		require.Equal(t, "new", string(s.body("a").Value))
		require.EqualValues(t, t0+5000, s.row("a").Due)
		require.Equal(t, []handle.Place{s.place("a")}, s.last.Added)
		require.Zero(t, s.count("waiting"))
		require.Nil(t, s.resolve(), "once")
	})
}

// Whoever next asks something of the task finds the waiting requests, and stands behind them.
func TestRequestsBehindWaitingOnes(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"))
		s.claim(t0 + 1000)
		require.Empty(t, s.do(s.schedule("a", value("1"))))
		require.Empty(t, s.do(s.schedule("a", value("2"), keep), s.schedule("a", value("3"))))
		require.Empty(t, s.do(s.cancel("a")), "it is about the waiting one: too_late would be a lie")
		require.Empty(t, s.do(s.schedule("a", value("4"), version(3))))
		require.Empty(t, s.do(s.fire("a"), s.schedule("a", value("5"), version(2))))
		require.Equal(t, 7, s.count("waiting"))

		s.settle(t0 + 1000)
		events := s.do(s.schedule("a", value("6"), version(4)))
		var states []schemas.State
		for _, e := range events {
			states = append(states, e.State)
		}
		require.Equal(t, []schemas.State{schemas.StateScheduled, schemas.StateKept, schemas.StateScheduled, schemas.StateCancelled,
			schemas.StateScheduled, schemas.StateFired, schemas.StateStale, schemas.StateScheduled}, states, "in the order in which they came")
		require.Equal(t, "6", string(s.body("a").Value))
		require.Zero(t, s.count("waiting"))
	})
}

// A waiting request waits on while the task is between attempts.
func TestWaitingThroughAttempts(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport))
		s.claim(t0 + 1000)
		require.Empty(t, s.do(s.schedule("a", value("new"))))
		s.settle(t0+1000, s.transition("a", task.StateReport, t0+61_000, 1))
		require.Nil(t, s.resolve())
		require.Empty(t, s.do(s.schedule("a", value("newer"))))
		require.Equal(t, schemas.StateRetrying, s.answer(says("a", 1, schemas.StatusRetry)), "a report is about the delivery: it does not queue")
		require.Equal(t, 2, s.count("waiting"))
		require.Nil(t, s.resolve())

		s.awaitReport("a", 2)
		require.Equal(t, 2, s.count("waiting"))
		events := s.do(says("a", 2, schemas.StatusOK))
		require.Equal(t, schemas.StateSucceeded, events[0].State)
		require.Equal(t, []schemas.State{schemas.StateScheduled, schemas.StateScheduled}, s.resolve())
		require.Equal(t, "newer", string(s.body("a").Value))
	})
}

// A report may come before the outcome of its own delivery is stored.
func TestReportWhileInFlight(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport), s.schedule("b", wantReport), s.schedule("c"))
		s.claim(t0 + 1000)
		require.Empty(t, s.do(says("a", 1, schemas.StatusOK), says("b", 1, schemas.StatusFail), says("c", 1, schemas.StatusFail), says("a", 7, schemas.StatusFail)))
		require.Equal(t, 2, s.count("waiting"), "neither of a task that asks for none, nor of an attempt that cannot be")
		require.Nil(t, s.resolve())
		s.settle(t0+1000, s.transition("a", task.StateReport, t0+61_000, 1), s.transition("b", task.StateReport, t0+61_000, 1))
		require.Equal(t, "succeeded", s.state("a"))
		require.Equal(t, "dead", s.state("b"))
		require.Equal(t, "delivered", s.state("c"))
		require.Nil(t, s.resolve(), "the settlement has decided them")
	})
}

// The owner may put a task back into the line, because its target is out of order. What waits for it must then neither be
// forgotten nor be overtaken by what comes later.
func TestWaitingForATaskThatWasPutBack(t *testing.T) {
	for _, resolved := range []bool{true, false} {
		each(t, func(t *testing.T, s *fixture) {
			s.do(s.schedule("a"))
			s.claim(t0 + 1000)
			s.do(s.schedule("a", value("second")))
			s.settle(t0+1000, s.transition("a", task.StateLine, t0+9000, 0))
			require.Equal(t, "pending", s.state("a"))
			if resolved {
				require.Equal(t, []schemas.State{schemas.StateScheduled}, s.resolve())
				require.Equal(t, "second", string(s.body("a").Value))
			}
			s.do(s.schedule("a", value("third")))
			require.Nil(t, s.resolve())
			require.Equal(t, "third", string(s.body("a").Value))
			require.Zero(t, s.count("waiting"))
		})
	}
}

// A task may be retired while something waits for it: that is decided as for an unknown id.
func TestWaitingForARetiredTask(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"), s.schedule("b"))
		s.claim(t0 + 1000)
		s.do(s.schedule("a", value("new")), s.schedule("b", value("new")))
		s.settle(t0 + 1000)
		for _, slot := range s.allSlots() {
			_, _, err := s.Retire(s.ctx, line.Range{Slot: slot, To: t0 + 1000})
			require.NoError(t, err)
		}
		require.Zero(t, s.count("tasks"))
		require.Len(t, s.do(s.cancel("b")), 2, "the waiting schedule, and its cancel")
		require.Equal(t, "cancelled", s.state("b"))
		require.Equal(t, []schemas.State{schemas.StateScheduled}, s.resolve())
		require.Equal(t, "new", string(s.body("a").Value))
	})
}

// What waits comes back byte for byte.
func TestWaitingRequestsKeepTheirBytes(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"))
		s.claim(t0 + 1000)
		r := s.schedule("a", version(4), wantReport, maxAttempts(3), fixedBackoff(7000*ms), tell(schemas.EventsFinal))
		r.Key, r.Value = []byte{0xff, 0, '"'}, nil
		r.Headers = []kgo.RecordHeader{{Key: "\xff\xfe", Value: []byte{0x80}}, {Key: "x"}, {Key: "x", Value: []byte{}}}
		s.do(r)
		s.settle(t0 + 1000)
		s.resolve()
		want := schemas.Body{Key: r.Key, Headers: r.Headers, Settings: r.Settings}
		require.Equal(t, want, s.body("a"))
		require.EqualValues(t, 4, s.row("a").Version)
	})
}

// Requests that wait for the end of a delivery become decidable all the time. They hold nobody who waits for what can be decided now.
func TestFewAreUndecidedAmongManyThatWait(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for i := range 50 {
			s.do(s.schedule(fmt.Sprint(i), in(time.Hour)), s.schedule(fmt.Sprint("ends", i)))
		}
		s.claim(t0 + 1000)
		for i := range 50 {
			s.do(s.schedule(fmt.Sprint("ends", i), value("1")), s.schedule(fmt.Sprint("ends", i), value("2")))
		}
		last, err := s.LastArrived(s.ctx)
		require.NoError(t, err)
		undecided := func() int {
			n, err := s.Undecided(s.ctx, last)
			require.NoError(t, err)
			return n
		}
		require.Zero(t, undecided())
		s.settle(t0+1000, func() (out []line.Transition) {
			for i := range 49 {
				out = append(out, s.transition(fmt.Sprint("ends", i), task.StateRetry, t0+2000, 1))
			}
			return out
		}()...)
		require.Equal(t, 1, undecided())
		s.resolve()
		require.Zero(t, undecided())
		require.Equal(t, 98, s.count("waiting"))
	})
}

// The identities are answered for as many as asked, and a batch may hold both new requests and what is to be resolved.
func TestResolvable(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		ids := []string{"a", "b", "c", "d"}
		for _, id := range ids {
			s.do(s.schedule(id))
		}
		s.claim(t0 + 1000)
		for _, id := range ids {
			s.do(s.schedule(id, value("1")), s.schedule(id, value("2")))
		}
		s.settle(t0 + 1000)
		last, err := s.LastArrived(s.ctx)
		require.NoError(t, err)
		for until, want := range map[int64]int{0: 0, last: 4} {
			n, err := s.Undecided(s.ctx, until)
			require.NoError(t, err)
			require.Equal(t, want, n, "those that arrived later do not count")
		}
		keys, next, err := s.Resolvable(s.ctx, [16]byte{}, 3)
		require.NoError(t, err)
		require.Len(t, keys, 3, "each identity once")
		rest, next, err := s.Resolvable(s.ctx, next, 3)
		require.NoError(t, err)
		require.Len(t, rest, 1, "those that are not decided keep nobody from his turn")
		require.NotContains(t, keys, rest[0])
		require.Zero(t, next, "and then it begins anew")

		b := s.batch(s.schedule("a", value("3")), s.schedule("fresh"))
		b.Resolve = append(keys, task.Ident("no", "such"))
		s.apply(b)
		s.resolve()
		require.Equal(t, "3", string(s.body("a").Value))
		for _, id := range ids[1:] {
			require.Equal(t, "2", string(s.body(id).Value))
		}
		require.Equal(t, "pending", s.state("fresh"))
		require.Zero(t, s.count("waiting"))
	})
}

// Cancels that the database has forgotten wait for claimed tasks: the owner may give these back. Nobody takes them for decidable until then.
func TestForgottenCancelsOfClaimedTasks(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		ids := []string{"back", "stopped", "sent", "free", "fired"}
		for _, id := range ids {
			s.do(s.schedule(id))
		}
		s.claim(t0 + 1000)
		again := func(r *schemas.Request) {
			b := s.batch(r)
			b.Changes[0].Again = true
			require.Empty(t, s.apply(b))
		}
		again(s.cancel("back"))
		again(s.stop("stopped"))
		again(s.cancel("sent"))
		again(s.schedule("free"))
		again(s.fire("fired"))
		require.Empty(t, s.resolve())
		var seqs []int64
		of := map[string]int64{}
		for _, id := range ids {
			of[id] = s.row(id).Seq
			seqs = append(seqs, of[id])
		}
		cancelled, err := s.CancelledAgain(s.ctx, seqs)
		require.NoError(t, err)
		require.ElementsMatch(t, []int64{of["back"], of["stopped"], of["sent"]}, cancelled)
		last, err := s.LastArrived(s.ctx)
		require.NoError(t, err)
		n, err := s.Undecided(s.ctx, last)
		require.NoError(t, err)
		require.Zero(t, n)

		var back []line.Transition
		for _, id := range []string{"back", "stopped"} {
			back = append(back, s.transition(id, task.StateLine, t0+9000, 0))
		}
		s.settle(t0+1000, back...)
		require.ElementsMatch(t, []schemas.State{schemas.StateCancelled, schemas.StateCancelled, schemas.StateTooLate, schemas.StateTooLate, schemas.StateScheduled}, s.resolve())
		require.Equal(t, "cancelled", s.state("back"))
		require.Equal(t, "cancelled", s.state("stopped"))
		require.Zero(t, s.count("waiting"))
	})
}

// However many requests wait for one delivery, each transaction decides so many of them, in their order, and what comes meanwhile
// stands behind them.
func TestManyRequestsWaitForOneOutcome(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		const n = 2*waitingPiece + 100
		id := strings.Repeat("\x01", schemas.MaxIDLen) // six bytes each in an event
		s.do(s.schedule(id, in(0), wantReport))
		s.awaitReport(id, 1)
		for first := 0; first < n; first += 100 {
			var more []any
			for i := range 100 {
				more = append(more, s.schedule(id, in(time.Hour), value(fmt.Sprint(first+i))))
			}
			s.do(more...)
		}
		require.Equal(t, n, s.count("waiting"))
		require.Len(t, s.do(says(id, 1, schemas.StatusOK)), 1)
		require.Equal(t, n, s.count("waiting"), "those that were looked at beside the report wait on")

		require.Len(t, s.resolve(), waitingPiece)
		require.Equal(t, fmt.Sprint(waitingPiece-1), string(s.body(id).Value))
		require.Len(t, s.do(s.cancel(id)), waitingPiece, "it takes the next of them along, and waits")
		require.Equal(t, fmt.Sprint(2*waitingPiece-1), string(s.body(id).Value))
		require.Len(t, s.resolve(), n-2*waitingPiece+1)
		require.Zero(t, s.count("waiting"))
		require.Equal(t, "cancelled", s.state(id))
	})
}

// They are bounded in bytes too.
func TestLargeRequestsWaitForOneOutcome(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", in(0), wantReport))
		s.awaitReport("a", 1)
		for range 8 {
			s.do(s.schedule("a", in(time.Hour), value(strings.Repeat("v", 2<<20))))
		}
		s.do(says("a", 1, schemas.StatusOK))
		taken := len(s.resolve())
		require.Less(t, taken, 8)
		for s.count("waiting") > 0 {
			require.NotEmpty(t, s.resolve())
		}
	})
}

// Requests of two sources take effect in the order in which they came, whichever of the sources has the higher number.
func TestWaitingInTheOrderOfArrival(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		other, err := s.Source(s.ctx, "other", [16]byte{2}, 0, 0)
		require.NoError(t, err)
		mine, offsets := s.source, map[int]int64{}
		from := func(src Source, id, content string) {
			offsets[s.source.ID] = s.offset
			s.source, s.offset = src, offsets[src.ID]
			s.do(s.schedule(id, value(content)))
		}
		from(mine, "a", "")
		from(mine, "b", "")
		s.claim(t0 + 1000)
		from(mine, "a", "first")
		from(other, "a", "second")
		from(other, "b", "first")
		from(mine, "b", "second")
		s.settle(t0 + 1000)
		s.resolve()
		require.Equal(t, "second", string(s.body("a").Value))
		require.Equal(t, "second", string(s.body("b").Value))
	})
}

// However many requests wait for one id, a transaction decides only so many of them, and none is overtaken.
func TestWaitingIsDecidedInPieces(t *testing.T) {
	const n = 2*waitingPiece + 1
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"))
		s.claim(t0 + 1000)
		var requests []any
		for i := range n {
			requests = append(requests, s.schedule("a", value(fmt.Sprint(i)), merge(schemas.MergeAppend), tell(schemas.EventsAll)))
		}
		s.do(requests...)
		s.settle(t0 + 1000)
		require.Equal(t, waitingPiece, len(s.resolve()))
		require.Equal(t, n-waitingPiece, s.count("waiting"))

		s.do(s.schedule("b"))
		require.Equal(t, n-waitingPiece, s.count("waiting"), "it is nobody else's work")
		events := s.do(s.schedule("a", value(`"last"`), merge(schemas.MergeAppend), tell(schemas.EventsAll)))
		require.Equal(t, waitingPiece, len(events))
		require.Equal(t, 2, s.count("waiting"), "what is new goes behind what is left")
		require.Equal(t, 2, len(s.resolve()))
		var want []string
		for i := range n {
			want = append(want, fmt.Sprint(i))
		}
		require.Equal(t, "["+strings.Join(append(want, `"last"`), ",")+"]", string(s.body("a").Value))
	})
}

// Large requests are bounded by their bytes, over all ids of a batch together.
func TestWaitingIsDecidedInPiecesOfBytes(t *testing.T) {
	large := value(strings.Repeat("x", waitingBytes/3)) // a half of it with what JSON adds
	each(t, func(t *testing.T, s *fixture) {
		for _, id := range []string{"a", "b"} {
			s.do(s.schedule(id))
		}
		s.claim(t0 + 1000)
		for range 3 {
			s.do(s.schedule("a", large, tell(schemas.EventsAll)), s.schedule("b", large, tell(schemas.EventsAll)))
		}
		s.settle(t0 + 1000)
		var decided []int
		for s.count("waiting") > 0 {
			decided = append(decided, len(s.resolve()))
		}
		require.Equal(t, []int{3, 3}, decided)
	})
}

// A report between two attempts leaves the requests that wait on where they are: their number is not part of its cost.
func TestReportsDoNotTouchWhatWaitsOn(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport))
		s.claim(t0 + 1000)
		s.do(s.schedule("a", value("1")), s.schedule("a", value("2")))
		before := s.dump()["waiting"]
		s.settle(t0+1000, s.transition("a", task.StateReport, t0+61_000, 1))
		require.Equal(t, schemas.StateRetrying, s.answer(says("a", 1, schemas.StatusRetry)))
		require.Equal(t, before, s.dump()["waiting"])
		s.awaitReport("a", 2)
		require.Equal(t, schemas.StateSucceeded, s.answer(says("a", 2, schemas.StatusOK)))
		require.Equal(t, before, s.dump()["waiting"])
		require.Len(t, s.resolve(), 2)
		require.Equal(t, "2", string(s.body("a").Value))
	})
}

// One id's queue is bounded in number and bytes. What is beyond it is rejected and kept as a dead letter, and others have room.
func TestWaitingQuota(t *testing.T) {
	for name, c := range map[string]struct {
		room  int
		value string
	}{
		"number": {schemas.MaxWaiting, "x"},
		"bytes":  {3, strings.Repeat("x", schemas.MaxWaitingBytes/5)}, // a third of it or a little less with what JSON adds
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a"), s.schedule("b"))
				s.claim(t0 + 1000)
				var requests []any
				for range c.room - 1 {
					requests = append(requests, s.schedule("a", value(c.value)))
				}
				require.Empty(t, s.do(requests...))
				events := s.do(s.schedule("a", value(c.value)), s.schedule("a", value(c.value)), s.schedule("b", value(c.value)))
				require.Len(t, events, 1, "the first has room, and so has another id's")
				require.Equal(t, schemas.StateRejected, events[0].State)
				require.Equal(t, schemas.KindRejected, events[0].Kind)
				require.Contains(t, events[0].Reason, fmt.Sprintf("at most %d of %d bytes in all", schemas.MaxWaiting, schemas.MaxWaitingBytes))
				require.Equal(t, c.room+1, s.count("waiting"))
				letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{Kind: schemas.KindRejected})
				require.NoError(t, err)
				require.Len(t, letters, 1)
				require.Equal(t, "a", letters[0].TaskID)

				s.settle(t0 + 1000)
				for s.count("waiting") > 0 {
					s.resolve()
				}
				s.claim(s.row("a").Pos)
				require.Empty(t, s.do(s.schedule("a", value(c.value))), "there is room again")
			})
		})
	}
}

// Reports that name no delivery may be guessed: of those that wait, only so many are kept.
func TestWaitingReportsQuota(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport))
		s.claim(t0 + 1000)
		reports := []any{says("a", 1, schemas.StatusOK)}
		for range schemas.MaxWaitingReports + 5 {
			reports = append(reports, says("a", 1, schemas.StatusRetry))
		}
		s.do(reports...)
		require.Empty(t, s.do(says("a", 1, schemas.StatusFail)), "ignored, as a doubled one is")
		require.Equal(t, schemas.MaxWaitingReports, s.count("waiting"))
		require.Empty(t, s.do(s.schedule("a")), "requests have room of their own")
		s.settle(t0+1000, s.transition("a", task.StateReport, t0+61_000, 1))
		require.Equal(t, "succeeded", s.state("a"))
		s.resolve()
		require.Equal(t, "pending", s.state("a"), "the request that waited")
	})
}

// What waited before the migration is decided in the order that there was, and before what comes after it. A program of the version
// before goes on writing and reading by the columns that it knows.
func TestMigrateWhatWaits(t *testing.T) {
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			ctx, st := t.Context(), open(t, b.fresh(t))
			h := handle.Of(st)
			kind, dir, opts := h.Dialect.Migrations()
			m, err := goose.NewProvider(kind, h.DB, os.DirFS("../"+dir), opts...)
			require.NoError(t, err)
			before := int64(10)
			if b.sqlite {
				before = 4
			}
			_, err = m.UpTo(ctx, before)
			require.NoError(t, err)
			for slot := range 3 {
				_, err = h.Exec(ctx, "INSERT INTO slots (slot, epoch, owner, claimed, done) VALUES (?, 0, ?, 0, 0)", slot, []byte{})
				require.NoError(t, err)
			}
			insert := func(seq int64, r *schemas.Request) {
				data, err := encodeChange(task.Change{Seq: seq, Request: r})
				require.NoError(t, err)
				key := task.Ident(r.Topic, r.ID)
				_, err = h.Exec(ctx, "INSERT INTO waiting (seq, ident, report, request) VALUES (?,?,?,?)", seq, key[:], false, data)
				require.NoError(t, err)
			}
			s := &fixture{Store: st, test: t, t: t, ctx: ctx, now: t0, backend: b}
			insert(task.Seq(18, 0), s.schedule("a", value("second")))
			insert(task.Seq(17, 0), s.schedule("a", value("first")))
			require.NoError(t, st.Migrate(ctx, 3))
			insert(task.Seq(16, 0), s.schedule("a", value("third")))
			key := task.Ident(target, "a")
			rows, err := tables.Fetch(ctx, h.DB, func(r *sql.Rows, h *waitingChange) error { return scanWaiting(r, h) }, "SELECT ident, report, size, request FROM waiting WHERE ident = ? ORDER BY arrived", key[:])
			require.NoError(t, err)
			var values [][]byte
			for _, h := range rows {
				values = append(values, h.change.Request.Value)
				require.Positive(t, h.size)
			}
			require.Equal(t, "first second third", string(bytes.Join(values, []byte(" "))))
		})
	}
}

// A request that waits and cannot be read any more holds up its own task, and is the record's fault, not the world's.
func TestADamagedRequestHoldsUpItsOwnTask(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for _, id := range []string{"a", "b"} {
			s.do(s.schedule(id))
		}
		s.claim(t0 + 1000)
		for _, id := range []string{"a", "b"} {
			s.do(s.schedule(id, value("1")))
		}
		s.settle(t0 + 1000)
		bad, good := task.Ident("orders", "a"), task.Ident("orders", "b")
		_, err := s.db.ExecContext(s.ctx, "UPDATE waiting SET request = '{' WHERE ident = ?", bad[:])
		require.NoError(t, err)

		keys, _, err := s.Resolvable(s.ctx, [16]byte{}, 10)
		require.NoError(t, err)
		require.ElementsMatch(t, [][16]byte{bad, good}, keys)
		waits, err := Moves{s.Intake}.WaitingFor(s.ctx, func(topic string) bool { return topic != "orders" })
		require.NoError(t, err, "it keeps no target from moving")
		require.Empty(t, waits)
		_, err = s.Apply(s.ctx, Batch{Resolve: keys}, store.At(s.now))
		require.True(t, BadRecord(err), "make the batch smaller: %v", err)
		_, err = s.Apply(s.ctx, Batch{Resolve: [][16]byte{bad}}, store.At(s.now))
		require.ErrorIs(t, err, errDamaged)
		_, err = s.Apply(s.ctx, Batch{Resolve: [][16]byte{good}}, store.At(s.now))
		require.NoError(t, err)
		require.Equal(t, "1", string(s.body("b").Value))
		_, err = s.Apply(s.ctx, s.batch(s.schedule("a", value("2"))), store.At(s.now))
		require.True(t, BadRecord(err), "the intake goes on behind it: %v", err)
	})
}

// However many requests wait for an identity, a look at it costs the same.
func TestALookAtWhatWaitsReadsNoQueues(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		if s.backend.sqlite {
			t.Skip("SQLite does not say what it reads")
		}
		const idents, queue = 5, 1000
		for i := range idents {
			key := task.Ident(target, fmt.Sprint(i))
			var a []any
			for j := range queue {
				a = append(a, i*queue+j, key[:], 0, []byte("{}"))
			}
			_, err := s.db.ExecContext(s.ctx, "INSERT INTO waiting (seq, ident, report, request) VALUES "+strings.Repeat(",(?,?,?,?)", queue)[1:], a...)
			require.NoError(t, err)
		}
		conn, err := s.db.Conn(s.ctx)
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		for _, q := range []string{"ANALYZE TABLE waiting", "FLUSH STATUS"} { // the server counts by itself once a table has changed much
			_, err = conn.ExecContext(s.ctx, q)
			require.NoError(t, err)
		}
		var first [16]byte
		seen, err := tables.Fetch(s.ctx, conn, func(r *sql.Rows, key *[]byte) error { var ready bool; return r.Scan(key, &ready) }, s.resolvable(""), first[:], 100)
		require.NoError(t, err)
		require.Len(t, seen, idents)
		reads, err := tables.Fetch(s.ctx, conn, func(r *sql.Rows, n *int) error { var name string; return r.Scan(&name, n) }, "SHOW SESSION STATUS LIKE 'Handler_read%'")
		require.NoError(t, err)
		sum := 0
		for _, n := range reads {
			sum += n
		}
		require.Less(t, sum, queue)
	})
}
