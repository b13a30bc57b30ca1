package intake

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// inPieces applies a batch in halves, as its sender does after errors about records, and returns how many it took.
func (f *fixture) inPieces(b Batch) (pieces int) {
	f.t.Helper()
	from, limit := b.Advance[0].From, len(b.Changes)
	for rest := b.Changes; len(rest) > 0; {
		n := min(limit, len(rest))
		part := Batch{Changes: rest[:n], Advance: []Advance{{Source: f.source.ID, From: from, To: from + int64(n)}}}
		_, err := f.Apply(f.ctx, part, store.At(f.now))
		if errors.Is(err, errKnown) {
			require.True(f.t, BadRecord(err), "so that the batch is cut")
			require.Greater(f.t, n, 1)
			limit = max(1, limit/2)
			continue
		}
		require.NoError(f.t, err)
		rest, from, pieces = rest[n:], from+int64(n), pieces+1
	}
	return pieces
}

// A batch of small requests about large tasks, or timers, would bring all of these into memory at once.
func TestABatchAboutMuchIsCut(t *testing.T) {
	const count, size = 6, knownBudget / 4
	large := value(strings.Repeat("x", size))
	for name, c := range map[string]struct {
		known, request func(f *fixture, id string) any
	}{
		"cancels": {
			func(f *fixture, id string) any { return f.schedule(id, large) },
			func(f *fixture, id string) any { return f.cancel(id) },
		},
		"replacements": {
			func(f *fixture, id string) any { return f.schedule(id, large) },
			func(f *fixture, id string) any { return f.schedule(id, value("y")) },
		},
		"timers": {
			func(f *fixture, id string) any {
				return f.timerRequest(schemas.OpTimer, func(r *schemas.Request) { r.ID, r.Value = id, make([]byte, size) })
			},
			func(f *fixture, id string) any {
				return f.timerRequest(schemas.OpTimerDisable, func(r *schemas.Request) { r.ID = id })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				var requests []any
				for i := range count {
					id := fmt.Sprint("large ", i)
					s.do(c.known(s, id))
					requests = append(requests, c.request(s, id))
				}
				require.Greater(t, s.inPieces(s.batch(requests...)), 1)
			})
		})
	}
}

// What waits for the end of deliveries is looked at in pieces too.
func TestResolvingMuchIsCut(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var keys [][16]byte
		for i := range 6 {
			id := fmt.Sprint("large ", i)
			s.do(s.schedule(id, value(strings.Repeat("x", knownBudget/4))))
			keys = append(keys, task.Ident(target, id))
		}
		_, err := s.Apply(s.ctx, Batch{Resolve: keys}, store.At(s.now))
		require.ErrorIs(t, err, errKnown)
		_, err = s.Apply(s.ctx, Batch{Resolve: keys[:4]}, store.At(s.now))
		require.NoError(t, err)
	})
}

// What a restore settles is in memory anyway, and is not cut.
func TestSettlingMuchThatIsProvenIsNotCut(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var tasks []task.Task
		for i := range 6 {
			id := fmt.Sprint("large ", i)
			s.do(s.schedule(id, value(strings.Repeat("x", knownBudget/4))))
			tasks = append(tasks, s.row(id))
		}
		require.NoError(t, s.SettleProven(s.ctx, tasks, s.now))
	})
}

// object is a JSON object of about n bytes with as many fields as that has room for.
func object(n int) string {
	var b strings.Builder
	b.WriteString(`{"n":0`)
	for i := 0; b.Len() < n-12; i++ {
		fmt.Fprintf(&b, `,"%d":1`, i)
	}
	return b.String() + "}"
}

