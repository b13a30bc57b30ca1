package intake

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

func TestPolicies(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		set := func(topic string, want admin.Policy) {
			t.Helper()
			got, err := s.SetPolicy(s.ctx, topic, s.now, func(p admin.Policy) admin.Policy {
				require.Equal(t, topic, p.Topic)
				return want
			})
			require.NoError(t, err)
			want.Topic, want.Changed = topic, s.now
			require.Equal(t, want, got)
		}
		set("orders", admin.Policy{}) // nothing was said, and nothing is kept of it
		all, err := s.Policies(s.ctx)
		require.NoError(t, err)
		require.Empty(t, all)

		set("orders", admin.Policy{Paused: true})
		s.now++
		set("https://shop.example:8443", admin.Policy{Rate: 0.25, MaxInFlight: 3})
		set("orders", admin.Policy{Rate: 100})
		all, err = s.Policies(s.ctx)
		require.NoError(t, err)
		require.Equal(t, []admin.Policy{
			{Topic: "https://shop.example:8443", Rate: 0.25, MaxInFlight: 3, Changed: t0 + 1},
			{Topic: "orders", Rate: 100, Changed: t0 + 1},
		}, all)

		got, err := s.SetPolicy(s.ctx, "orders", s.now, func(p admin.Policy) admin.Policy { p.Paused = true; return p })
		require.NoError(t, err)
		require.Equal(t, admin.Policy{Topic: "orders", Paused: true, Rate: 100, Changed: s.now}, got, "the rest stays")
		set("orders", admin.Policy{})
		all, err = s.Policies(s.ctx)
		require.NoError(t, err)
		require.Len(t, all, 2, "what was held may still have to go")
		require.True(t, all[1].Open())
		require.False(t, all[0].Open())
	})
}

// A pause ends by the database's clock, and a program of the version before knows of no end.
func TestPausesEnd(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		now, err := s.h.Time(s.ctx)
		require.NoError(t, err)
		ms := now.UnixMilli()
		pause := func(at, until int64) {
			t.Helper()
			_, err := s.SetPolicy(s.ctx, "orders", at, func(p admin.Policy) admin.Policy {
				p.Paused, p.Until, p.Rate = true, until, 5
				return p
			})
			require.NoError(t, err)
		}
		inForce := func() admin.Policy {
			t.Helper()
			all, err := s.Policies(s.ctx)
			require.NoError(t, err)
			require.Len(t, all, 1)
			return all[0]
		}
		pause(ms, ms+time.Hour.Milliseconds())
		require.Equal(t, admin.Policy{Topic: "orders", Paused: true, Rate: 5, Changed: ms, Until: ms + time.Hour.Milliseconds()}, inForce())
		pause(ms-2, ms-1)
		require.Equal(t, admin.Policy{Topic: "orders", Rate: 5, Changed: ms - 1}, inForce(), "it ended, and the limit stays")

		got, err := s.SetPolicy(s.ctx, "orders", ms, func(p admin.Policy) admin.Policy {
			require.False(t, p.Paused)
			p.Rate = 6
			return p
		})
		require.NoError(t, err)
		require.Equal(t, admin.Policy{Topic: "orders", Rate: 6, Changed: ms}, got)

		_, err = s.db.ExecContext(s.ctx, "UPDATE targets SET paused = 1, paused_until = ?, changed = ?", ms-10, ms-5)
		require.NoError(t, err)
		require.Equal(t, admin.Policy{Topic: "orders", Paused: true, Rate: 6, Changed: ms - 5}, inForce(), "as an older program pauses it")
	})
}

// There is an end to how many every dispatcher reads; rows that mean nothing any more make room.
func TestPoliciesAreBounded(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		paused := func(admin.Policy) admin.Policy { return admin.Policy{Paused: true} }
		for i := range admin.MaxPolicies {
			_, err := s.db.ExecContext(s.ctx, "INSERT INTO targets (topic, paused, rate, max_in_flight, changed) VALUES (?, 1, 0, 0, ?)", []byte(fmt.Sprint("t", i)), s.now)
			require.NoError(t, err)
		}
		_, err := s.SetPolicy(s.ctx, target, s.now, paused)
		require.ErrorIs(t, err, admin.ErrTooManyPolicies)
		_, err = s.SetPolicy(s.ctx, "t7", s.now, func(admin.Policy) admin.Policy { return admin.Policy{} })
		require.NoError(t, err, "one of those that are there can be changed")
		_, err = s.SetPolicy(s.ctx, target, s.now, paused)
		require.ErrorIs(t, err, admin.ErrTooManyPolicies, "a dispatcher may not have heard of it")
		s.now += 2 * time.Minute.Milliseconds()
		_, err = s.SetPolicy(s.ctx, target, s.now, paused)
		require.NoError(t, err)
		require.Equal(t, admin.MaxPolicies, s.count("targets"))
		_, err = s.db.ExecContext(s.ctx, "UPDATE targets SET paused_until = ? WHERE topic = ?", s.now+1, []byte("t8"))
		require.NoError(t, err)
		_, err = s.SetPolicy(s.ctx, "another", s.now+2, paused)
		require.ErrorIs(t, err, admin.ErrTooManyPolicies, "its pause ended just now")
		_, err = s.SetPolicy(s.ctx, "another", s.now+2*time.Minute.Milliseconds(), paused)
		require.NoError(t, err, "a pause that ended restricts nothing")
	})
}

