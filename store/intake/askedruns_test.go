package intake

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

// backfill makes all runs of the timer t in a range, and returns the sums.
func (f *fixture) backfill(r task.Range) (out AskedRuns) {
	f.t.Helper()
	for {
		piece, err := f.BackfillPiece(f.ctx, target, "t", r, out.Entry, f.now, false)
		require.NoError(f.t, err)
		out.Made, out.Existing, out.Coming, out.Forgotten = out.Made+piece.Made, out.Existing+piece.Existing, out.Coming+piece.Coming, out.Forgotten+piece.Forgotten
		out.Added, out.Entry = append(out.Added, piece.Added...), piece.Entry
		if r.From = piece.Next; r.From == 0 {
			return out
		}
	}
}

// TestOneRunIsAskedFor: it is an ordinary task of the timer, due now, and exists once.
func TestOneRunIsAskedFor(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		_, err := s.AskRun(s.ctx, target, "t", t0, t0)
		require.ErrorIs(t, err, look.ErrNoTimer)
		s.do(s.timerRequest(schemas.OpTimer, every(time.Hour), func(r *schemas.Request) {
			from := int64(t0 + 1_800_000)
			r.Timer.From, r.Settings.MaxLateness = &from, time.Minute
		}))
		for _, op := range []schemas.Op{schemas.OpTimerEnable, schemas.OpTimerDisable} {
			s.do(s.timerRequest(op))
			s.now += 5000
			before := s.timer()
			for i, want := range []int{1, 0} {
				made, err := s.AskRun(s.ctx, target, "t", s.now-1000, s.now)
				require.NoError(t, err)
				require.Equal(t, []int{want, 1 - want}, []int{made.Made, made.Existing}, "asked for %d times before", i)
				require.Len(t, made.Added, want)
			}
			require.Equal(t, before, s.timer(), "the timer goes on as if nothing had been")
			run := s.row(timer.RunID("t", s.now-1000))
			require.Equal(t, []int64{s.now, s.now}, []int64{run.Due, run.Pos})
			body := s.body(run.ID)
			require.Equal(t, schemas.Run{Timer: "t"}, body.Settings.Run, "never missed")
			require.Zero(t, body.Settings.MaxLateness, "it does not expire")
			require.Equal(t, "v", string(body.Value))
			require.Equal(t, s.timer().Slot, run.Slot)
			s.deliver(s.now)
			require.Equal(t, "delivered", s.state(run.ID))
			again, err := s.AskRun(s.ctx, target, "t", s.now-1000, s.now+1)
			require.NoError(t, err)
			require.Zero(t, again.Made, "also when it has ended")
		}
		s.do(s.timerRequest(schemas.OpTimerDelete, version(3)))
		_, err = s.AskRun(s.ctx, target, "t", s.now, s.now)
		require.ErrorIs(t, err, look.ErrNoTimer, "only its version is known")
	})
}

// TestRunsOfARangeAreMadeOnce: of a timer that is disabled, that was set later, and that makes its own.
func TestRunsOfARangeAreMadeOnce(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		const minute = 60_000
		s.do(s.timerRequest(schemas.OpTimer, every(time.Minute), func(r *schemas.Request) { r.Timer.Jitter = 30 * time.Second }))
		s.make()
		s.now += minute / 2
		s.claim(t0 + 5*minute)
		first := s.backfill(task.Range{From: t0 - 450*minute, To: t0 + 10*minute})
		require.Equal(t, []int{450, 1, 9}, []int{first.Made, first.Existing, first.Coming}, "the timer made one, and two more are its own affair")
		var last int64
		for _, p := range first.Added {
			require.Greater(t, p.Pos, int64(t0+5*minute), "behind what is claimed")
			require.Greater(t, p.Seq, last, "numbered from the oldest on")
			last = p.Seq
		}
		schedule, err := timer.New(s.timer().Definition)
		require.NoError(t, err)
		row := s.row(timer.RunID("t", t0-7*minute))
		require.Equal(t, schedule.Due(target, "t", t0-7*minute), row.Due, "when it was due, with its jitter")
		again := s.backfill(task.Range{From: t0 - 450*minute, To: t0 + 10*minute})
		require.Equal(t, []int{0, 451, 9}, []int{again.Made, again.Existing, again.Coming})

		rehearsed, err := s.BackfillPiece(s.ctx, target, "t", task.Range{From: t0 - 460*minute, To: t0}, 0, s.now, true)
		require.NoError(t, err)
		require.Equal(t, []int{10, 190, 0}, []int{rehearsed.Made, rehearsed.Existing, len(rehearsed.Added)})
		require.Equal(t, int64(t0-260*minute), rehearsed.Next, "a piece")
		require.Equal(t, 10, s.backfill(task.Range{From: t0 - 460*minute, To: t0 - 450*minute}).Made, "the rehearsal made none")

		from := int64(t0 - 5*minute)
		s.do(s.timerRequest(schemas.OpTimer, every(time.Minute), func(r *schemas.Request) { r.Timer.From = &from }))
		got := s.backfill(task.Range{From: t0 - 480*minute, To: t0})
		require.Equal(t, []int{0, 5}, []int{got.Made, got.Existing}, "a timer has no runs before the from that it was given")
	})
}

