package intake

import (
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
