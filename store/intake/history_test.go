package intake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
)

func TestGetHistory(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		states := func(id string) (out []schemas.State) {
			t.Helper()
			v, h, err := look.New(s.Store).GetHistory(s.ctx, target, id)
			require.NoError(t, err)
			plain, err := look.New(s.Store).Get(s.ctx, target, id)
			require.NoError(t, err)
			require.Equal(t, plain, v)
			for _, e := range h.Events {
				out = append(out, e.State)
			}
			return out
		}
		s.do(s.schedule("plain"), s.schedule("other", in(time.Hour)))
		require.Equal(t, []schemas.State{schemas.StateScheduled}, states("plain"))
		before := s.dump()
		s.deliver(t0 + 2000)
		after := s.dump()
		require.Equal(t, before["outbox"], after["outbox"], "nothing is written for a plain delivery")
		require.Equal(t, before["tasks"], after["tasks"])
		require.Equal(t, []schemas.State{schemas.StateScheduled, schemas.StateSucceeded}, states("plain"))

		s.now = t0 + 3000
		s.do(s.schedule("r", wantReport, in(0)))
		s.awaitReport("r", 1)
		require.Equal(t, []schemas.State{schemas.StateScheduled, schemas.StateDispatched}, states("r"))
		_, h, err := look.New(s.Store).GetHistory(s.ctx, target, "r")
		require.NoError(t, err)
		require.Equal(t, s.now, h.Events[1].At)
		require.Empty(t, s.do(s.schedule("r")), "it waits")
		_, h, err = look.New(s.Store).GetHistory(s.ctx, target, "r")
		require.NoError(t, err)
		require.Equal(t, 1, h.Waiting)

		s.die("d")
		require.Equal(t, []schemas.State{schemas.StateScheduled, schemas.StateDead}, states("d"))
		for range 3 {
			require.NoError(t, s.Audit(s.ctx, []admin.AuditEntry{{Actor: admin.Actor{Who: "ann"}, What: "cancel", Topic: target, TaskID: "d", Detail: "{}"}, {Topic: "bills", TaskID: "d"}}))
		}
		s.replay()
		_, h, err = look.New(s.Store).GetHistory(s.ctx, target, "d")
		require.NoError(t, err)
		require.Len(t, h.Changes, 3, "of this topic")
		require.Equal(t, schemas.StateScheduled, h.Events[1].State)
		require.Contains(t, h.Events[1].Reason, "replayed by")

		_, _, err = look.New(s.Store).GetHistory(s.ctx, target, "none")
		require.ErrorIs(t, err, look.ErrNotFound)
	})
}
