package intake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/outbox"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
	"github.com/notyet/notyet/timer"
)

// proofs is evidence that knows tasks by id alone.
type proofs map[string]task.Proof

func (p proofs) Of(t *task.Task) (task.Proof, bool) {
	proof, ok := p[t.ID]
	return proof, ok
}

// settleProven is what a reconciliation does with the rows that nobody asks about.
func (f *fixture) settleProven(p Evidence) []schemas.State {
	f.t.Helper()
	all, err := tables.Fetch(f.ctx, f.db, tables.ScanTask, "SELECT "+tables.TaskColumns+" FROM tasks")
	require.NoError(f.t, err)
	seqs := []int64{1}
	for _, t := range all {
		seqs = append(seqs, t.Seq)
	}
	unsent, err := f.Unsent(f.ctx, seqs, p)
	require.NoError(f.t, err)
	New(f.Store).SetEvidence(p) // it holds for every Intake of the store: the scanner that reads the intake again has its own
	defer f.SetEvidence(nil)
	require.NoError(f.t, f.SettleProven(f.ctx, unsent, f.now))
	boxes := f.pendingEvents(10, outbox.TransitionSource)
	require.NoError(f.t, f.outbox.Delete(f.ctx, boxes))
	var told []schemas.State
	for _, box := range boxes {
		told = append(told, states(box.Events)...)
	}
	return told
}

func TestProvenTasksAreSettled(t *testing.T) {
	const minute = 60_000
	sentAt := int64(t0 + 500)
	for name, c := range map[string]struct {
		with    []option
		before  func(s *fixture) // what the older database knows
		proof   task.Proof
		told    []schemas.State
		state   string
		attempt int
		pos     int64 // 0: out of the line
	}{
		"pending": {proof: task.Proof{Attempt: 1, At: sentAt}, told: []schemas.State{schemas.StateSucceeded}, state: "succeeded", attempt: 1},
		"claimed": {before: func(s *fixture) { s.claim(t0 + 2000) },
			proof: task.Proof{Attempt: 1, At: sentAt}, told: []schemas.State{schemas.StateSucceeded}, state: "succeeded", attempt: 1},
		"claimed, and awaits a report": {with: []option{wantReport}, before: func(s *fixture) { s.claim(t0 + 2000) },
			proof: task.Proof{Attempt: 1, At: sentAt}, told: []schemas.State{schemas.StateDispatched}, state: "waiting_report", attempt: 1, pos: sentAt + minute},
		"its retry was sent, and the one after that": {with: []option{wantReport}, before: func(s *fixture) { s.awaitReport("a", 1) },
			proof: task.Proof{Attempt: 3, At: t0 + 9000}, told: []schemas.State{schemas.StateDispatched}, state: "waiting_report", attempt: 3, pos: t0 + 9000 + minute},
		"replayed since":       {proof: task.Proof{Replay: 1, Attempt: 1, At: sentAt}, told: []schemas.State{schemas.StateSucceeded}, state: "succeeded", attempt: 1},
		"refused for good":     {proof: task.Proof{Attempt: 1, At: sentAt, Refused: "too large"}, told: []schemas.State{schemas.StateDead}, state: "dead"},
		"known already":        {with: []option{wantReport}, before: func(s *fixture) { s.awaitReport("a", 1) }, proof: task.Proof{Attempt: 1, At: sentAt}, state: "waiting_report", attempt: 1, pos: t0 + 1000 + minute},
		"delivered in it, too": {before: func(s *fixture) { s.deliver(t0 + 2000) }, proof: task.Proof{Attempt: 1, At: sentAt}, state: "delivered", attempt: 1, pos: t0 + 1000},
		"unknown":              {proof: task.Proof{}, state: "pending", pos: t0 + 1000},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", c.with...), s.schedule("b"))
				if c.before != nil {
					c.before(s)
				}
				beside := s.row("b")
				require.Equal(t, c.told, s.settleProven(proofs{"a": c.proof}))
				require.Equal(t, c.state, s.state("a"))
				v, err := look.New(s.Store).Get(s.ctx, target, "a")
				require.NoError(t, err)
				require.Equal(t, c.attempt, v.Attempt)
				row := s.row("a")
				require.Equal(t, c.proof.Replay, row.Replay)
				if c.pos == 0 {
					require.Equal(t, task.OutOfLine, row.Slot)
				} else {
					require.Equal(t, c.pos, row.Pos)
				}
				require.Equal(t, beside, s.row("b"))
				require.Empty(t, s.settleProven(proofs{"a": c.proof}), "once")
				if c.state == "dead" {
					letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
					require.NoError(t, err)
					require.Equal(t, "kafka refused it: too large", letters[0].Reason)
					require.Equal(t, schemas.KindUndeliverable, letters[0].Kind)
				}
			})
		})
	}
}

