package intake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

func TestGet(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		_, err := look.New(s.Store).Get(s.ctx, target, "a")
		require.ErrorIs(t, err, look.ErrNotFound)

		s.do(s.schedule("a", version(3), wantReport, fixedBackoff(5*time.Second)))
		v3 := int64(3)
		check := func(state string, next int64, attempt int) {
			t.Helper()
			v, err := look.New(s.Store).Get(s.ctx, target, "a")
			require.NoError(t, err)
			row := s.row("a")
			require.Equal(t, look.View{Topic: target, ID: "a", State: state, Due: t0 + 1000, Next: next, Attempt: attempt, Version: &v3, Created: t0, Slot: row.Slot, Body: row.Body, Seq: row.Seq}, v)
		}
		check("pending", t0+1000, 0)
		s.claim(t0 + 1000)
		check("claimed", t0+1000, 0)
		s.settle(t0+1000, s.transition("a", task.StateReport, t0+61_000, 1))
		check("waiting_report", t0+61_000, 1)
		s.do(says("a", 1, schemas.StatusRetry))
		check("waiting_retry", s.row("a").Pos, 1)
		s.awaitReport("a", 2)
		s.do(says("a", 2, schemas.StatusOK))
		check("succeeded", 0, 2)

		s.do(s.schedule("b"))
		s.deliver(s.row("b").Pos)
		v, err := look.New(s.Store).Get(s.ctx, target, "b")
		require.NoError(t, err)
		require.Equal(t, "delivered", v.State)
		require.Equal(t, 1, v.Attempt)
		require.Zero(t, v.Next)
		require.Nil(t, v.Version, "it has none")

		s.do(s.schedule("c"), s.cancel("c"))
		require.Equal(t, "cancelled", s.state("c"))
		s.do(s.cancel("d", version(1)))
		require.Equal(t, "cancelled", s.state("d"))
		s.die("e")
		require.Equal(t, "dead", s.state("e"))
		s.replay()
		v, err = look.New(s.Store).Get(s.ctx, target, "e")
		require.NoError(t, err)
		require.Equal(t, 1, v.Replay)
	})
}

// Retiring forgets what has ended and is old enough, and nothing else.
func TestRetire(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for _, id := range []string{"1", "2", "3"} {
			s.do(s.schedule(id, key("k")))
		}
		s.do(s.schedule("young", key("k"), in(2000*ms)), s.schedule("claimed", key("k"), in(3000*ms)), s.schedule("pending", key("k"), in(9000*ms)))
		s.do(s.schedule("cancelled", key("k")), s.cancel("cancelled"))
		slot := s.row("1").Slot
		s.deliver(t0 + 2000)
		s.claim(t0 + 3000)
		retire := func(slot int, before int64) int {
			t.Helper()
			n, rest, err := s.Retire(s.ctx, line.Range{Slot: slot, To: before})
			require.NoError(t, err)
			require.Equal(t, line.Range{Slot: slot, From: before, To: before}, rest, "nothing is left of it")
			return n
		}
		require.Equal(t, 3, retire(slot, t0+1999))
		require.Equal(t, "delivered", s.state("young"))
		require.Equal(t, 1, retire(slot, t0+99_000), "never beyond what is settled")
		require.Equal(t, []string{"", "", "claimed", "pending"}, []string{s.state("3"), s.state("young"), s.state("claimed"), s.state("pending")})
		require.Zero(t, retire(task.OutOfLine, t0-1))
		require.Equal(t, 1, retire(task.OutOfLine, t0))
		require.Equal(t, "", s.state("cancelled"))
		_, _, err := s.Retire(s.ctx, line.Range{Slot: 77, To: t0})
		require.Error(t, err)
	})
}

// What a reader sees while the task is being settled is one of the states it is in, never a mixture of two.
func TestGetDuringSettle(t *testing.T) {
	eachAtOnce(t, func(t *testing.T, s *fixture) {
		const rounds = 60
		s.do(s.schedule("a", wantReport))
		s.own()
		other, stop, seen := s.another(), make(chan struct{}), make(chan string, 1)
		go func() {
			defer close(seen)
			for {
				select {
				case <-stop:
					return
				default:
				}
				v, err := look.New(other).Get(s.ctx, target, "a")
				if err != nil {
					seen <- err.Error()
					return
				}
				if v.State != "pending" && v.State != "claimed" && v.State != "waiting_retry" {
					seen <- v.State
					return
				}
			}
		}()
		for range rounds {
			s.now = s.row("a").Pos
			s.claim(s.now)
			s.settle(s.now, s.transition("a", task.StateRetry, s.now+1000, 1))
		}
		close(stop)
		require.Empty(t, <-seen, "it is never delivered, only retried")
	})
}
