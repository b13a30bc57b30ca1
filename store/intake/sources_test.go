package intake

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
)

func TestSources(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		get := func(topic string, topicID byte, partition int32, first int64) Source {
			src, err := s.Source(s.ctx, topic, [16]byte{topicID}, partition, first)
			require.NoError(t, err)
			return src
		}
		require.Equal(t, Source{ID: s.source.ID, Topic: "in", TopicID: [16]byte{1}, Epoch: Epoch{Number: -1}, Proof: Proof{At: -1}}, s.source)
		require.Equal(t, s.source, get("in", 1, 0, 99), "a known source begins where it stands, not where the caller says")

		other := get("in", 1, 1, 7)
		require.Equal(t, Source{ID: other.ID, Topic: "in", TopicID: [16]byte{1}, Partition: 1, Next: 7, Epoch: Epoch{Number: -1}, Proof: Proof{At: -1}}, other)
		made := get("in", 2, 0, 0)
		ids := []int{s.source.ID, other.ID, made.ID, get("in2", 1, 0, 0).ID} // a topic that was made anew has offsets that mean other records
		slices.Sort(ids)
		require.Len(t, slices.Compact(ids), 4)
		require.GreaterOrEqual(t, ids[0], firstSource)
		require.LessOrEqual(t, ids[3], lastSource)

		s.do(s.schedule("a"))
		require.EqualValues(t, 1, get("in", 1, 0, 0).Next)
		all, err := s.Sources(s.ctx)
		require.NoError(t, err)
		require.Len(t, all, 4)
		require.Contains(t, all, other)
		require.Contains(t, all, made)
	})
}

// A scanner that starts opens all of its partitions at once, beside other scanners.
func TestSourcesMadeByManyAtOnce(t *testing.T) {
	eachAtOnce(t, func(t *testing.T, s *fixture) {
		const partitions, readers = 64, 4
		stores := [readers]*store.Store{s.Store, s.another(), s.another(), s.another()}
		ids := make([][readers]int, partitions)
		errs := make(chan error, partitions*readers)
		var wg sync.WaitGroup
		for p := range partitions {
			for r := range readers {
				wg.Go(func() {
					src, err := New(stores[r]).Source(context.Background(), "many", [16]byte{9}, int32(p), 0)
					ids[p][r] = src.ID
					errs <- err
				})
			}
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			require.NoError(t, err)
		}
		seen := map[int]bool{}
		for p := range partitions {
			require.Equal(t, ids[p][0], ids[p][1], "readers of one partition agree")
			require.False(t, seen[ids[p][0]], "two partitions share a source")
			seen[ids[p][0]] = true
		}
	})
}

// Numbers must not depend on who came first: a restored database has forgotten the latest.
func TestSourceIDsFollowFromWhatTheyStandFor(t *testing.T) {
	id := freeSource(nil, Source{Topic: "in", TopicID: [16]byte{1}, Partition: 0})
	require.Equal(t, id, freeSource([]int{firstSource, id - 1, id + 1}, Source{Topic: "in", TopicID: [16]byte{1}, Partition: 0}))
	require.Equal(t, id+2, freeSource([]int{id, id + 1}, Source{Topic: "in", TopicID: [16]byte{1}, Partition: 0}), "taken by another of the same number")
	require.NotEqual(t, id, freeSource(nil, Source{Topic: "in", TopicID: [16]byte{1}, Partition: 1}))
	require.NotEqual(t, id, freeSource(nil, Source{Topic: "in", TopicID: [16]byte{2}, Partition: 0}))
	require.NotEqual(t, id, freeSource(nil, Source{Topic: "in", TopicID: [16]byte{1}, Partition: 0, Generation: 1}))

	var all []int
	for n := firstSource; n <= lastSource; n++ {
		all = append(all, n)
	}
	require.Zero(t, freeSource(all, Source{Topic: "in", TopicID: [16]byte{1}, Partition: 0}), "none is left")
	require.Equal(t, firstSource, freeSource(all[1:], Source{Topic: "in", TopicID: [16]byte{1}, Partition: 0}), "round the end")
}

