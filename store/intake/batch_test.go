package intake

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/task"
)

// A batch that passes over a record without saying so would lose it.
func TestABatchBringsAllThatItCovers(t *testing.T) {
	change := func(offset int64) task.Change { return task.Change{Seq: task.Seq(16, offset)} }
	for name, c := range map[string]struct {
		b  Batch
		ok bool
	}{
		"all":                        {Batch{Advance: []Advance{{16, 5, 7}}, Changes: []task.Change{change(5), change(6)}}, true},
		"none":                       {Batch{}, true},
		"gaps that are told":         {Batch{Advance: []Advance{{16, 5, 9}}, Changes: []task.Change{change(6), change(7)}, Gaps: []Gap{{16, 5, 6}, {16, 8, 9}}}, true},
		"nothing but a gap":          {Batch{Advance: []Advance{{16, 5, 9}}, Gaps: []Gap{{16, 5, 9}}}, true},
		"two sources, mixed":         {Batch{Advance: []Advance{{16, 5, 6}, {17, 1, 2}}, Changes: []task.Change{{Seq: task.Seq(17, 1)}, change(5)}}, true},
		"does not begin at its from": {Batch{Advance: []Advance{{16, 0, 7}}, Changes: []task.Change{change(5), change(6)}}, false},
		"misses one between":         {Batch{Advance: []Advance{{16, 5, 8}}, Changes: []task.Change{change(5), change(7)}}, false},
		"misses the last":            {Batch{Advance: []Advance{{16, 5, 8}}, Changes: []task.Change{change(5), change(6)}}, false},
		"brings more":                {Batch{Advance: []Advance{{16, 5, 6}}, Changes: []task.Change{change(5), change(6)}}, false},
		"twice the same":             {Batch{Advance: []Advance{{16, 5, 7}}, Changes: []task.Change{change(5), change(5)}}, false},
		"of a source that is still":  {Batch{Changes: []task.Change{change(5)}}, false},
		"a gap over a record":        {Batch{Advance: []Advance{{16, 5, 7}}, Changes: []task.Change{change(5), change(6)}, Gaps: []Gap{{16, 5, 6}}}, false},
	} {
		if err := c.b.check(); c.ok {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, ErrUncovered, name)
		}
	}
}
