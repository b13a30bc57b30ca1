package intake

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// pendingSize counts what is pending of the fixture's source.
func (f *fixture) pendingSize() Size {
	f.t.Helper()
	got, err := f.PendingSize(f.ctx, []int{f.source.ID, f.source.ID + 100}, true)
	require.NoError(f.t, err)
	require.Zero(f.t, got[f.source.ID+100])
	tasks, err := f.PendingSize(f.ctx, []int{f.source.ID}, false)
	require.NoError(f.t, err)
	require.Equal(f.t, Size{Tasks: got[f.source.ID].Tasks}, tasks[f.source.ID], "without bodies")
	return got[f.source.ID]
}

// What batches say that they opened is never less than what a count finds.
func TestPendingSize(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		opened := func(requests ...any) Size {
			t.Helper()
			s.do(requests...)
			return s.last.Opened[s.source.ID]
		}
		size := func(ids ...string) (out Size) {
			for _, id := range ids {
				out = out.Plus(Size{1, int64(len(s.row(id).Body))})
			}
			return out
		}
		require.Equal(t, Size{}, s.pendingSize())
		require.Equal(t, ofTasks(3, opened(s.schedule("a"), s.schedule("b", in(time.Hour)), s.schedule("late", in(-time.Hour)))), size("a", "b", "late"))
		require.Equal(t, size("a", "b", "late"), s.pendingSize())
		before := s.pendingSize()
		grown := opened(s.schedule("b", in(time.Hour), value(strings.Repeat("x", 100))))
		require.Zero(t, grown.Tasks, "a replacement opens nothing")
		require.Greater(t, grown.Bytes, int64(90))
		require.Equal(t, before.Plus(grown), s.pendingSize())
		require.Equal(t, Size{}, opened(s.schedule("b", in(time.Hour), value("y"))), "a smaller value makes no room before the next count")
		require.Equal(t, Size{}, opened(s.fire("b"), s.schedule("gone"), s.cancel("gone"), s.cancel("none")))
		require.EqualValues(t, 3, s.pendingSize().Tasks)

		other, err := s.Source(s.ctx, "in", [16]byte{1}, 1, 0)
		require.NoError(t, err)
		mine, offset := s.source, s.offset
		s.source, s.offset = other, 0
		require.EqualValues(t, 1, opened(s.schedule("other", in(time.Hour))).Tasks)
		s.source, s.offset = mine, offset
		require.EqualValues(t, 3, s.pendingSize().Tasks, "another source's do not count")

		s.claim(t0 + 1000)
		require.EqualValues(t, 3, s.pendingSize().Tasks, "in flight")
		s.settle(t0 + 1000)
		require.Equal(t, Size{}, s.pendingSize(), "settled")
		require.Equal(t, ofTasks(1, opened(s.schedule("a", in(time.Hour)))), size("a"), "an ended one is opened again")
		s.do(s.cancel("a"))
		require.Equal(t, Size{}, s.pendingSize())
	})
}

// ofTasks requires so many tasks of a size.
func ofTasks(tasks int64, s Size) Size {
	if s.Tasks != tasks {
		return Size{-1, -1}
	}
	return s
}

// The mark of a request stays with it while it waits for the end of a delivery.
func TestBeyondAQuota(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		beyond := func(r *schemas.Request) []schemas.Event {
			t.Helper()
			b := s.batch(r)
			b.Changes[0].Beyond = "pending-tasks"
			return s.apply(b)
		}
		s.do(s.schedule("a"), s.schedule("b"), s.schedule("c", in(time.Hour)))
		rejected := beyond(s.schedule("new"))
		require.Len(t, rejected, 1)
		require.Equal(t, schemas.StateRejected, rejected[0].State)
		require.Contains(t, rejected[0].Reason, "pending-tasks")
		require.Empty(t, s.last.Opened)
		require.Equal(t, map[string]int{schemas.KindRejected: 1}, s.last.Dead)
		require.Empty(t, s.rows("new"))
		require.Equal(t, schemas.StateScheduled, beyond(s.schedule("c", in(2*time.Hour)))[0].State, "a pending task is moved")
		require.Equal(t, schemas.StateScheduled, beyond(s.schedule("c", in(2*time.Hour), value("larger")))[0].State, "it is in no quota of bytes")
		require.Equal(t, schemas.StateFired, beyond(s.fire("c"))[0].State)
		require.Equal(t, schemas.StateCancelled, beyond(s.cancel("c"))[0].State)

		s.claim(t0 + 1000)
		require.Empty(t, beyond(s.schedule("a", in(time.Hour))), "it waits")
		require.Empty(t, s.do(s.schedule("b", in(time.Hour))))
		s.settle(t0 + 1000)
		require.ElementsMatch(t, []schemas.State{schemas.StateRejected, schemas.StateScheduled}, s.resolve())
		require.Equal(t, 2, s.count("dead_letters"))
		require.EqualValues(t, 1, s.pendingSize().Tasks)

		b := s.batch(s.schedule("unkept"), s.schedule("malformed"))
		b.Changes[0].Beyond, b.Changes[0].NoLetter = "pending-tasks", true
		b.Changes[1] = task.Change{Seq: b.Changes[1].Seq, NoLetter: true, Rejected: &task.DeadLetter{Seq: b.Changes[1].Seq, Kind: schemas.KindRejected, Topic: "orders", TaskID: "malformed"}}
		events := s.apply(b)
		require.Len(t, events, 2, "each is told")
		require.Equal(t, []schemas.State{schemas.StateRejected, schemas.StateRejected}, []schemas.State{events[0].State, events[1].State})
		require.Equal(t, 2, s.count("dead_letters"), "and has no letter")
		defaultID := s.schedule("in-0-77")
		defaultID.GivenID = false
		require.Equal(t, schemas.StateRejected, beyond(defaultID)[0].State)
	})
}

