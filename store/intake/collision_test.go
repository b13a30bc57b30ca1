package intake

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// The id twin/1 has one identity in all topics, as if somebody had found a collision.
func init() {
	task.Digested = func(b []byte) []byte {
		if bytes.HasSuffix(b, []byte("\x00twin/1")) {
			return []byte("twin/1")
		}
		return b
	}
}

// inBills is the request for another tenant's topic.
func inBills(r *schemas.Request) *schemas.Request {
	r.Topic = "bills"
	return r
}

// Whoever has an id whose identity is that of another's task changes nothing of that task, and is told so.
func TestARequestMeetsAnothersIdentity(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("twin/1", in(time.Hour), value("mine"), version(1))))
		before := s.row("twin/1")
		for name, r := range map[string]*schemas.Request{
			"replace":    inBills(s.schedule("twin/1", value("theirs"))),
			"newer":      inBills(s.schedule("twin/1", version(9))),
			"cancel":     inBills(s.cancel("twin/1")),
			"its cancel": inBills(s.cancel("twin/1", version(9))),
			"fire":       inBills(s.fire("twin/1")),
		} {
			events := s.do(r)
			require.Len(t, events, 1, name)
			require.Equal(t, schemas.StateRejected, events[0].State, name)
			require.Equal(t, "bills", events[0].Topic)
			require.Equal(t, `notyet-id "twin/1": another id, maybe of another topic, has the same hash: use another one`, events[0].Reason)
			require.Equal(t, before, s.row("twin/1"), name)
		}
		report := says("twin/1", 1, schemas.StatusOK)
		report.Topic = "bills"
		require.Empty(t, s.do(report))
		require.Equal(t, before, s.row("twin/1"))

		reader := look.New(s.Store)
		_, _, err := reader.GetHistory(s.ctx, "bills", "twin/1")
		require.ErrorIs(t, err, look.ErrNotFound)
		_, err = reader.Get(s.ctx, "bills", "twin/1")
		require.ErrorIs(t, err, look.ErrNotFound)

		s.letter(task.DeadLetter{Kind: schemas.KindDead, Topic: "bills", TaskID: "twin/1", Body: before.Body})
		s.deliver(before.Pos)
		report1, added := s.replay()
		require.Contains(t, report1[len(report1)-1].Skipped, "has the same hash")
		require.Empty(t, added)
	})
}

// Two that come together are as apart as two that come one after the other.
func TestRequestsOfOneIdentityInABatch(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		events := s.do(s.schedule("twin/1", in(time.Hour), value("mine")), inBills(s.schedule("twin/1", in(time.Hour), value("theirs"))), s.cancel("other"))
		states := map[string]schemas.State{}
		for _, e := range events {
			states[e.Topic+" "+e.ID] = e.State
		}
		require.Equal(t, map[string]schemas.State{"orders twin/1": schemas.StateScheduled, "bills twin/1": schemas.StateRejected, "orders other": schemas.StateNotFound}, states)
		require.Equal(t, "mine", string(s.body("twin/1").Value))
	})
}

func TestATimerMeetsAnothersIdentity(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		of := func(topic string) func(*schemas.Request) {
			return func(r *schemas.Request) { r.Topic, r.ID = topic, "twin/1" }
		}
		require.Equal(t, schemas.StateTimerSet, s.answer(s.timerRequest(schemas.OpTimer, of("orders"))))
		before := s.dump()["timers"]
		for _, op := range []schemas.Op{schemas.OpTimer, schemas.OpTimerDisable, schemas.OpTimerEnable, schemas.OpTimerDelete} {
			events := s.do(s.timerRequest(op, of("bills")))
			require.Len(t, events, 1)
			require.Equal(t, schemas.StateRejected, events[0].State, op)
			require.Contains(t, events[0].Reason, "has the same hash")
			require.Equal(t, before, s.dump()["timers"], op)
		}
		_, err := look.New(s.Store).GetTimer(s.ctx, "bills", "twin/1")
		require.ErrorIs(t, err, look.ErrNoTimer)
		_, err = s.AskRun(s.ctx, "bills", "twin/1", s.now, s.now)
		require.ErrorIs(t, err, look.ErrNoTimer)
		_, err = s.AskRun(s.ctx, "orders", "twin/1", s.now, s.now)
		require.NoError(t, err)
	})
}