// The offset is moved with the tasks, so that a batch happens once, whoever brings it again.
func TestABatchIsStoredOnce(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		first := s.batch(s.schedule("a"), s.schedule("b", merge(1), value(`{"n":1}`)))
		s.apply(first)
		sum := s.batch(s.schedule("b", merge(1), value(`{"n":1}`)))
		s.apply(sum)
		before := s.dump()

		for name, b := range map[string]Batch{
			"the same again":      sum,
			"the one before":      first,
			"a part of one":       {Advance: []Advance{{s.source.ID, 1, 3}}, Changes: sum.Changes, Gaps: []Gap{{s.source.ID, 1, 2}}},
			"from beyond a gap":   {Advance: []Advance{{s.source.ID, 4, 5}}, Gaps: []Gap{{s.source.ID, 4, 5}}},
			"an unknown source":   {Advance: []Advance{{999, 0, 1}}, Gaps: []Gap{{999, 0, 1}}},
			"one of two is known": {Advance: []Advance{{s.source.ID, 3, 4}, {999, 0, 2}}, Gaps: []Gap{{s.source.ID, 3, 4}, {999, 0, 2}}},
		} {
			_, err := s.Apply(s.ctx, b, store.At(s.now))
			require.ErrorIs(t, err, handle.ErrFenced, name)
			require.Equal(t, before, s.dump(), name)
		}
		require.Equal(t, `{"n":2}`, string(s.body("b").Value))
	})
}

// An error at the commit says nothing about what happened. Whoever then repeats the batch is told that it has.
func TestABatchWhoseReplyWasLost(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		b := s.batch(s.schedule("a"), s.cancel("nobody"))
		_, err := s.Apply(s.ctx, b, store.At(s.now))
		require.NoError(t, err) // and suppose that the caller never learned it
		stored := s.dump()

		_, err = s.Apply(s.ctx, b, store.At(s.now+5))
		require.ErrorIs(t, err, handle.ErrFenced)
		require.Equal(t, stored, s.dump())

		src, err := s.Source(s.ctx, "in", [16]byte{1}, 0, 0)
		require.NoError(t, err)
		require.EqualValues(t, 2, src.Next, "where the reader goes on")
		require.Len(t, s.pendingEvents(10, src.ID), 1, "and the events are still there to be told")
	})
}

// A topic that was deleted and made again has the same offsets, and so the same default ids: they must not replace each other.
func TestDefaultIDsOfATopicThatWasMadeAnew(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		byDefault := func(what string) *schemas.Request {
			r := s.schedule("in/0/7", value(what))
			r.GivenID = false
			return r
		}
		s.do(byDefault("old"))
		var err error
		s.source, err = s.Source(s.ctx, "in", [16]byte{2}, 0, 0)
		require.NoError(t, err)
		s.offset = 0

		events := s.do(byDefault("new"), s.cancel("other"))
		require.Len(t, events, 2)
		require.Equal(t, "old", string(s.body("in/0/7").Value))
		theirs := fmt.Sprintf("in/0/7@%d", s.source.ID)
		require.Equal(t, "new", string(s.body(theirs).Value))
		require.Equal(t, schemas.StateScheduled, events[0].State)
		require.Equal(t, theirs, events[0].ID)

		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("in/0/7", value("replaced"))), "who names the id means the task")
		require.Equal(t, "replaced", string(s.body("in/0/7").Value))
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel(theirs)))
	})
}

func TestWhyASourceStands(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"))
		require.Empty(t, current(t, s).Stands)
		require.NoError(t, s.Stands(s.ctx, s.source.ID, 1, "no room"))
		require.Equal(t, "no room", current(t, s).Stands)
		require.NoError(t, s.Stands(s.ctx, s.source.ID, 0, "said too late"))
		require.Equal(t, "no room", current(t, s).Stands)
		require.NoError(t, s.Stands(s.ctx, s.source.ID, 1, strings.Repeat("x", 5000)))
		require.Len(t, current(t, s).Stands, maxStands)
		s.do(s.schedule("b"))
		require.Empty(t, current(t, s).Stands, "it has moved since")
	})
}
