package task

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

func TestRenameTaken(t *testing.T) {
	schedule := func(source int, given bool) Change {
		return Change{Seq: Seq(source, 5), Request: &schemas.Request{Op: schemas.OpSchedule, Topic: "orders", ID: "in/0/5", GivenID: given}}
	}
	cancel := Change{Seq: Seq(16, 9), Request: &schemas.Request{Op: schemas.OpCancel, Topic: "orders", ID: "in/0/5"}}
	report := Change{Seq: Seq(18, 1), Report: &schemas.Report{}}
	for name, c := range map[string]struct {
		cur     *Task
		changes []Change
		own     int
		renamed []string
	}{
		"the only one":                       {changes: []Change{schedule(16, false)}, own: 1},
		"the task that it made itself":       {cur: &Task{Seq: Seq(16, 5)}, changes: []Change{schedule(16, false)}, own: 1},
		"another record's task":              {cur: &Task{Seq: Seq(17, 5)}, changes: []Change{schedule(16, false)}, renamed: []string{"in/0/5@16"}},
		"a given id means that task":         {cur: &Task{Seq: Seq(17, 5)}, changes: []Change{schedule(16, true)}, own: 1},
		"two of one batch, the first has it": {changes: []Change{schedule(17, true), schedule(16, false)}, own: 1, renamed: []string{"in/0/5@16"}},
		"a cancel came first":                {cur: &Task{Seq: Seq(17, 5), State: StateTombstone}, changes: []Change{schedule(16, false)}, own: 1},
		"cancels and reports stay":           {cur: &Task{Seq: Seq(17, 5)}, changes: []Change{cancel, report, schedule(16, false)}, own: 2, renamed: []string{"in/0/5@16"}},
	} {
		t.Run(name, func(t *testing.T) {
			own, renamed := RenameTaken(c.cur, c.changes)
			require.Len(t, own, c.own)
			var ids []string
			for _, r := range renamed {
				ids = append(ids, r.Request.ID)
			}
			require.Equal(t, c.renamed, ids)
		})
	}
	first := schedule(16, false)
	RenameTaken(&Task{Seq: Seq(17, 5)}, []Change{first})
	require.Equal(t, "in/0/5", first.Request.ID, "the caller's request is left as it is")
}

func TestIDWithSourceFits(t *testing.T) {
	long := strings.Repeat("x", schemas.MaxIDLen)
	for range 3 { // renamed again and again, it still fits and still differs
		next := idWithSource(long, 31_999)
		require.LessOrEqual(t, len(next), schemas.MaxIDLen)
		require.NotEqual(t, long, next)
		long = next
	}
	require.NotEqual(t, idWithSource(strings.Repeat("x", schemas.MaxIDLen), 16), idWithSource(strings.Repeat("x", schemas.MaxIDLen), 17))
}
