package kafka_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/internal/kafka"
)

func TestLogger(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	l := kafka.Logger(zap.New(core))
	l.Log(kgo.LogLevelDebug, "unheard")
	l.Log(kgo.LogLevelWarn, "heard", "topic", "orders")
	require.Equal(t, kgo.LogLevelWarn, l.Level(), "the library says a lot at Info")
	require.Equal(t, 1, logs.FilterMessage("heard").FilterField(zap.String("topic", "orders")).Len())
	require.Zero(t, logs.FilterMessage("unheard").Len())
}

// A broker that is away makes one line a minute, with a count, and not one for each try.
func TestWarningsOfABrokerAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		l := kafka.Logger(zap.New(core))
		for range 149 {
			l.Log(kgo.LogLevelWarn, "unable to open connection to broker", "broker", "1", "err", errors.New("timeout"))
			time.Sleep(100 * time.Millisecond)
		}
		l.Log(kgo.LogLevelWarn, "unable to open connection to broker", "broker", "2")
		require.Equal(t, 2, logs.Len())
		time.Sleep(time.Minute)
		l.Log(kgo.LogLevelWarn, "unable to open connection to broker", "broker", "1", "err", errors.New("timeout"))
		require.Equal(t, int64(148), logs.TakeAll()[2].ContextMap()["repeated"])
		time.Sleep(time.Minute)
		l.Log(kgo.LogLevelWarn, "unable to open connection to broker", "broker", "1")
		require.NotContains(t, logs.TakeAll()[0].ContextMap(), "repeated")
	})
}
