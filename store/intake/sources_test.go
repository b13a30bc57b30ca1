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
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
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

// The furthest source of a partition counts, be it of an earlier topic of the name, or from before a restart.
func TestHowFarTheIntakeIsStored(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		stands := func(want map[string]map[int32]int64) {
			t.Helper()
			life, stored, err := s.Stand(s.ctx)
			require.NoError(t, err)
			require.NotEmpty(t, life)
			require.Equal(t, want, stored)
		}
		s.restart()
		stands(map[string]map[int32]int64{"in": {0: 0}})
		other, err := s.Source(s.ctx, "in", [16]byte{1}, 1, 900)
		require.NoError(t, err)
		_, err = s.Source(s.ctx, "in", [16]byte{2}, 0, 7)
		require.NoError(t, err)
		stands(map[string]map[int32]int64{"in": {0: 7, 1: 900}})
		_, err = s.Restart(s.ctx, other, 800)
		require.NoError(t, err)
		stands(map[string]map[int32]int64{"in": {0: 7, 1: 900}})
		_, err = s.db.ExecContext(s.ctx, "DELETE FROM sources")
		require.NoError(t, err)
		stands(map[string]map[int32]int64{})
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

func TestEpochs(t *testing.T) {
	e := Epoch{Number: -1}
	for _, step := range []struct {
		epoch  int32
		offset int64
		want   Epoch
	}{{3, 10, Epoch{3, 10, 11}}, {3, 12, Epoch{3, 10, 13}}, {-1, 13, Epoch{3, 10, 13}}, {5, 14, Epoch{5, 14, 15}}} {
		e = e.Next(step.epoch, step.offset)
		require.Equal(t, step.want, e)
	}
}

// The leader epochs move with the offsets, in their transaction; a batch that does not know them leaves them.
func TestEpochsAreStoredWithTheOffsets(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		other, err := s.Source(s.ctx, "in", [16]byte{1}, 1, 5)
		require.NoError(t, err)
		b := s.batch(s.schedule("a"))
		b.Advance = append(b.Advance, Advance{other.ID, 5, 6})
		b.Gaps = append(b.Gaps, Gap{other.ID, 5, 6})
		b.Epochs = map[int]Epoch{s.source.ID: {2, 0, 1}}
		s.apply(b)
		b = s.batch(s.schedule("b"))
		b.Advance = append(b.Advance, Advance{other.ID, 6, 7})
		b.Gaps = append(b.Gaps, Gap{other.ID, 6, 7})
		b.Epochs = map[int]Epoch{other.ID: {4, 6, 7}}
		b.Proofs = map[int]Proof{s.source.ID: {At: 1, Time: 7, Sum: -8}}
		s.apply(b)

		got := map[int]Source{}
		all, err := s.Sources(s.ctx)
		require.NoError(t, err)
		for _, src := range all {
			got[src.ID] = src
		}
		require.Equal(t, Epoch{2, 0, 1}, got[s.source.ID].Epoch)
		require.EqualValues(t, 2, got[s.source.ID].Next)
		require.Equal(t, Epoch{4, 6, 7}, got[other.ID].Epoch)
		require.Equal(t, Proof{At: 1, Time: 7, Sum: -8}, got[s.source.ID].Proof)
		require.Equal(t, Proof{At: -1}, got[other.ID].Proof)
	})
}

