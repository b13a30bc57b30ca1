package deadletter

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

func noted(seq int64, attempt int32) sendlog.Intent {
	return sendlog.Intent{Seq: seq, Attempt: attempt, Topic: "orders", ID: "a", BodyHash: xxhash.Sum64String("body")}
}

func TestEvidence(t *testing.T) {
	replayed := task.SendNumber(1, 0)
	acked := func(attempt int32) sendlog.Outcome {
		return sendlog.Outcome{Seq: 7, Attempt: attempt, Acked: true, At: int64(attempt)}
	}
	refused := func(attempt int32) sendlog.Outcome {
		return sendlog.Outcome{Seq: 7, Attempt: attempt, Refused: true, At: int64(attempt), Error: "no"}
	}
	again := func(attempt int32) sendlog.Outcome {
		return sendlog.Outcome{Seq: 7, Attempt: attempt, Error: "not now"}
	}
	for name, c := range map[string]struct {
		outcomes []sendlog.Outcome
		noted    []int32
		want     task.Proof
		proven   bool
		doubtful bool
	}{
		"noted only":                   {noted: []int32{1}, doubtful: true},
		"acknowledged":                 {noted: []int32{1}, outcomes: []sendlog.Outcome{acked(1)}, proven: true, want: task.Proof{Attempt: 1, At: 1}},
		"given back, to be sent again": {noted: []int32{1}, outcomes: []sendlog.Outcome{again(1)}, doubtful: true},
		"given back, then sent":        {noted: []int32{1, 1}, outcomes: []sendlog.Outcome{again(1), acked(1)}, proven: true, want: task.Proof{Attempt: 1, At: 1}},
		"the newest attempt counts":    {noted: []int32{1, 2, 3}, outcomes: []sendlog.Outcome{acked(1), acked(3), acked(2)}, proven: true, want: task.Proof{Attempt: 3, At: 3}},
		"a retry is in doubt":          {noted: []int32{1, 2}, outcomes: []sendlog.Outcome{acked(1)}, proven: true, doubtful: true, want: task.Proof{Attempt: 1, At: 1}},
		"refused":                      {noted: []int32{1}, outcomes: []sendlog.Outcome{refused(1)}, proven: true, want: task.Proof{Attempt: 1, At: 1, Refused: "no"}},
		"refused, replayed, sent": {noted: []int32{1, replayed + 1}, outcomes: []sendlog.Outcome{refused(1), acked(replayed + 1)}, proven: true,
			want: task.Proof{Replay: 1, Attempt: 1, At: int64(replayed) + 1}},
		"another log has it sent":  {noted: []int32{1}, outcomes: []sendlog.Outcome{refused(1), acked(1), refused(1)}, proven: true, want: task.Proof{Attempt: 1, At: 1}},
		"whose it is is not known": {outcomes: []sendlog.Outcome{acked(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvidence()
			for _, attempt := range c.noted {
				in := noted(7, attempt)
				e.note(sendlog.Entry{At: 100, Intent: &in})
			}
			for _, o := range c.outcomes {
				e.note(sendlog.Entry{At: 200, Outcome: &o})
			}
			proof, ok := e.Of(&task.Task{Seq: 7, Topic: "orders", ID: "a", Body: []byte("body")})
			require.Equal(t, c.proven, ok)
			if ok {
				c.want.Taken = 100
				require.Equal(t, c.want, proof)
				require.Equal(t, []int64{7}, seqsOf(e.proven()))
			} else {
				require.Empty(t, e.proven())
			}
			require.Equal(t, c.doubtful, len(e.doubtful()) == 1)
		})
	}
}

// Two sources may have exchanged their numbers since the backup: a seq alone proves nothing.
func TestEvidenceKnowsTheTaskItIsAbout(t *testing.T) {
	e := newEvidence()
	in := noted(7, 1)
	e.note(sendlog.Entry{Intent: &in})
	e.note(sendlog.Entry{Outcome: &sendlog.Outcome{Seq: 7, Attempt: 1, Acked: true}})
	for name, other := range map[string]task.Task{
		"topic": {Seq: 7, Topic: "order", ID: "sa", Body: []byte("body")}, "id": {Seq: 7, Topic: "orders", ID: "b", Body: []byte("body")},
		"body": {Seq: 7, Topic: "orders", ID: "a", Body: []byte("other")}, "seq": {Seq: 8, Topic: "orders", ID: "a", Body: []byte("body")},
	} {
		_, ok := e.Of(&other)
		require.False(t, ok, name)
	}
	_, ok := e.Of(&task.Task{Seq: 7, Topic: "orders", ID: "a", Body: []byte("body")})
	require.True(t, ok)
}

// Each log has its own tasks under a number: an answer in one proves nothing about a task of the other, in whichever order they are read.
func TestEvidenceOfLogsThatExchangedNumbers(t *testing.T) {
	ctx := context.Background()
	sent, doubtful := t.TempDir(), t.TempDir()
	for dir, id := range map[string]string{sent: "a", doubtful: "b"} {
		l, err := sendlog.Open(dir, sendlog.Config{}, zap.NewNop())
		require.NoError(t, err)
		in := noted(7, 1)
		in.ID = id
		require.NoError(t, l.AppendIntents(ctx, []sendlog.Intent{in}))
		if dir == sent {
			require.NoError(t, l.AppendOutcomes(ctx, []sendlog.Outcome{{Seq: 7, Attempt: 1, Acked: true}}))
		}
		require.NoError(t, l.Close())
	}
	for _, dirs := range [][]string{{sent, doubtful}, {doubtful, sent}} {
		e := newEvidence()
		for _, dir := range dirs {
			_, err := e.read(ctx, dir, "", time.Time{}, zap.NewNop())
			require.NoError(t, err)
		}
		_, ok := e.Of(&task.Task{Seq: 7, Topic: "orders", ID: "a", Body: []byte("body")})
		require.True(t, ok)
		_, ok = e.Of(&task.Task{Seq: 7, Topic: "orders", ID: "b", Body: []byte("body")})
		require.False(t, ok)
		require.Len(t, e.doubtful(), 1)
	}
}

// Runs of timers are kept by name: no intake record makes them again.
func TestEvidenceNamesRunsOfTimers(t *testing.T) {
	e := newEvidence()
	for _, seq := range []int64{task.Seq(task.RunSource, 9), task.Seq(task.RunSource, 4), task.Seq(20, 4)} {
		in := noted(seq, 1)
		in.ID = fmt.Sprintf("t@%d", seq)
		e.note(sendlog.Entry{Intent: &in})
		e.note(sendlog.Entry{Intent: &in})
	}
	first, second := task.Seq(task.RunSource, 4), task.Seq(task.RunSource, 9)
	require.Equal(t, []intake.SentRun{{Seq: first, Topic: "orders", ID: fmt.Sprintf("t@%d", first)}, {Seq: second, Topic: "orders", ID: fmt.Sprintf("t@%d", second)}}, e.sentRuns())
	run := task.Task{Seq: first, Topic: "orders", ID: fmt.Sprintf("t@%d", first), Body: []byte("body")}
	require.True(t, e.same(&run), "though it is not proven")
	run.Body = []byte("other")
	require.False(t, e.same(&run))
}

func TestEvidenceFromLogs(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	l, err := sendlog.Open(dir, sendlog.Config{Now: func() time.Time { return time.UnixMilli(1000) }}, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, l.AppendIntents(ctx, []sendlog.Intent{noted(7, 1), noted(8, 1)}))
	require.NoError(t, l.AppendOutcomes(ctx, []sendlog.Outcome{{Seq: 7, Attempt: 1, Acked: true}}))
	_, err = newEvidence().read(ctx, dir, "", time.Time{}, zap.NewNop())
	require.ErrorIs(t, err, sendlog.ErrLocked, "its dispatcher is at work")
	require.NoError(t, l.Close())

	for range 2 { // and an old log is not pruned by reading it
		e := newEvidence()
		read, err := e.read(ctx, dir, "", time.Time{}, zap.NewNop())
		require.NoError(t, err)
		require.Equal(t, LogRead{Dir: dir, Entries: 3}, read)
		require.Equal(t, []int64{7}, seqsOf(e.proven()))
		require.Equal(t, []int64{8}, seqsOf(e.doubtful()))
	}
	e := newEvidence()
	read, err := e.read(ctx, dir, "", time.UnixMilli(2000), zap.NewNop())
	require.NoError(t, err)
	require.Zero(t, read.Entries, "since")

	_, err = newEvidence().read(ctx, t.TempDir(), "", time.Time{}, zap.NewNop())
	require.ErrorIs(t, err, sendlog.ErrNoLog)
}
