package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/history"
)

func TestLivesAreDecidedBySeedAndNumber(t *testing.T) {
	require.Equal(t, life(1, 7, 1000, 60_000), life(1, 7, 1000, 60_000))
	require.NotEqual(t, life(1, 7, 1000, 60_000), life(1, 8, 1000, 60_000))
	require.NotEqual(t, life(1, 7, 1000, 60_000), life(2, 7, 1000, 60_000))
}

// TestRequestsAreWhatTheContractSays: every kind of request occurs. All but the invalid ones can be
// decoded and mean what their op says.
func TestRequestsAreWhatTheContractSays(t *testing.T) {
	const now = 1_700_000_000_000
	kinds := map[string]int{}
	for n := range int64(3000) {
		for i, p := range life(5, n, now, 60_000) {
			op := p.op
			op.N = n*10 + int64(i) + 1
			r := record(&op, 10)
			require.Equal(t, op.N, history.Number(r.Value))
			r.Timestamp = time.UnixMilli(now)
			request, err := schemas.Decode(r, schemas.Limits{})
			if op.Invalid {
				kinds["invalid"]++
				require.Error(t, err)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, op.Version, request.Version)
			require.Equal(t, op.Topic, request.Topic)
			kinds[request.Op.String()]++
			if op.Kind == history.Schedule {
				require.Equal(t, op.Hash, history.BodyHash(request.Key, request.Value, request.Headers), "what is delivered has the hash that was noted")
				require.Equal(t, op.AckTimeout > 0, request.Settings.Ack == schemas.AckReport)
			}
			if op.Due > 0 && op.Kind == history.Schedule {
				require.Equal(t, op.Due, request.Due)
			}
		}
	}
	for _, kind := range []string{"invalid", "schedule", "cancel"} {
		require.Positive(t, kinds[kind], kind)
	}
}

func TestAgendaKeepsOrder(t *testing.T) {
	var a agenda
	var all []planned
	for i := range 100 {
		all = append(all, planned{at: int64(i % 3), op: history.Op{Due: int64(i)}})
	}
	a.add(all)
	last := planned{at: -1}
	for a.Len() > 0 {
		p := a.next()
		require.True(t, p.at > last.at || p.at == last.at && p.op.Due > last.op.Due)
		last = p
	}
}

func TestConsumersDoEverything(t *testing.T) {
	seen := map[behaviour]bool{}
	for op := range int64(1000) {
		b := behave(3, op, 1)
		require.Equal(t, b, behave(3, op, 1))
		seen[b] = true
	}
	require.Len(t, seen, int(staysSilent)+1)
}
