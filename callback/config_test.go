package callback

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func TestConfigDefaults(t *testing.T) {
	c, err := Config{}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, Config{MaxInFlight: 64, MaxInFlightTotal: 2048, MaxTimeout: 5 * time.Minute, UserAgent: "notyet"}, c)
}

func TestConfigErrors(t *testing.T) {
	for want, c := range map[string]Config{
		"callback: limits must not be negative":                                      {MaxInFlight: -1},
		"callback.max-in-flight: 3000 is more than the 2048 of all origins together": {MaxInFlight: 3000},
		"callback.secrets: open /nowhere":                                            {Secrets: "/nowhere"},
		"callback.allowed-hosts":                                                     {URLRules: URLRules{AllowedHosts: []string{"["}}},
	} {
		_, err := New(c, zap.NewNop(), prometheus.NewRegistry())
		require.ErrorContains(t, err, want)
	}
}

// Callbacks are off until the operator enables them.
func TestTheZeroConfigSendsNothing(t *testing.T) {
	s := newTestSender(t, Config{})
	o := s.Send(t.Context(), requestTo("https://shop.example/"))
	require.Equal(t, Dead, o.Verdict)
	require.Contains(t, o.Reason, "this installation makes none")
}
