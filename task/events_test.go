package task

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

func TestPublished(t *testing.T) {
	for _, c := range []struct {
		setting schemas.Events
		state   schemas.State
		want    bool
	}{
		{schemas.EventsAll, schemas.StateScheduled, true},
		{schemas.EventsAll, schemas.StateSucceeded, true},
		{schemas.EventsFinal, schemas.StateScheduled, false},
		{schemas.EventsFinal, schemas.StateRetrying, false},
		{schemas.EventsFinal, schemas.StateSucceeded, true},
		{schemas.EventsFinal, schemas.StateDead, true},
		{schemas.EventsNone, schemas.StateDead, false},
		{schemas.EventsNone, schemas.StateRejected, true},
	} {
		require.Equal(t, c.want, Published(c.setting, c.state), "%v %s", c.setting, c.state)
	}
}