// Each merge works on the whole value. A batch of small requests for a large task would keep its transaction busy, and the
// connection silent, for so long that the server hangs up; the same batch would then fail for ever. It is refused before that,
// so that its sender cuts it, and every piece of it is merged in the end.
func TestABatchThatMergesTooMuchIsCut(t *testing.T) {
	for _, c := range []struct {
		mode  schemas.MergeMode
		first string
		more  string
		count int
	}{
		{schemas.MergeSum, object(task.MaxSummed / 4), `{"n":1}`, 100},
		{schemas.MergeAppend, `"` + strings.Repeat("x", 1<<20-4096) + `"`, `1`, 400},
	} {
		t.Run(c.mode.String(), func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", merge(c.mode), value(c.first)))
				var requests []any
				for range c.count {
					requests = append(requests, s.schedule("a", merge(c.mode), value(c.more)))
				}
				batch, pieces, began := s.batch(requests...), 0, s.body("a").Value
				_, err := s.Apply(s.ctx, batch, store.At(s.now))
				require.ErrorIs(t, err, errMerging)
				require.True(t, BadRecord(err), "so that the batch is cut")
				require.Equal(t, began, s.body("a").Value, "nothing of it is stored")

				from, limit := batch.Advance[0].From, len(batch.Changes)
				for rest := batch.Changes; len(rest) > 0; {
					n := min(limit, len(rest))
					part := Batch{Changes: rest[:n], Advance: []Advance{{Source: s.source.ID, From: from, To: from + int64(n)}}}
					_, err := s.Apply(s.ctx, part, store.At(s.now))
					if errors.Is(err, errMerging) {
						limit = max(1, limit/2)
						continue
					}
					require.NoError(t, err)
					rest, from, pieces = rest[n:], from+int64(n), pieces+1
				}
				require.Greater(t, pieces, 1)
				merged := string(s.body("a").Value)
				if c.mode == schemas.MergeSum {
					require.Contains(t, merged, fmt.Sprintf(`"n":%d`, c.count))
				} else {
					require.Equal(t, c.count, strings.Count(merged, ",1"))
				}
			})
		})
	}
}

// To decide about a timer takes milliseconds, for an expression and a jitter that somebody chose. The
// time counts as that of merging does, for the same reason.
func TestABatchOfSlowTimersIsCut(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		batch := s.batch(s.timerRequest(schemas.OpTimer), s.timerRequest(schemas.OpTimerDisable))
		decide := func(took time.Duration, several bool) (merged, error) {
			w := work{intake: s.Intake, clock: store.At(s.now), now: s.now, spread: slots.Even(testSlots), mode: mode{several: several}, merged: merged{took: took}}
			err := s.h.Transact(s.ctx, func(tx *sql.Tx) error {
				w.tx = tx
				return w.decideTimers(s.ctx, batch.Changes)
			})
			return w.merged, err
		}
		_, err := decide(mergePatience+1, true)
		require.ErrorIs(t, err, errMerging)
		_, err = decide(mergePatience+1, false)
		require.NoError(t, err, "one alone may take what it takes")
		spent, err := decide(0, true)
		require.NoError(t, err)
		require.Positive(t, spent.took)
	})
}

// Requests that wait for a delivery's outcome cannot be sent in smaller batches: what is too much for one transaction waits for
// the next.
func TestWaitingMergesAreTakenPieceByPiece(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		const count = 100
		s.own()
		s.do(s.schedule("a", value("x")))
		s.claim(s.row("a").Due)
		requests := []any{s.schedule("a", merge(schemas.MergeSum), value(object(task.MaxSummed/4)))}
		for range count {
			requests = append(requests, s.schedule("a", merge(schemas.MergeSum), value(`{"n":1}`)))
		}
		s.do(requests...)
		require.Equal(t, count+1, s.count("waiting"))
		s.settle(s.row("a").Due)
		rounds := 0
		for ; s.count("waiting") > 0; rounds++ {
			require.Less(t, rounds, count)
			s.resolve()
		}
		require.Greater(t, rounds, 1)
		require.Contains(t, string(s.body("a").Value), fmt.Sprintf(`"n":%d`, count))
	})
}
