package intake

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

// A request with a lower version than the task's is stale, wherever the task stands; an equal or higher one, or one
// without a version, is not. Versions are remembered as long as ended tasks are.
func TestStale(t *testing.T) {
	for name, bring := range map[string]func(s *fixture){
		"pending":            func(*fixture) {},
		"claimed":            func(s *fixture) { s.claim(t0 + 1000) },
		"awaiting a report":  func(s *fixture) { s.awaitReport("a", 1) },
		"delivered":          func(s *fixture) { s.deliver(t0 + 1000) },
		"succeeded":          func(s *fixture) { s.awaitReport("a", 1); s.do(says("a", 1, schemas.StatusOK)) },
		"dead":               func(s *fixture) { s.awaitReport("a", 1); s.do(says("a", 1, schemas.StatusFail)) },
		"cancelled":          func(s *fixture) { s.do(s.cancel("a")) },
		"cancelled, version": func(s *fixture) { s.do(s.cancel("a", version(5))) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", version(5), wantReport))
				bring(s)
				before := s.dump()
				for _, r := range []*schemas.Request{s.schedule("a", version(4)), s.schedule("a", version(0), keep), s.cancel("a", version(4)), s.fire("a", version(4))} {
					events := s.do(r)
					require.Len(t, events, 1)
					require.Equal(t, schemas.StateStale, events[0].State, r.Op)
					require.Contains(t, events[0].Reason, "known version 5")
					require.Empty(t, s.last.Added)
					require.Empty(t, s.last.Removed)
				}
				after := s.dump()
				require.Equal(t, before["tasks"], after["tasks"])
				require.Empty(t, after["waiting"], "a stale request waits for nothing")

				require.NotEqual(t, schemas.StateStale, s.answer(s.cancel("a")), "without a version")
			})
		})
	}
}

// An equal version is not a lower one: it replaces a pending task and, after its end, makes a new one.
func TestEqualAndHigherVersionsApply(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for _, v := range []int64{5, 5, 6} {
			require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a", version(v))))
			require.Equal(t, v, s.row("a").Version)
		}
		s.deliver(t0 + 1000)
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a", version(6))))
		require.Equal(t, schemas.StateFired, s.answer(s.fire("a", version(9))))
		require.Equal(t, schemas.StateStale, s.answer(s.schedule("a", version(8))), "a fire's version counts")
	})
}

// Only a cancel's tombstone also holds off its own version.
func TestStaleBehindATombstone(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.cancel("a", version(5)))
		for _, r := range []*schemas.Request{s.schedule("a", version(5)), s.schedule("a", version(5), keep), s.schedule("a", version(5), merge(schemas.MergeLast))} {
			require.Equal(t, schemas.StateStale, s.answer(r))
		}
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a")))
		require.EqualValues(t, 5, s.row("a").Version)
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a", version(5))), "the task is pending again")
	})
}