// hold puts claimed tasks into their held lines, as their owner does.
func (f *fixture) hold(ids ...string) {
	f.t.Helper()
	var all []line.Transition
	for _, id := range ids {
		e := f.transition(id, task.StateLine, task.Held(f.row(id).Due), 0)
		e.From = f.row(id).Pos
		all = append(all, e)
	}
	f.settle(f.now, all...)
}

// A held task is pending in every respect, and done passes its place.
func TestHeldTasks(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		ids := []string{"a", "b", "c", "d", "e", "f"}
		for i, id := range ids {
			s.do(s.schedule(id, in(time.Duration(len(ids)-i)*time.Millisecond), func(r *schemas.Request) {
				r.Settings.Priority = []schemas.Priority{schemas.PriorityHigh, schemas.PriorityNormal, schemas.PriorityLow}[i%3]
			}))
		}
		other := s.schedule("other", in(time.Millisecond))
		other.Topic = "invoices"
		s.do(other)
		s.now = t0 + 10
		s.claim(s.now)
		s.hold(ids...)
		slots, err := s.Slots(s.ctx)
		require.NoError(t, err)
		for _, slot := range slots {
			require.Equal(t, s.now, slot.Done)
		}
		n, err := s.CountHeld(s.ctx, target, 100)
		require.NoError(t, err)
		require.Equal(t, len(ids), n)
		n, err = s.CountHeld(s.ctx, target, 4)
		require.NoError(t, err)
		require.Equal(t, 4, n)
		n, err = s.CountHeld(s.ctx, "invoices", 4)
		require.NoError(t, err)
		require.Zero(t, n)

		var order []int64
		var after line.HeldPlace
		for {
			page, err := s.HeldTasks(s.ctx, target, after, 2)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			require.LessOrEqual(t, len(page), 2)
			for _, h := range page {
				require.Equal(t, target, h.Topic)
				require.Zero(t, h.Attempt)
				order, after = append(order, h.Seq), h.HeldPlace
			}
		}
		var want []int64
		for i := range ids {
			want = append(want, s.row(ids[len(ids)-1-i]).Seq)
		}
		require.Equal(t, want, order, "in order of due time, whatever their priority")

		behind, err := look.New(s.Store).Overdue(s.ctx, s.now+1)
		require.NoError(t, err)
		require.Empty(t, behind.Unclaimed)
		require.Empty(t, behind.Unsettled)
		require.Greater(t, behind.Next, s.now, "what is held is not overdue")
		page, err := look.New(s.Store).List(s.ctx, look.ListFilter{Topic: target})
		require.NoError(t, err)
		require.Len(t, page.Tasks, len(ids))
		for _, topic := range []string{"", target} { // between two due times, as what is not held
			for limit := 1; limit <= 4; limit++ {
				var seen []int64
				f := look.ListFilter{Topic: topic, From: t0 + 3, To: t0 + 6, Limit: limit}
				for more := true; more; more = f.After != nil {
					page, err := look.New(s.Store).List(s.ctx, f)
					require.NoError(t, err)
					for _, v := range page.Tasks {
						seen = append(seen, v.Due)
						require.Equal(t, "pending", v.State)
					}
					f.After = page.More
				}
				require.Equal(t, []int64{t0 + 3, t0 + 4, t0 + 5}, seen)
			}
		}

		require.Zero(t, s.cancelAll(look.ListFilter{Topic: target, From: t0 + 7, To: t0 + 20}).Cancelled)
		require.EqualValues(t, 1, s.cancelAll(look.ListFilter{Topic: target, From: t0 + 2, To: t0 + 3}).Cancelled, "the bounds are due times")
		require.Equal(t, "cancelled", s.state("e"))

		s.claim(s.now + time.Hour.Milliseconds())
		require.Equal(t, "pending", s.state("a"), "no claim reaches it")
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("a")))
		require.Equal(t, schemas.StateFired, s.answer(s.fire("b")))
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("c", in(2*time.Hour))))
		for _, id := range []string{"b", "c"} {
			require.False(t, task.IsHeld(s.row(id).Pos))
		}
		require.Equal(t, schemas.StateKept, s.answer(s.schedule("d", func(r *schemas.Request) { r.Settings.IfExists = schemas.Keep })))

		// It is called back as what was put off is.
		d := s.row("d")
		recall := line.Transition{Seq: d.Seq, Slot: d.Slot, Epoch: s.epoch, Recall: true, Pos: d.Due, Lane: s.lane(d.Topic, d.Class)}
		stale := recall
		stale.From = d.Pos - 1
		_, err = s.Settle(s.ctx, nil, []line.Transition{stale}, store.At(s.now))
		require.NoError(t, err)
		require.Equal(t, d.Pos, s.row("d").Pos, "it stands at another place by now")
		recall.From = d.Pos
		settled, err := s.Settle(s.ctx, nil, []line.Transition{recall}, store.At(s.now))
		require.NoError(t, err)
		require.Len(t, settled.Moved, 1)
		require.Equal(t, s.now+time.Hour.Milliseconds()+1, s.row("d").Pos, "right behind what is claimed")
		require.Equal(t, task.StateLine, s.row("d").State)
	})
}

func TestHeads(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"), s.schedule("b"))
		a, b := s.row("a"), s.row("b")
		heads, err := s.Heads(s.ctx, []int64{b.Seq, 12345, a.Seq})
		require.NoError(t, err)
		require.Equal(t, []line.Head{
			{Seq: a.Seq, Slot: a.Slot, Pos: a.Pos, Due: a.Due, Topic: target},
			{Seq: b.Seq, Slot: b.Slot, Pos: b.Pos, Due: b.Due, Topic: target},
		}, heads)
	})
}
