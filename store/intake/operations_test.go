package intake

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store/admin"
)

func begun(tenant string) admin.Operation {
	return admin.Operation{What: "purge", Topic: target, Tenant: tenant, Who: "me", Via: admin.ViaAPI, Progress: admin.Progress{Result: []byte("{}"), Total: 3}}
}

func nothing([]byte) int64 { return 0 }

func asIs(int64) ([]byte, error) { return []byte("{}"), nil }

func (f *fixture) operations() admin.Operations { return admin.Operations{Admin: f.Admin} }

// One process at a time makes the steps of an operation. What a former one says counts no more.
func TestOperationLease(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		o, err := s.operations().Begin(s.ctx, begun("a"), asIs)
		require.NoError(t, err)
		first, err := s.operations().Take(s.ctx, "first")
		require.NoError(t, err)
		require.Equal(t, o.ID, first.ID)
		require.Equal(t, admin.Actor{Who: "me", Via: admin.ViaAPI}, first.Actor())
		none, err := s.operations().Take(s.ctx, "second")
		require.NoError(t, err)
		require.Nil(t, none, "it is the first one's")
		require.NoError(t, s.operations().Hold(s.ctx, first))

		_, err = s.db.ExecContext(s.ctx, "UPDATE operations SET lease = 1")
		require.NoError(t, err)
		second, err := s.operations().Take(s.ctx, "second")
		require.NoError(t, err)
		require.NotNil(t, second)
		require.ErrorIs(t, s.operations().Hold(s.ctx, first), admin.ErrOperationEnded)
		first.Done = 9
		require.ErrorIs(t, s.operations().EndStep(s.ctx, first, admin.OperationDone), admin.ErrOperationEnded)
		second.Done, second.Request, second.Result, second.Why = 2, []byte("{2}"), []byte("[2]"), "away"
		require.NoError(t, s.operations().EndStep(s.ctx, second, admin.OperationRuns))

		none, err = s.operations().Take(s.ctx, "third")
		require.NoError(t, err)
		require.Nil(t, none, "what has failed rests")
		_, err = s.db.ExecContext(s.ctx, "UPDATE operations SET lease = 1")
		require.NoError(t, err)
		third, err := s.operations().Take(s.ctx, "third")
		require.NoError(t, err)
		require.Equal(t, second.Progress, third.Progress, "it goes on")
		third.Done = 3
		require.NoError(t, s.operations().EndStep(s.ctx, third, admin.OperationDone))
		got, err := s.operations().Read(s.ctx, o.ID)
		require.NoError(t, err)
		require.Equal(t, admin.OperationDone, got.State)
		require.EqualValues(t, 3, got.Done)
		none, err = s.operations().Take(s.ctx, "fourth")
		require.NoError(t, err)
		require.Nil(t, none)
		_, err = s.operations().Stop(s.ctx, o.ID, nothing)
		require.ErrorIs(t, err, admin.ErrOperationEnded)
		_, err = s.operations().Stop(s.ctx, 99, nothing)
		require.ErrorIs(t, err, admin.ErrNoOperation)
		_, err = s.operations().Read(s.ctx, 99)
		require.ErrorIs(t, err, admin.ErrNoOperation)
	})
}

func TestAStoppedOperationEnds(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		o, err := s.operations().Begin(s.ctx, begun("a"), asIs)
		require.NoError(t, err)
		taken, err := s.operations().Take(s.ctx, "first")
		require.NoError(t, err)
		stopped, err := s.operations().Stop(s.ctx, o.ID, nothing)
		require.NoError(t, err)
		require.Equal(t, admin.OperationStopped, stopped.State)
		require.ErrorIs(t, s.operations().Hold(s.ctx, taken), admin.ErrOperationEnded)
		taken.Done, taken.Result = 4, []byte("[4]")
		require.ErrorIs(t, s.operations().EndStep(s.ctx, taken, admin.OperationRuns), admin.ErrOperationEnded)
		got, err := s.operations().Read(s.ctx, o.ID)
		require.NoError(t, err)
		require.Equal(t, []any{admin.OperationStopped, int64(4), "[4]", stopped.Changed}, []any{got.State, got.Done, string(got.Result), got.Changed}, "the step under way counts")
		taken.Holder, taken.Done = "another", 9
		require.ErrorIs(t, s.operations().EndStep(s.ctx, taken, admin.OperationRuns), admin.ErrOperationEnded)
		got, err = s.operations().Read(s.ctx, o.ID)
		require.NoError(t, err)
		require.EqualValues(t, 4, got.Done)
	})
}