func TestPendingSizeEndsWithItsContext(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"))
		ctx, cancel := context.WithCancel(s.ctx)
		cancel()
		_, err := s.PendingSize(ctx, []int{s.source.ID}, true)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// Beyond a quota of bytes, a request may replace or merge a pending task by one that is not larger.
func TestBeyondAQuotaOfBytes(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		beyond := func(r *schemas.Request) schemas.State {
			t.Helper()
			before := s.pendingSize()
			b := s.batch(r)
			b.Changes[0].Beyond = task.QuotaBytes
			events := s.apply(b)
			require.Len(t, events, 1)
			require.LessOrEqual(t, s.pendingSize().Bytes, before.Bytes)
			if events[0].State == schemas.StateRejected {
				require.Contains(t, events[0].Reason, `quota "pending-bytes"`)
				require.Equal(t, before, s.pendingSize())
			}
			return events[0].State
		}
		s.do(s.schedule("a", in(time.Hour), value("12345")))
		require.Equal(t, schemas.StateRejected, beyond(s.schedule("new", in(time.Hour), value("1"))))
		require.Equal(t, schemas.StateRejected, beyond(s.schedule("a", in(time.Hour), value("123456"))))
		require.Equal(t, schemas.StateScheduled, beyond(s.schedule("a", in(2*time.Hour), value("54321"))))
		require.Equal(t, schemas.StateScheduled, beyond(s.schedule("a", in(time.Hour), value("1"))))
		merging := func(v string) *schemas.Request {
			r := s.schedule("a", in(time.Hour), value(v))
			r.Settings.IfExists, r.Settings.Merge = schemas.Merge, schemas.MergeAppend
			return r
		}
		require.Equal(t, schemas.StateRejected, beyond(merging("2")))
		s.do(merging("3"))
		require.Equal(t, schemas.StateRejected, beyond(merging("4")))
	})
}

// fill schedules tasks of 200 bytes, each due at a millisecond of its own, an hour from now and later.
func (f *fixture) fill(tasks int, with func(i int) []option) {
	f.t.Helper()
	body := value(strings.Repeat("x", 200))
	var requests []any
	for i := range tasks {
		requests = append(requests, f.schedule("order-"+strconv.Itoa(i), append(with(i), body, in(time.Hour+time.Duration(i*7919%tasks)*time.Millisecond))...))
		if len(requests) == 5000 || i == tasks-1 {
			f.do(requests...)
			requests = requests[:0]
		}
	}
}

// TestPendingSizeOfMany shows what a count costs on the server that NOTYET_MYSQL_DSN names: NOTYET_PENDING_TASKS=1000000.
func TestPendingSizeOfMany(t *testing.T) {
	tasks, _ := strconv.Atoi(os.Getenv("NOTYET_PENDING_TASKS"))
	if tasks == 0 {
		t.Skip("NOTYET_PENDING_TASKS is not set")
	}
	f := backends()[2].fixture(t)
	f.fill(tasks, func(int) []option { return nil })
	for _, bodies := range []bool{false, true, false, true} {
		began := time.Now()
		got, err := f.PendingSize(f.ctx, []int{f.source.ID}, bodies)
		require.NoError(t, err)
		require.EqualValues(t, tasks, got[f.source.ID].Tasks)
		t.Logf("bodies %v: %v", bodies, time.Since(began).Round(time.Millisecond))
	}
}
