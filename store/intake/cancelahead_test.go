package intake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// Cancels that are read again wait for all that was stored when their tasks were listed: a request that kept a task came before.
func TestCancelManyComesAfterWhatWasStored(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		first, second := s.batch(s.schedule("a", in(time.Hour))), s.batch(s.schedule("a", in(2*time.Hour), keep))
		s.apply(first)
		s.apply(second)
		many, _, err := s.sweeper().list(s.ctx, look.ListFilter{Topic: target})
		require.NoError(t, err)
		s.sql("DELETE FROM tasks", "DELETE FROM outbox", "UPDATE sources SET next_offset = 0")
		s.apply(first)
		_, err = s.sweeper().decide(s.ctx, many)
		require.ErrorIs(t, err, ErrLater)
		s.apply(second)
		done, err := s.sweeper().decide(s.ctx, many)
		require.NoError(t, err)
		require.EqualValues(t, 1, done.Cancelled)
		require.Equal(t, "cancelled", s.state("a"))
	})
}

// ahead has cancels of the source's tasks decided while the source is stored up to an offset.
func (f *fixture) ahead(many task.Cancels, at int64) (Applied, error) {
	return f.Apply(f.ctx, Batch{
		Advance: []Advance{{f.source.ID, at, at}},
		Changes: []task.Change{{Seq: task.Seq(f.sweeper().source.ID, 7), Cancels: many.Of(f.source.ID)}},
	}, store.At(f.now))
}

// Cancels are decided before their turn while the source of their tasks stands where they were listed. The tasks of other sources are not theirs.
func TestCancelManyBeforeItsTurn(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", in(time.Hour)), s.schedule("b", in(time.Hour)))
		many, _, err := s.sweeper().list(s.ctx, look.ListFilter{Topic: target})
		require.NoError(t, err)
		require.Equal(t, map[int]int64{s.source.ID: 2}, many.Stored)
		more := task.Cancels{Tasks: append([]task.Listed{{Seq: task.Seq(s.source.ID+1, 0)}}, many.Tasks...)}
		require.Equal(t, many.Tasks, more.Of(s.source.ID).Tasks)
		_, err = s.ahead(many, 1)
		require.ErrorIs(t, err, store.ErrFenced)
		applied, err := s.ahead(many, 2)
		require.NoError(t, err)
		require.Len(t, applied.Removed, 2)
		done, err := s.sweeper().decide(s.ctx, many)
		require.NoError(t, err)
		require.Empty(t, done.Removed, "repeated")
	})
}