// Turns go round: the one whose last step was longest ago is next.
func TestOperationsTakeTurns(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var order, both []int64
		for range 2 {
			o, err := s.operations().Begin(s.ctx, begun("a"), asIs)
			require.NoError(t, err)
			both = append(both, o.ID)
		}
		for i := range 4 {
			o, err := s.operations().Take(s.ctx, fmt.Sprint(i))
			require.NoError(t, err)
			order = append(order, o.ID)
			_, err = s.db.ExecContext(s.ctx, "UPDATE operations SET changed = changed - 10 WHERE id <> ?", o.ID)
			require.NoError(t, err)
			require.NoError(t, s.operations().EndStep(s.ctx, o, admin.OperationRuns))
		}
		require.Equal(t, append(both, both...), order)
	})
}

func TestOperationsAreBounded(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for range admin.RunningOperations {
			_, err := s.operations().Begin(s.ctx, begun("a"), asIs)
			require.NoError(t, err)
		}
		_, err := s.operations().Begin(s.ctx, begun("a"), asIs)
		require.ErrorIs(t, err, admin.ErrOperations)
		other, err := s.operations().Begin(s.ctx, begun("b"), asIs)
		require.NoError(t, err, "another tenant's are others")
		for range admin.EndedOperations + 2 {
			o, err := s.operations().List(s.ctx, 0, 1)
			require.NoError(t, err)
			_, err = s.operations().Stop(s.ctx, o[0].ID, nothing)
			require.NoError(t, err)
			_, err = s.operations().Begin(s.ctx, begun("b"), asIs)
			require.NoError(t, err)
		}
		_, err = s.operations().Read(s.ctx, other.ID)
		require.ErrorIs(t, err, admin.ErrNoOperation, "the oldest are forgotten")
		all, err := s.operations().List(s.ctx, 0, 1000)
		require.NoError(t, err)
		require.Len(t, all, admin.RunningOperations+admin.EndedOperations)
		page, err := s.operations().List(s.ctx, all[4].ID, 2)
		require.NoError(t, err)
		require.Equal(t, all[5:7], page)
		require.Empty(t, page[0].Request)

		require.NoError(t, s.Reconciles(s.ctx, "1"))
		none, err := s.operations().Take(s.ctx, "me")
		require.NoError(t, err)
		require.Nil(t, none, "a restored database goes on with none")
	})
}

// A backup, or an installation that stood still, has operations whose rest nobody wants. Leases from
// before the clock was set back end too.
func TestOldOperationsAreStopped(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		o, err := s.operations().Begin(s.ctx, begun("a"), asIs)
		require.NoError(t, err)
		_, err = s.db.ExecContext(s.ctx, "UPDATE operations SET lease = changed + 3600000")
		require.NoError(t, err)
		taken, err := s.operations().Take(s.ctx, "me")
		require.NoError(t, err)
		require.NotNil(t, taken)
		_, err = s.db.ExecContext(s.ctx, "UPDATE operations SET lease = 0, changed = changed - 3700000")
		require.NoError(t, err)
		taken, err = s.operations().Take(s.ctx, "me")
		require.NoError(t, err)
		require.Nil(t, taken)
		got, err := s.operations().Read(s.ctx, o.ID)
		require.NoError(t, err)
		require.Equal(t, admin.OperationStopped, got.State)
		require.Contains(t, got.Why, "ask for it again")
	})
}
