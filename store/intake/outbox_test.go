package intake

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/outbox"
	"github.com/notyet/notyet/task"
)

// Events are stored with what they tell of, until they are told: whoever reads the source next finds them.
func TestOutbox(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		other, err := s.Source(s.ctx, "in", [16]byte{1}, 1, 0)
		require.NoError(t, err)
		var want []handle.Box
		for i := range 3 {
			s.do(s.schedule(fmt.Sprint("a", i)), s.schedule(fmt.Sprint("b", i), tell(schemas.EventsNone)))
			want = append(want, s.last.Events...)
		}
		s.apply(Batch{Advance: []Advance{{other.ID, 0, 1}}, Changes: []task.Change{{Seq: task.Seq(other.ID, 0), Request: s.schedule("c")}}})
		elsewhere := s.last.Events
		s.do(s.schedule("quiet", tell(schemas.EventsNone)))
		require.Empty(t, s.last.Events)

		require.Equal(t, want, s.pendingEvents(10, s.source.ID), "oldest first")
		require.Equal(t, want[:2], s.pendingEvents(2, s.source.ID))
		require.ElementsMatch(t, append(want, elsewhere...), s.pendingEvents(10, s.source.ID, other.ID))
		require.Empty(t, s.pendingEvents(10))

		require.NoError(t, s.outbox.Delete(s.ctx, want[:2]))
		require.NoError(t, s.outbox.Delete(s.ctx, want[:2]), "repeated")
		require.NoError(t, s.outbox.Delete(s.ctx, nil))
		require.ElementsMatch(t, append(want[2:], elsewhere...), s.pendingEvents(10, s.source.ID, other.ID))
		require.NoError(t, s.outbox.Delete(s.ctx, append(elsewhere, want[2])))
		require.Zero(t, s.count("outbox"))
	})
}

// A batch of several sources keeps their events apart: each source's reader tells its own.
func TestOutboxOfSeveralSources(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		other, err := s.Source(s.ctx, "in", [16]byte{1}, 1, 0)
		require.NoError(t, err)
		b := s.batch(s.schedule("a"))
		b.Advance = append(b.Advance, Advance{other.ID, 0, 2})
		b.Changes = append(b.Changes, task.Change{Seq: task.Seq(other.ID, 0), Request: s.schedule("b")}, task.Change{Seq: task.Seq(other.ID, 1), Request: s.cancel("a")})
		s.apply(b)
		require.Len(t, s.last.Events, 2)
		for _, box := range s.last.Events {
			want := 1
			if box.Source == other.ID {
				want = 2
			}
			require.Len(t, box.Events, want)
		}
		require.Equal(t, "cancelled", s.state("a"), "sources are taken in the order of the batch")
	})
}

// A database that was set back decides about a record anew. Whoever still deletes what was told before leaves that alone.
func TestABoxOfBeforeASetBackIsAnother(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		offset := s.offset
		s.do(s.schedule("a"))
		before := s.last.Events
		s.restart("DELETE FROM tasks", "DELETE FROM outbox", fmt.Sprintf("UPDATE sources SET next_offset = %d WHERE src = %d", offset, s.source.ID))
		s.offset, s.now = offset, s.now+1
		s.do(s.schedule("a"))
		require.NoError(t, s.outbox.Delete(s.ctx, before))
		require.Equal(t, s.last.Events, s.pendingEvents(10, s.source.ID))
	})
}

// More than a statement carries.
func TestToldMany(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var told []handle.Box
		for range 25 {
			for range 100 {
				told = append(told, handle.Box{Source: s.source.ID, Seq: task.Seq(s.source.ID, s.offset)})
				s.offset++
			}
		}
		require.NoError(t, s.outbox.Delete(s.ctx, told))
	})
}

// The events of a large settlement take more than a row holds.
func TestManyEventsOfExits(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		const n = 12_000
		list := make([]schemas.Event, n)
		for i := range list { // each character takes six bytes in JSON
			list[i] = schemas.Event{Topic: target, ID: fmt.Sprint(strings.Repeat("<", 240), i), State: schemas.StateDead, At: s.now}
		}
		s.do(s.schedule("a"))
		s.claim(t0 + 1000)
		end := s.transition("a", task.StateDead, 0, 1)
		end.Events = list
		settled, err := s.Settle(s.ctx, nil, []line.Transition{end}, store.At(s.now))
		require.NoError(t, err)
		require.Greater(t, len(settled.Events), 1)
		var stored []schemas.Event
		for _, box := range s.pendingEvents(100, outbox.TransitionSource) {
			stored = append(stored, box.Events...)
		}
		require.Equal(t, list, stored)
	})
}
