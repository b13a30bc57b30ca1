package task

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPhase(t *testing.T) {
	const done, claimed = 100, 200
	for _, c := range []struct {
		name  string
		slot  int
		pos   int64
		state State
		want  Phase
	}{
		{"beyond claimed", 3, 201, StateLine, Pending},
		{"beyond claimed, for a retry", 3, 201, StateRetry, Between},
		{"beyond claimed, until a report", 3, 201, StateReport, Between},
		{"at claimed", 3, 200, StateLine, InFlight},
		{"claimed for a retry", 3, 101, StateRetry, InFlight},
		{"claimed, its report overdue", 3, 101, StateReport, InFlight},
		{"at done", 3, 100, StateLine, Ended},
		{"retried and done", 3, 100, StateRetry, Ended},
		{"out of the line", OutOfLine, 201, StateCancelled, Ended},
	} {
		t.Run(c.name, func(t *testing.T) {
			row := Task{Slot: c.slot, Pos: c.pos, State: c.state}
			require.Equal(t, c.want, row.Phase(claimed, done))
		})
	}
}
