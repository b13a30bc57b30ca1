package intake

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// lanesOf are the lanes of a topic's rows, each once.
func (f *fixture) lanesOf(topic string) []task.Lane {
	f.t.Helper()
	var out []task.Lane
	rows, err := f.db.QueryContext(f.ctx, "SELECT DISTINCT lane FROM tasks WHERE topic = ? ORDER BY lane", []byte(topic))
	require.NoError(f.t, err)
	defer rows.Close()
	for rows.Next() {
		var l task.Lane
		require.NoError(f.t, rows.Scan(&l))
		out = append(out, l)
	}
	require.NoError(f.t, rows.Err())
	return out
}

// Nobody finds a topic that shares another one's lanes. Those that do without a key are known, and were found within a second.
func TestLanesCannotBeAimedAt(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		require.Equal(t, task.Unkeyed("billing", 0), task.Unkeyed("a.5e0w0", 0))
		for _, topic := range []string{"billing", "a.5e0w0"} {
			r := s.schedule(topic)
			r.Topic = topic
			s.do(r)
			require.Equal(t, []task.Lane{s.lane(topic, task.ClassNormal)}, s.lanesOf(topic))
		}
		require.NotEqual(t, s.lanesOf("billing"), s.lanesOf("a.5e0w0"))
		key, err := s.another().LaneKey(s.ctx)
		require.NoError(t, err)
		require.Equal(t, s.lane("billing", 0), key.Lane("billing", 0), "all processes have the same key")

		other := open(t, s.backend.fresh(t))
		_, err = other.LaneKey(s.ctx)
		require.Error(t, err, "not migrated")
		require.NoError(t, other.Migrate(s.ctx, testSlots))
		others, err := other.LaneKey(s.ctx)
		require.NoError(t, err)
		require.NotEqual(t, key, others, "each installation has a key")
		require.NotZero(t, others)
		require.NoError(t, other.Migrate(s.ctx, testSlots))
		again, err := tables.ReadMeta(s.ctx, handle.Of(other).DB, handle.LanesKey)
		require.NoError(t, err)
		require.Equal(t, others[:], again, "it stays")
	})
}

// While programs of a version before keys write, and as long as their rows are there, a topic has rows in lanes of two kinds. All of
// them count, and are found, once.
func TestRowsOfUnkeyedLanes(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		const n = 6
		var ids []string
		for i := range n {
			id := fmt.Sprint(i)
			ids = append(ids, id)
			s.do(s.schedule(id, in(time.Duration(1000+i)*time.Millisecond), func(r *schemas.Request) {
				r.Settings.Priority = []schemas.Priority{schemas.PriorityHigh, schemas.PriorityNormal, schemas.PriorityLow}[i%3]
			}))
			if i == n/2-1 {
				s.unkey(target)
			}
		}
		require.Len(t, s.lanesOf(target), n)
		first := t0 + int64(1000)

		pending, err := look.New(s.Store).CountPending(s.ctx, target, t0, 100)
		require.NoError(t, err)
		require.Equal(t, look.Bounded{N: n}, pending)
		steps, _, err := look.New(s.Store).Forecast(s.ctx, look.ForecastFilter{Topic: target, From: t0, To: t0 + 10_000, Step: 10_000})
		require.NoError(t, err)
		require.Equal(t, []look.ForecastStep{{At: t0, Count: n}}, steps)
		for after := (*look.ListPlace)(nil); ; {
			page, err := look.New(s.Store).List(s.ctx, look.ListFilter{Topic: target, Limit: 4, After: after})
			require.NoError(t, err)
			for _, v := range page.Tasks {
				require.Equal(t, ids[0], v.ID, "in order, each once")
				ids = ids[1:]
			}
			if after = page.More; after == nil {
				break
			}
		}
		require.Empty(t, ids)

		s.own()
		s.now = first + n
		s.claim(s.now)
		oldest, others, err := look.New(s.Store).OldestOverdue(s.ctx, []string{target}, s.now+1, 100)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{target: first}, oldest)
		require.Zero(t, others)
		entries := s.whole(s.now)
		require.Len(t, entries, n, "all are claimed")

		var held []line.Transition
		for _, e := range entries {
			held = append(held, line.Transition{Seq: e.Seq, Slot: e.Slot, Epoch: s.epoch, From: e.Pos, Pos: task.Held(e.Pos), Lane: e.Lane})
		}
		s.settle(s.now, held...)
		count, err := s.CountHeld(s.ctx, target, 100)
		require.NoError(t, err)
		require.Equal(t, n, count)
		page, err := s.HeldTasks(s.ctx, target, line.HeldPlace{}, 100)
		require.NoError(t, err)
		require.Len(t, page, n)
		require.True(t, slices.IsSortedFunc(page, func(a, b line.HeldTask) int { return a.Compare(b.HeldPlace) }))

		// What is written anew is in a lane of its own.
		s.do(s.fire("0"))
		require.Contains(t, s.lanesOf(target), s.lane(target, task.ClassHigh))
		require.NotContains(t, s.lanesOf(target), task.Unkeyed(target, task.ClassHigh))
	})
}

// Held tasks of another topic in the same lane do not count.
func TestHeldTasksOfAnotherTopicDoNotCount(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for topic, n := range map[string]int{"billing": 3, "a.5e0w0": 1} {
			for i := range n {
				r := s.schedule(fmt.Sprint(topic, i), in(time.Second))
				r.Topic = topic
				s.do(r)
			}
			s.unkey(topic)
		}
		require.Equal(t, s.lanesOf("billing"), s.lanesOf("a.5e0w0"))
		s.own()
		s.now += 1000
		s.claim(s.now)
		var held []line.Transition
		for _, e := range s.whole(s.now) {
			held = append(held, line.Transition{Seq: e.Seq, Slot: e.Slot, Epoch: s.epoch, From: e.Pos, Pos: task.Held(e.Pos), Lane: e.Lane})
		}
		s.settle(s.now, held...)
		for topic, want := range map[string]int{"billing": 3, "a.5e0w0": 1} {
			n, err := s.CountHeld(s.ctx, topic, 100)
			require.NoError(t, err)
			require.Equal(t, want, n, topic)
		}
	})
}
