package intake

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/task"
)

// eachEmbedded is each without servers: their triggers need rights that a test has not.
func eachEmbedded(t *testing.T, f func(t *testing.T, s *fixture)) {
	each(t, func(t *testing.T, s *fixture) {
		if !s.backend.sqlite {
			t.Skip("makes a trigger")
		}
		f(t, s)
	})
}

// refuseRuns makes the database refuse the runs of timers whose ids begin so.
func (f *fixture) refuseRuns(prefix, action string) {
	f.t.Helper()
	for _, statement := range []string{
		"CREATE TABLE picky (v INTEGER CHECK (v <> 1))",
		"CREATE TRIGGER refuse BEFORE INSERT ON tasks WHEN CAST(NEW.id AS TEXT) LIKE '" + prefix + "%' BEGIN " + action + "; END",
	} {
		_, err := f.db.ExecContext(f.ctx, statement)
		require.NoError(f.t, err)
	}
}

const (
	refusedForItself = "INSERT INTO picky VALUES (1)"
	refusedUnknown   = "SELECT RAISE(ABORT, 'the moon is full')"
	refusedForNow    = "SELECT RAISE(ABORT, 'UNIQUE constraint failed: made up')"
)

// manyTimers sets timers of every ten seconds.
func (f *fixture) manyTimers(ids ...string) {
	f.t.Helper()
	var requests []any
	for _, id := range ids {
		r := f.timerRequest(schemas.OpTimer)
		r.ID, r.Key = id, []byte(id)
		requests = append(requests, r)
	}
	f.do(requests...)
}

// TestATimerWhoseRunsCannotBeStoredDelaysNobody: whether it is known that they are to blame, or not.
func TestATimerWhoseRunsCannotBeStoredDelaysNobody(t *testing.T) {
	for name, c := range map[string]struct {
		action string
		errors int // of the calls, at most
	}{
		"for what is in them":      {refusedForItself, 0},
		"for what nobody knows of": {refusedUnknown, 30},
	} {
		t.Run(name, func(t *testing.T) {
			eachEmbedded(t, func(t *testing.T, s *fixture) {
				const others = 60
				ids := []string{"bad"}
				for i := range others {
					ids = append(ids, "good-"+strconv.Itoa(i))
				}
				s.manyTimers(ids...)
				s.refuseRuns("bad@", c.action)
				s.own()
				skip, failed, owned := map[[16]byte]bool{}, 0, s.owned(s.epoch)
				calls := 0
				for made := (Made{Timers: 1}); made.Timers > 0; calls++ {
					require.Less(t, calls, 100, "it comes to an end")
					var err error
					if made, err = s.MakeRuns(s.ctx, owned, s.now+ahead, s.now, tolerance, skip); err != nil {
						made.Timers = 1
						failed++
					}
				}
				require.LessOrEqual(t, failed, c.errors)
				require.Equal(t, map[[16]byte]bool{task.Ident(target, "bad"): true}, skip)
				require.Len(t, s.pending(), 10*others, "those of all others")

				_, err := s.db.ExecContext(s.ctx, "DROP TRIGGER refuse")
				require.NoError(t, err)
				s.make()
				require.Len(t, s.pending(), 10*(others+1), "and its own, once they can be stored")
			})
		})
	}
}

// TestAPageEndsWhenItsTimeIsUp: with one timer, however long its runs take to be computed.
func TestAPageEndsWhenItsTimeIsUp(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.manyTimers("a", "b", "c")
		s.own()
		s.pace.patience = -1
		for n := 1; n <= 3; n++ {
			made, err := s.MakeRuns(s.ctx, s.owned(s.epoch), s.now+ahead, s.now, tolerance, nil)
			require.NoError(t, err)
			require.Equal(t, 10, made.Runs)
			require.Len(t, s.pending(), 10*n)
		}
		require.Zero(t, s.make())
	})
}

// TestARepeatedTransactionTakesNoNewNumbers: what was reserved is enough, however often it is tried.
func TestARepeatedTransactionTakesNoNewNumbers(t *testing.T) {
	eachEmbedded(t, func(t *testing.T, s *fixture) {
		s.do(s.timerRequest(schemas.OpTimer, every(time.Second)))
		s.refuseRuns("t@", refusedForNow)
		s.own()
		_, err := s.MakeRuns(s.ctx, s.owned(s.epoch), s.now+ahead, s.now, tolerance, nil)
		require.ErrorContains(t, err, "made up")
		require.EqualValues(t, runBlock-ahead/1000-1, s.runs.to-s.runs.next, "those of one try")
	})
}

func TestPagesOfRunsFollowWhatTheDatabaseTakes(t *testing.T) {
	var p makePace
	skip := map[[16]byte]bool{}
	keys := func(n int) (out []any) {
		for i := range n {
			out = append(out, append(make([]byte, 15), byte(i)))
		}
		return out
	}
	timers, runs, bytes := p.next()
	require.Equal(t, []int{makeTimers, makeRuns, makeBytes}, []int{timers, runs, bytes})
	sizes := []int{}
	for timers > 1 {
		require.False(t, p.failed(keys(timers), skip, handle.ErrCommit))
		timers, runs, bytes = p.next()
		sizes = append(sizes, timers)
	}
	require.Equal(t, []int{100, 50, 25, 12, 6, 3, 1}, sizes)
	require.Equal(t, makeRuns/makeTimers, runs)
	require.Equal(t, makeBytes/makeTimers, bytes)
	for range makeTries - 1 {
		require.False(t, p.failed(keys(1), skip, handle.ErrCommit), "it may be the database")
	}
	require.False(t, p.failed(keys(2)[1:], skip, handle.ErrCommit), "another one fails too")
	for range makeTries - 1 {
		require.False(t, p.failed(keys(1), skip, handle.ErrCommit))
	}
	require.True(t, p.failed(keys(1), skip, handle.ErrCommit), "always the same one")
	require.True(t, p.failed(keys(2)[1:], skip, errDamaged), "it is known to be to blame")
	for range 8 {
		p.succeeded(skip)
	}
	timers, _, _ = p.next()
	require.Equal(t, makeTimers, timers)
}

// TestNoTimerIsLeftAloneForAnOutage: an error that the database gives to everybody is no timer's fault.
func TestNoTimerIsLeftAloneForAnOutage(t *testing.T) {
	for _, n := range []int{1, 20} {
		eachEmbedded(t, func(t *testing.T, s *fixture) {
			var ids []string
			for i := range n {
				ids = append(ids, "t-"+strconv.Itoa(i))
			}
			s.manyTimers(ids...)
			s.refuseRuns("", refusedUnknown)
			s.own()
			skip, owned := map[[16]byte]bool{}, s.owned(s.epoch)
			page := func() (Made, error) { return s.MakeRuns(s.ctx, owned, s.now+ahead, s.now, tolerance, skip) }
			for range 10 * makeTries {
				if made, err := page(); err == nil && made.Timers == 0 {
					break // the round is over; the next one begins with all of them
				}
			}
			_, err := s.db.ExecContext(s.ctx, "DROP TRIGGER refuse")
			require.NoError(t, err)
			for made := (Made{Timers: 1}); made.Timers > 0; {
				made, err = page()
				require.NoError(t, err)
			}
			require.Len(t, s.pending(), 10*n, "of all timers, without waiting for a new round of all")
		})
	}
}
