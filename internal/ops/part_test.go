package ops

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// A process is ready while one of its parts works, and all that they share does.
func TestReadyWhileOnePartWorks(t *testing.T) {
	s := New(Config{}, prometheus.NewRegistry(), zap.NewNop())
	var shared error
	s.Check("kafka", func(context.Context) error { return shared })
	well, ill := func(context.Context) error { return nil }, func(context.Context) error { return errors.New("away") }
	a, b := s.Part("shard 0"), s.Part("shard 1")
	require.Equal(t, Readiness{Checks: map[string]string{"kafka": "ok", "shard 0": "is not at work yet", "shard 1": "is not at work yet"}}, s.readiness())
	a.Check("mysql", well)
	a.Hint("redis", ill)
	b.Check("mysql", ill, "h:1/d")
	require.Equal(t, Readiness{Ready: true, Checks: map[string]string{"kafka": "ok", "mysql shard 0": "ok", "redis shard 0": "away", "mysql shard 1": "h:1/d: away"}}, s.readiness())
	a.Check("scanner", ill)
	require.False(t, s.Ready(), "half a part is none")
	a.Clear()
	a.Check("mysql", ill)
	b.Clear()
	b.Check("mysql", well)
	require.True(t, s.Ready())
	shared = errors.New("away")
	require.False(t, s.Ready())
}
