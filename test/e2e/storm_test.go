package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/dispatcher"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/recordtest"
)

// action is one request and its publication time.
type action struct {
	at     int64
	record *kgo.Record
}

// perform publishes each request at its time.
func (s *stack) perform(actions []action) {
	slices.SortFunc(actions, func(a, b action) int { return int(a.at - b.at) })
	for _, a := range actions {
		time.Sleep(time.Until(time.UnixMilli(a.at)))
		s.client.Produce(context.Background(), a.record, func(_ *kgo.Record, err error) {
			if err != nil {
				s.t.Error(err)
			}
		})
	}
	require.NoError(s.t, s.client.Flush(s.t.Context()))
}

// TestStormAtDueTime sends a cancel or a replacement for every task within 50 ms of its due time.
// The answers must hold: nothing is published after cancelled, and no older version after a newer
// one was acknowledged. NOTYET_CLUSTER_TASKS sets the number of each.
func TestStormAtDueTime(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		n := clusterTasks(t, 1000)
		target := s.name + ".storm"
		s.judging(4, target)
		s.scanner()
		if s.scanner(); s.real {
			s.dispatcherWith(dispatcher.Config{MemberID: "two", LookAhead: 40 * time.Millisecond})
		}
		s.dispatcherWith(dispatcher.Config{MemberID: "one", LookAhead: 40 * time.Millisecond}) // so that either side can win
		span := max(2*time.Second, time.Duration(n)*time.Second/2000)
		begin := time.Now().Add(3 * time.Second)
		var actions []action
		for i := range n {
			due := begin.Add(time.Duration(rand.Int64N(int64(span)))).UnixMilli()
			at := strconv.FormatInt(due, 10)
			for _, kind := range []string{"cancel", "replace"} {
				id := fmt.Sprintf("%s-%d", kind, i)
				r := keyed(request(s.intake, target, schemas.HeaderID, id, schemas.HeaderAt, at, schemas.HeaderVersion, "1", schemas.HeaderEvents, "none"), id, "1")
				s.client.Produce(t.Context(), r, nil)
				when := due - 50 + rand.Int64N(101)
				if kind == "cancel" {
					actions = append(actions, action{when, keyed(request(s.intake, target, schemas.HeaderID, id, schemas.HeaderOp, "cancel"), id, "")})
					continue
				}
				actions = append(actions, action{when, keyed(request(s.intake, target, schemas.HeaderID, id, schemas.HeaderAt, strconv.FormatInt(due+500, 10),
					schemas.HeaderVersion, "2", schemas.HeaderEvents, "all"), id, "2")})
			}
		}
		s.perform(actions)

		published := map[string][]arrival{} // id/version
		acknowledged := map[string]int64{}  // replacements, by id
		answers := map[string]schemas.State{}
		reader := s.reader([]string{target, s.results})
		s.read(reader, span+60*time.Second, func(r *kgo.Record) bool {
			if r.Topic == target {
				key := recordtest.Header(r, schemas.HeaderID) + "/" + string(r.Value)
				published[key] = append(published[key], arrival{at: r.Timestamp.UnixMilli()})
			} else {
				e, err := schemas.DecodeEvent(r)
				require.NoError(t, err)
				switch e.State {
				case schemas.StateCancelled, schemas.StateTooLate:
					answers[e.ID] = e.State
				case schemas.StateScheduled:
					acknowledged[e.ID] = r.Timestamp.UnixMilli()
				case schemas.StateSucceeded:
					answers[e.ID] = e.State
				}
			}
			return len(answers) == 2*n && len(published) >= n
		})
		split := map[schemas.State]int{}
		tooLate, replaced, both := 0, 0, 0
		for i := range n {
			id := fmt.Sprintf("cancel-%d", i)
			split[answers[id]]++
			copies := len(published[id+"/1"])
			if answers[id] == schemas.StateCancelled {
				require.Zero(t, copies, "%s was answered cancelled and published", id)
			} else {
				tooLate++
				require.LessOrEqual(t, copies, 1)
			}
			id = fmt.Sprintf("replace-%d", i)
			require.Len(t, published[id+"/2"], 1, "%s", id)
			if old := published[id+"/1"]; len(old) > 0 {
				both++
				require.Len(t, old, 1)
				require.LessOrEqual(t, old[0].at, acknowledged[id], "%s: version 1 after version 2 was acknowledged", id)
			} else {
				replaced++
			}
		}
		t.Logf("cancels: %v; replacements: %d in time, %d after delivery", split, replaced, both)
	})
}
