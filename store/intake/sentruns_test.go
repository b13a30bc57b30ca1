package intake

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

// TestSentRunsAreRestored: in a database that has forgotten them, under the numbers that they had. The
// others are made as usual, and none twice.
func TestSentRunsAreRestored(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.timerRequest(schemas.OpTimer))
		s.make()
		var sent []SentRun
		was := map[int64]task.Task{}
		for _, seconds := range []int64{0, 20, 30} {
			row := s.row(timer.RunID("t", t0+seconds*1000))
			was[row.Seq] = row
			sent = append(sent, SentRun{Seq: row.Seq, Topic: row.Topic, ID: row.ID})
		}
		other := s.row(timer.RunID("t", t0+40_000))
		sent = append(sent, sent[0], SentRun{Seq: other.Seq, Topic: target, ID: other.ID},
			SentRun{Seq: 1, Topic: target, ID: timer.RunID("t", t0+1)}, SentRun{Seq: 2, Topic: target, ID: "t"}, SentRun{Seq: 3, Topic: target, ID: timer.RunID("unknown", t0)})
		same := func(t *task.Task) bool { return string(was[t.Seq].Body) == string(t.Body) }
		restore := func() int {
			n, err := s.RestoreRuns(s.ctx, sent, s.now+5000, same)
			require.NoError(t, err)
			return n
		}
		require.Zero(t, restore(), "all are there")

		_, err := s.db.ExecContext(s.ctx, "DELETE FROM tasks")
		require.NoError(t, err)
		_, err = s.db.ExecContext(s.ctx, "UPDATE timers SET next = ?, open = ?", t0, t0)
		require.NoError(t, err)
		s.claim(t0 + 15_000)
		require.Equal(t, 3, restore())
		require.Zero(t, restore(), "repeated")
		for seq, want := range was {
			row := s.row(want.ID)
			require.Equal(t, seq, row.Seq)
			require.Equal(t, max(want.Due, t0+15_001), row.Pos, "not where it would be claimed already")
			want.Pos, want.Created = row.Pos, row.Created
			require.Equal(t, want, row)
		}
		require.Equal(t, 7, s.make(), "those that were not sent")
		require.Len(t, s.pending(), 10)

		require.Equal(t, schemas.StateTimerDisabled, s.answer(s.timerRequest(schemas.OpTimerDisable)))
		_, err = s.db.ExecContext(s.ctx, "DELETE FROM tasks")
		require.NoError(t, err)
		require.Zero(t, restore(), "the timer makes none of them")
	})
}
