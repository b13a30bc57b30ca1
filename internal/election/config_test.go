package election

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func valid() Config {
	return Config{Servers: []string{"zk"}, Slots: func(context.Context) (int, error) { return 1, nil }}
}

func TestConfigDefaults(t *testing.T) {
	cfg, err := valid().withDefaults()
	require.NoError(t, err)
	require.Equal(t, "/notyet", cfg.Root)
	require.Equal(t, 4*time.Second, cfg.SessionTimeout)
	require.Equal(t, 8*time.Second/3, cfg.TrustWindow)
	other, err := valid().withDefaults()
	require.NoError(t, err)
	require.NotEqual(t, cfg.MemberID, other.MemberID, "unique without being set")
}

func TestConfigRefusesWhatCannotWork(t *testing.T) {
	tests := map[string]func(*Config){
		"no servers":             func(c *Config) { c.Servers = nil },
		"no slot count":          func(c *Config) { c.Slots = nil },
		"relative":               func(c *Config) { c.Root = "notyet" },
		"trailing slash":         func(c *Config) { c.Root = "/" },
		"empty name":             func(c *Config) { c.Root = "/a//b" },
		"trust outlives session": func(c *Config) { c.SessionTimeout, c.TrustWindow = time.Second, time.Second },
		"negative trust":         func(c *Config) { c.TrustWindow = -1 },
		"session below a tick":   func(c *Config) { c.SessionTimeout = time.Millisecond },
		"negative session":       func(c *Config) { c.SessionTimeout = -time.Second },
	}
	for name, change := range tests {
		cfg := valid()
		change(&cfg)
		_, err := NewZooKeeper(cfg, &countingEpochs{}, nil)
		require.ErrorContains(t, err, "validating election config", name)
	}
}
