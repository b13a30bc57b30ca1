package intake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// A request without an id gets one that others could have given. It must neither replace theirs nor fail, whatever names they
// have taken, because its partition would stand with it.
func TestDefaultIDThatOthersHaveTaken(t *testing.T) {
	id := schemas.DefaultID("in", 0, 0)
	for name, in := range map[string]struct{ before, beside int }{
		"stored before":                         {before: 1},
		"in the same batch":                     {beside: 1},
		"its next name too":                     {before: 2},
		"its next name in the same batch":       {before: 1, beside: 1},
		"both in the same batch":                {beside: 2},
		"more names than fit behind each other": {before: 60},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, f *fixture) {
				other, err := f.Source(f.ctx, "in", [16]byte{1}, 1, 0)
				require.NoError(t, err)
				taken, offset := id, int64(0)
				take := func(n int) (b Batch) {
					b.Advance = []Advance{{other.ID, offset, offset + int64(n)}}
					for range n {
						r := f.schedule(taken)
						b.Changes = append(b.Changes, task.Change{Seq: task.Seq(other.ID, offset), Request: r})
						taken = nextName(taken, f.source.ID)
						offset++
					}
					return b
				}
				if in.before > 0 {
					f.apply(take(in.before))
				}
				b := take(in.beside)
				ours := f.schedule(id)
				ours.GivenID = false
				mine := f.batch(ours)
				b.Changes, b.Advance = append(b.Changes, mine.Changes...), append(b.Advance, mine.Advance...)
				f.apply(b)
				require.Equal(t, in.before+in.beside+1, f.count("tasks"))
				require.Equal(t, mine.Changes[0].Seq, f.row(taken).Seq, "it has the first name that is free")
			})
		})
	}
}

// nextName is the id that a request of the source gets when its default id is taken.
func nextName(id string, source int) string {
	other := &task.Task{Seq: task.Seq(source, 0) + 1}
	_, renamed := task.RenameTaken(other, []task.Change{{Seq: task.Seq(source, 0), Request: &schemas.Request{Op: schemas.OpSchedule, ID: id}}})
	return renamed[0].Request.ID
}

// A task that was given the id is not replaced through its own partition either.
func TestDefaultIDThatWasGivenInItsPartition(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		id := schemas.DefaultID("in", 0, 1)
		f.do(f.schedule(id, in(time.Hour)))
		ours := f.schedule(id, in(time.Hour))
		ours.GivenID = false
		f.do(ours)
		require.Equal(t, 2, f.count("tasks"))
	})
}