// TestForgottenRunsAreLeftOut: nobody knows any more whether they were made. A caller can insist.
func TestForgottenRunsAreLeftOut(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.timerRequest(schemas.OpTimer))
		since, err := s.Remembered(s.ctx, s.now)
		require.NoError(t, err)
		require.Equal(t, s.now, since, "nobody has said it")
		for _, upTo := range []int64{t0 - 600_000, t0 - 1_000_000} {
			require.NoError(t, s.ForgetUpTo(s.ctx, upTo))
			since, err = s.Remembered(s.ctx, s.now)
			require.NoError(t, err)
			require.Equal(t, int64(t0-600_000+120_000), since, "and what is forgotten is not remembered again")
		}
		got := s.backfill(task.Range{From: t0 - 1_000_000, To: t0, Remembered: since})
		require.Equal(t, []int{48, 52}, []int{got.Made, got.Forgotten})
		got = s.backfill(task.Range{From: t0 - 1_000_000, To: t0, Remembered: since, Forgotten: true})
		require.Equal(t, []int{52, 48, 0}, []int{got.Made, got.Existing, got.Forgotten})
	})
}

// TestDroppedRunsAreMadeAnew: they were never sent. What has a dead letter is for a replay.
func TestDroppedRunsAreMadeAnew(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.timerRequest(schemas.OpTimer))
		s.make()
		s.now += 25_000
		s.claim(s.now)
		dropped, expired := s.row(timer.RunID("t", t0)), s.row(timer.RunID("t", t0+10_000))
		gone, letter := s.transition(dropped.ID, task.StateDead, 0, 0), s.transition(expired.ID, task.StateDead, 0, 0)
		letter.Dead = &task.DeadLetter{Seq: expired.Seq, Kind: schemas.KindExpired, Topic: target, TaskID: expired.ID, Body: expired.Body}
		s.settle(s.now, gone, letter)
		require.Equal(t, "dead", s.state(dropped.ID))
		got := s.backfill(task.Range{From: t0, To: t0 + 30_000})
		require.Equal(t, []int{1, 2}, []int{got.Made, got.Existing})
		again := s.row(dropped.ID)
		require.NotEqual(t, dropped.Seq, again.Seq, "its delivery is another one")
		require.Equal(t, "pending", s.state(dropped.ID))
		require.Equal(t, "dead", s.state(expired.ID))
		s.deliver(s.now + 10)
		require.Equal(t, "delivered", s.state(dropped.ID))
		require.Zero(t, s.backfill(task.Range{From: t0, To: t0 + 30_000}).Made)
	})
}

// TestBackfillsMeet: two callers, and the timer's own owner, at the same time, make each run once.
func TestBackfillsMeet(t *testing.T) {
	eachAtOnce(t, func(t *testing.T, s *fixture) {
		s.do(s.timerRequest(schemas.OpTimer))
		s.own()
		stores := []*store.Store{s.Store, s.another(), s.another()}
		var wait sync.WaitGroup
		var mu sync.Mutex
		made := 0
		for i, st := range stores {
			wait.Go(func() {
				for r := (task.Range{From: t0 - 3_000_000, To: t0 + 60_000}); ; {
					if i == 0 {
						_, err := New(st).MakeRuns(s.ctx, []store.SlotEpoch{{Slot: s.timer().Slot, Epoch: s.epoch}}, s.now+ahead, s.now, tolerance, map[[16]byte]bool{})
						if err != nil {
							t.Error(err)
							return
						}
					}
					piece, err := New(st).BackfillPiece(s.ctx, target, "t", r, 0, s.now, false)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					made += piece.Made
					mu.Unlock()
					if r.From = piece.Next; r.From == 0 {
						return
					}
				}
			})
		}
		wait.Wait()
		require.Equal(t, 300, made)
		var rows, ids int
		require.NoError(t, s.db.QueryRowContext(s.ctx, "SELECT COUNT(*), COUNT(DISTINCT id) FROM tasks").Scan(&rows, &ids))
		require.Equal(t, []int{310, 310}, []int{rows, ids})
	})
}

// The caller has looked since when runs are remembered, and waits for its turn meanwhile.
func TestRunsAreForgottenWhileABackfillWaits(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.timerRequest(schemas.OpTimer))
		s.make()
		s.now += 25_000
		s.claim(s.now)
		s.deliver(s.now)
		id := timer.RunID("t", t0)
		require.Equal(t, "delivered", s.state(id))
		require.NoError(t, s.ForgetUpTo(s.ctx, t0-600_000))
		since, err := s.Remembered(s.ctx, s.now)
		require.NoError(t, err)
		require.Less(t, since, int64(t0)) // the caller reads it, and waits for its turn
		require.NoError(t, s.ForgetUpTo(s.ctx, t0+5000))
		_, err = s.db.ExecContext(s.ctx, "DELETE FROM tasks WHERE pos <= ?", t0+5000) // the retirer's round
		require.NoError(t, err)
		got := s.backfill(task.Range{From: t0, To: t0 + 1, Remembered: since})
		require.Equal(t, []int{0, 1}, []int{got.Made, got.Forgotten}, "it was delivered, and nobody remembers it")
	})
}
