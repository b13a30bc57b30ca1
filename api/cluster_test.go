package api

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

// Intakes often have the names of teams: a caller for some topics sees those that may write them.
func TestClusterShowsNoIntakesOfOthers(t *testing.T) {
	w := newWorld(t)
	w.local.Lag = func(context.Context) ([]Lag, error) {
		return []Lag{{Topic: "in.a"}, {Topic: "in.b"}, {Topic: "reports"}}, nil
	}
	code, answer := w.as("read", "GET", "/api/v1/cluster", "")
	require.Equal(t, 200, code)
	require.Contains(t, answer, "in.b")
	code, answer = w.as("read of orders", "GET", "/api/v1/cluster", "")
	require.Equal(t, 200, code)
	require.Contains(t, answer, "in.a", "it has no targets of its own")
	require.Contains(t, answer, "reports")
	require.NotContains(t, answer, "in.b", "its target is bills")
	w.local.Lag = func(context.Context) ([]Lag, error) { return nil, errors.New("in.b is away") }
	_, answer = w.as("read of orders", "GET", "/api/v1/cluster", "")
	require.NotContains(t, answer, "in.b")

	s := &server{intakes: fixed(Intake{Topic: "in", Limits: schemas.Limits{AllowedTargets: []string{"bills.*"}}})}
	for pattern, want := range map[string]bool{"bills.*": true, "bills.de": true, "bills": false, "orders": false, "*": true} {
		require.Equal(t, want, s.shows(access.Caller{Topics: []string{pattern}}, "in"), pattern)
	}
}

func TestCluster(t *testing.T) {
	w := newWorld(t)
	empty, err := w.client.Cluster(t.Context())
	require.NoError(t, err)
	require.Empty(t, empty.Services)
	require.Len(t, empty.Slots, 4)
	require.NotEmpty(t, empty.LagError, "without Kafka, the rest is answered")

	require.NoError(t, admin.New(w.store).Beat(t.Context(), admin.Service{ID: "s1", Kind: "scanner", Version: "v1", HTTP: "host:1", Started: 5}))
	require.NoError(t, admin.New(w.store).Beat(t.Context(), admin.Service{ID: "d1", Kind: "dispatcher", Member: "me", Version: "v2"}))
	_, err = intake.New(w.store).Line().Acquire(t.Context(), []int{0, 2}, 7, "me")
	require.NoError(t, err)
	_, err = intake.New(w.store).Line().Acquire(t.Context(), []int{3}, 7, "gone")
	require.NoError(t, err)
	w.local.Lag = func(context.Context) ([]Lag, error) {
		return []Lag{{Topic: "in.a", State: "ok", Next: 5, End: 9, Lag: 4}}, nil
	}
	found, err := w.client.Cluster(t.Context())
	require.NoError(t, err)
	local, err := w.local.Cluster(t.Context())
	require.NoError(t, err)
	require.Equal(t, local, found, "both ways of asking answer the same")
	require.Len(t, found.Services, 2)
	d, s := found.Services[0], found.Services[1]
	require.NotZero(t, d.Seen)
	d.Seen, s.Seen = 0, 0
	require.Equal(t, Service{ID: "d1", Kind: "dispatcher", Member: "me", Version: "v2", Slots: 2}, d)
	require.Equal(t, Service{ID: "s1", Kind: "scanner", Version: "v1", HTTP: "host:1", Started: 5}, s)
	require.Equal(t, []Slot{{Slot: 0, Owner: "me", Alive: true, Epoch: 7}, {Slot: 1}, {Slot: 2, Owner: "me", Alive: true, Epoch: 7}, {Slot: 3, Owner: "gone", Epoch: 7}}, found.Slots)
	require.Equal(t, []Lag{{Topic: "in.a", State: "ok", Next: 5, End: 9, Lag: 4}}, found.Lag)
	require.Empty(t, found.LagError)

	code, answer := w.as("read of orders", "GET", "/api/v1/cluster", "")
	require.Equal(t, 200, code)
	for _, where := range []string{"s1", "d1", "host:1", "me\"", "gone", "v1", "v2"} {
		require.NotContains(t, answer, `"`+where, "where services run is for tokens of all topics")
	}
	var some Cluster
	require.NoError(t, json.Unmarshal([]byte(answer), &some))
	require.Equal(t, "dispatcher 1", some.Services[0].ID)
	require.Equal(t, []string{"dispatcher 1", "", "dispatcher 1", "another"}, []string{some.Slots[0].Owner, some.Slots[1].Owner, some.Slots[2].Owner, some.Slots[3].Owner})

	w.local.Lag = func(ctx context.Context) ([]Lag, error) {
		_, bounded := ctx.Deadline()
		require.True(t, bounded)
		return nil, errors.New("kafka is away")
	}
	found, err = w.client.Cluster(t.Context())
	require.NoError(t, err)
	require.Len(t, found.Services, 2)
	require.Equal(t, "kafka is away", found.LagError)
}

func TestWhatASlotThatIsBehindWaitsFor(t *testing.T) {
	split := func(moved, held int64) store.Change {
		return store.Change{Base: 2, Target: 3, Spread: 3, Moved: moved, MovedHeld: held}
	}
	last := task.Held(0) - 1 // place in time
	for name, c := range map[string]struct {
		slot store.Slot
		want SlotBehind
	}{
		"nobody has it":        {store.Slot{Done: 7, Change: split(9, last)}, SlotBehind{Why: "owner"}},
		"it is not split":      {store.Slot{Owner: "one", Done: 7, Change: store.Change{Base: 2, Target: 3, Spread: 2}}, SlotBehind{Owner: "one", Why: "in-flight", UpTo: 7}},
		"its tasks move":       {store.Slot{Owner: "one", Done: 7, Change: split(9, last)}, SlotBehind{Owner: "one", Why: "tasks", UpTo: 9}},
		"held ones are left":   {store.Slot{Owner: "one", Done: 7, Change: split(last, last)}, SlotBehind{Owner: "one", Why: "tasks"}},
		"some are unanswered":  {store.Slot{Owner: "one", Done: 7, Change: split(last, math.MaxInt64)}, SlotBehind{Owner: "one", Why: "answers"}},
		"later ones, not held": {store.Slot{Owner: "one", Done: 7, Change: split(9, math.MaxInt64)}, SlotBehind{Owner: "one", Why: "tasks", UpTo: 9}},
	} {
		c.slot.Slot, c.want.Slot = 1, 1
		require.Equal(t, c.want, newSlotBehind(c.slot), name)
	}
}