// A restarted partition has offsets a second time. Whatever was stored of the first time stays, and is told and delivered by its
// own name.
func TestRestartGoesOnUnderAnotherSource(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.apply(s.batch(s.schedule("a"), s.schedule("b"), s.schedule("c")))
		s.do(&task.DeadLetter{Kind: schemas.KindRejected, TaskID: "bad", Reason: "bad"})
		old, err := s.Source(s.ctx, "in", [16]byte{1}, 0, 0)
		require.NoError(t, err)
		require.EqualValues(t, 4, old.Next)
		untold := func(src int) int { return len(s.pendingEvents(100, src)) }
		before := untold(old.ID)
		require.Positive(t, before)

		made, err := s.Restart(s.ctx, old, 1)
		require.NoError(t, err)
		require.NotEqual(t, old.ID, made.ID)
		require.Equal(t, Source{ID: made.ID, Topic: "in", TopicID: [16]byte{1}, Next: 1, Generation: 1, Epoch: Epoch{Number: -1}, Proof: Proof{At: -1}}, made)
		found, err := s.Source(s.ctx, "in", [16]byte{1}, 0, 99)
		require.NoError(t, err)
		require.Equal(t, made, found, "the partition goes on with the new source")

		// What a scanner still has in hand for the old one is refused, as a whole.
		late := s.batch(s.schedule("late"))
		_, err = s.Apply(s.ctx, late, store.At(s.now))
		require.ErrorIs(t, err, handle.ErrFenced)

		// The offsets 1 to 3 come again, with other records.
		var changes []task.Change
		for i, id := range []string{"x", "y", "z"} {
			changes = append(changes, task.Change{Seq: task.Seq(made.ID, int64(i+1)), Request: s.schedule(id)})
		}
		s.apply(Batch{Advance: []Advance{{made.ID, 1, 4}}, Changes: changes})
		for _, id := range []string{"a", "b", "c", "x", "y", "z"} {
			require.Equal(t, "pending", s.state(id), id)
		}
		require.Equal(t, before, untold(old.ID), "the events of the old source wait to be told")
		require.Positive(t, untold(made.ID))
		letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{TaskID: "bad"})
		require.NoError(t, err)
		require.Len(t, letters, 1)

		// Nor are two deliveries taken for one.
		require.Equal(t, schemas.DeliveryKey([16]byte{1}, 0, 1, 1), old.DeliveryKey(1, 1), "what was sent before keeps its key")
		require.NotEqual(t, old.DeliveryKey(1, 1), made.DeliveryKey(1, 1))
		again, err := s.Restart(s.ctx, current(t, s), 2)
		require.NoError(t, err)
		require.Equal(t, 2, again.Generation)
		require.NotEqual(t, made.DeliveryKey(2, 1), again.DeliveryKey(2, 1))
	})
}

// A request that waits for a delivery's outcome takes effect after the restart, and is answered for the source that it came by.
func TestRequestsWaitAcrossARestart(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"))
		s.claim(t0 + 1000)
		require.Empty(t, s.do(s.schedule("a", value("new"), in(5000*ms))))
		old := current(t, s)
		_, err := s.Restart(s.ctx, old, 1)
		require.NoError(t, err)
		s.settle(t0 + 1000)
		require.Equal(t, []schemas.State{schemas.StateScheduled}, s.resolve())
		require.Equal(t, "new", string(s.body("a").Value))
		require.Equal(t, old.ID, s.last.Events[0].Source)
	})
}

// current is the source that the partition goes on with.
func current(t *testing.T, s *fixture) Source {
	src, err := s.Source(s.ctx, "in", [16]byte{1}, 0, 0)
	require.NoError(t, err)
	return src
}

// Whoever restarts by what he saw before somebody else did something is refused.
func TestRestartOfWhatHasMovedIsRefused(t *testing.T) {
	eachAtOnce(t, func(t *testing.T, s *fixture) {
		seen := current(t, s)
		s.do(s.schedule("a"))
		_, err := s.Restart(s.ctx, seen, 0)
		require.ErrorIs(t, err, handle.ErrFenced, "a scanner has stored more")

		seen = current(t, s)
		stores := []*store.Store{s.Store, s.another(), s.another()}
		errs := make([]error, len(stores))
		var wg sync.WaitGroup
		for i, st := range stores {
			wg.Go(func() { _, errs[i] = New(st).Restart(s.ctx, seen, 0) })
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
				continue
			}
			require.ErrorIs(t, err, handle.ErrFenced)
		}
		require.Equal(t, 1, won)
		all, err := s.Sources(s.ctx)
		require.NoError(t, err)
		require.Len(t, all, 2)
	})
}

// The source of a scanner of the version before has no epoch, and the columns that it does not name have their defaults.
func TestSourcesOfTheVersionBefore(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		_, err := s.db.ExecContext(s.ctx, "INSERT INTO sources (src, topic, topic_id, part, next_offset) VALUES (77, ?, ?, 3, 9)", []byte("in"), make([]byte, 16))
		require.NoError(t, err)
		src, err := s.Source(s.ctx, "in", [16]byte{}, 3, 0)
		require.NoError(t, err)
		require.Equal(t, Source{ID: 77, Topic: "in", Partition: 3, Next: 9, Epoch: Epoch{Number: -1}, Proof: Proof{At: -1}}, src)
	})
}