// A request that is read again is judged as it was: before the delivery of the task it is about, or after it.
func TestRequestsAreJudgedBesideDeliveries(t *testing.T) {
	const taken = t0 + 10_000
	beside := task.Proof{Taken: taken, Attempt: 1, At: taken + 5}
	early, close, late := int64(taken-task.ClaimMargin-1), int64(taken-task.ClaimMargin), int64(taken+1)
	at := func(accepted int64) option { return func(r *schemas.Request) { r.Accepted = accepted } }
	for name, c := range map[string]struct {
		then   func(s *fixture) *schemas.Request
		told   []schemas.State // beside the first schedule's, in the order of the outboxes
		state  string
		value  string // of the new task, if there is one
		events int
	}{
		"keep before it":  {then: func(s *fixture) *schemas.Request { return s.schedule("a", keep, value("new"), at(early)) }, told: []schemas.State{schemas.StateKept, schemas.StateSucceeded}, state: "succeeded"},
		"keep, too close": {then: func(s *fixture) *schemas.Request { return s.schedule("a", keep, value("new"), at(close)) }, told: []schemas.State{schemas.StateScheduled, schemas.StateSucceeded}, state: "pending", value: "new"},
		"keep after it":   {then: func(s *fixture) *schemas.Request { return s.schedule("a", keep, value("new"), at(late)) }, told: []schemas.State{schemas.StateScheduled, schemas.StateSucceeded}, state: "pending", value: "new"},
		"merge after it": {then: func(s *fixture) *schemas.Request {
			return s.schedule("a", merge(schemas.MergeAppend), value("2"), at(late))
		}, told: []schemas.State{schemas.StateScheduled, schemas.StateSucceeded}, state: "pending", value: "[2]"},
		"replacement after it":   {then: func(s *fixture) *schemas.Request { return s.schedule("a", value("new"), at(late)) }, told: []schemas.State{schemas.StateScheduled, schemas.StateSucceeded}, state: "pending", value: "new"},
		"cancel":                 {then: func(s *fixture) *schemas.Request { return s.cancel("a", at(early)) }, told: []schemas.State{schemas.StateTooLate, schemas.StateSucceeded}, state: "succeeded"},
		"fire, which it came of": {then: func(s *fixture) *schemas.Request { return s.fire("a", at(early)) }, told: []schemas.State{schemas.StateFired, schemas.StateSucceeded}, state: "succeeded"},
		"fire after it":          {then: func(s *fixture) *schemas.Request { return s.fire("a", at(late)) }, told: []schemas.State{schemas.StateTooLate, schemas.StateSucceeded}, state: "succeeded"},
	} {
		for _, batches := range []string{"together", "apart", "stored before the backup"} {
			t.Run(name+", "+batches, func(t *testing.T) {
				each(t, func(t *testing.T, s *fixture) {
					// Evidence is about one version of a task: here, the one with this value.
					s.now = t0 + 20_000
					known := versioned{value: "1", proof: beside}
					first := s.schedule("a", value("1"), at(t0))
					var told []schemas.State
					note := func(events []schemas.Event) {
						told = append(told, states(events)...)
						require.NoError(t, s.outbox.Delete(s.ctx, s.last.Events))
					}
					switch batches {
					case "together":
						s.SetEvidence(known)
						note(s.do(first, c.then(s)))
					case "apart":
						s.SetEvidence(known)
						note(s.do(first))
						note(s.do(c.then(s)))
					default:
						note(s.do(first))
						s.SetEvidence(known)
						note(s.do(c.then(s)))
					}
					told = append(told, s.settleProven(known)...)
					require.ElementsMatch(t, append(c.told, schemas.StateScheduled), told)
					require.Equal(t, c.state, s.state("a"))
					if c.value != "" {
						require.Equal(t, c.value, string(s.body("a").Value))
					}
				})
			})
		}
	}
}

// versioned is evidence about the task that has this value.
type versioned struct {
	value string
	proof task.Proof
}

func (v versioned) Of(t *task.Task) (task.Proof, bool) {
	body, err := schemas.DecodeBody(t.Body)
	return v.proof, err == nil && string(body.Value) == v.value
}

// A request about a task that was sent and awaits its report waits, as it did; the report that is read again ends both.
func TestReportsAfterProofs(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.SetEvidence(versioned{"1", task.Proof{Taken: t0 + 1000, Attempt: 2, At: t0 + 1000}})
		s.now = t0 + time.Hour.Milliseconds()
		s.do(s.schedule("a", value("1"), wantReport, func(r *schemas.Request) { r.Accepted = t0 }))
		require.Equal(t, schemas.StateDispatched, s.answer(s.schedule("a", value("2"))), "of the first; the second waits")
		require.Equal(t, "waiting_report", s.state("a"))
		require.Equal(t, 1, s.count("waiting"))
		require.Equal(t, schemas.State(""), s.answer(says("a", 1, schemas.StatusRetry)), "of an attempt before")
		require.Equal(t, schemas.StateSucceeded, s.answer(says("a", 2, schemas.StatusOK)))
		require.Equal(t, []schemas.State{schemas.StateScheduled}, s.resolve())
		require.Equal(t, "pending", s.state("a"))
	})
}

func states(events []schemas.Event) (out []schemas.State) {
	for _, e := range events {
		out = append(out, e.State)
	}
	return out
}

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
