package dialect

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMultiPrimaryIsRefused(t *testing.T) {
	for _, c := range []struct {
		variable, value string
		refused         bool
	}{
		{"wsrep_on", "OFF", false},
		{"wsrep_on", "ON", true},
		{"wsrep_on", "1", true},
		{"group_replication_single_primary_mode", "ON", false},
		{"group_replication_single_primary_mode", "OFF", true},
	} {
		err := singlePrimary(c.variable, c.value)
		require.Equal(t, c.refused, err != nil, "%s %s", c.variable, c.value)
		if c.refused {
			require.ErrorIs(t, err, ErrMultiPrimary)
			require.ErrorContains(t, err, c.variable, "what to look at")
		}
	}
}
