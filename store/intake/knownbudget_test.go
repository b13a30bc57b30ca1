package intake

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
