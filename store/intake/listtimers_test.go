package intake

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// However many timers another topic has, a caller who may not see them gets one page without a cursor.
func TestTimersOfOthersMakeNoPages(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for _, topic := range []string{"billing", "orders"} {
			r := contestTimer(0, schemas.OpTimer, t0)
			r.Topic, r.ID = topic, "t"
			s.do(r)
		}
		const many = 101 // at a time
		for first := 0; first <= look.TimersExamined; first += many {
			var copies []string
			var a []any
			for i := range many {
				id := fmt.Sprintf("customer-%05d", first+i)
				key := task.Ident("billing", id)
				copies = append(copies, "SELECT ?, slot, next, open, placed, state, seq, version, created, topic, ?, definition, body FROM timers WHERE topic = ? AND id = ?")
				a = append(a, key[:], []byte(id), []byte("billing"), []byte("t"))
			}
			_, err := s.db.ExecContext(s.ctx, "INSERT INTO timers (ident, slot, next, open, placed, state, seq, version, created, topic, id, definition, body) "+strings.Join(copies, " UNION ALL "), a...)
			require.NoError(t, err)
		}
		page, err := look.New(s.Store).ListTimers(s.ctx, look.TimerFilter{Allowed: func(topic string) bool { return topic == "orders" }})
		require.NoError(t, err)
		require.Len(t, page.Timers, 1)
		require.Nil(t, page.More)
		page, err = look.New(s.Store).ListTimers(s.ctx, look.TimerFilter{IDPrefix: "none"})
		require.NoError(t, err)
		require.NotNil(t, page.More, "who may see them all goes on")
	})
}

// TestTimersAreListedPageByPage: whatever the filter, the pages together have each timer once, in order.
func TestTimersAreListedPageByPage(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var names []look.TimerName
		for _, topic := range []string{"a", "orders", "orders2"} {
			var requests []any
			for i := range 300 {
				r := contestTimer(i, schemas.OpTimer, t0)
				r.Topic, r.ID = topic, fmt.Sprintf("t%d", i)
				names = append(names, look.TimerName{Topic: topic, ID: r.ID})
				requests = append(requests, r)
			}
			s.do(requests...)
		}
		gone := contestTimer(7, schemas.OpTimerDelete, t0)
		gone.Version = 4
		require.Equal(t, schemas.StateTimerDeleted, s.answer(gone))
		slices.SortFunc(names, func(a, b look.TimerName) int { return strings.Compare(a.Topic+"\x00"+a.ID, b.Topic+"\x00"+b.ID) })
		for _, f := range []look.TimerFilter{
			{}, {Limit: 1000}, {Topic: "orders"}, {Topic: "orders", IDPrefix: "t2", Limit: 7}, {IDPrefix: "t29", Limit: 3}, {Topic: "none"},
			{Limit: 50, Allowed: func(topic string) bool { return topic == "orders2" }},
		} {
			var want, got []look.TimerName
			for _, n := range names {
				if (f.Topic == "" || n.Topic == f.Topic) && strings.HasPrefix(n.ID, f.IDPrefix) && (f.Allowed == nil || f.Allowed(n.Topic)) && n != (look.TimerName{Topic: target, ID: "t7"}) {
					want = append(want, n)
				}
			}
			for range 1000 {
				page, err := look.New(s.Store).ListTimers(s.ctx, f)
				require.NoError(t, err)
				for _, timer := range page.Timers {
					require.Empty(t, timer.Body)
					got = append(got, look.TimerName{Topic: timer.Topic, ID: timer.ID})
				}
				if f.After = page.More; f.After == nil {
					break
				}
			}
			require.Equal(t, want, got)
		}
		one, err := look.New(s.Store).GetTimer(s.ctx, target, "t8")
		require.NoError(t, err)
		require.NotEmpty(t, one.Body)
		require.Equal(t, task.TimerEnabled, one.State)
		for _, id := range []string{"t7", "unknown"} {
			_, err = look.New(s.Store).GetTimer(s.ctx, target, id)
			require.ErrorIs(t, err, look.ErrNoTimer)
		}
	})
}
