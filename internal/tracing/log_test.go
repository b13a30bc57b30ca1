package tracing

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestErrorsOfTheExportAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.ErrorLevel)
		l := newErrorLog(zap.New(core))
		for range 120 { // two minutes of a collector that is away
			l.Handle(errors.New("refused"))
			time.Sleep(time.Second)
		}
		l.Handle(errors.New("refused"))
		require.Equal(t, 3, logs.Len())
		require.Equal(t, []int64{0, 59, 59}, []int64{
			logs.All()[0].ContextMap()["errors_before"].(int64), logs.All()[1].ContextMap()["errors_before"].(int64), logs.All()[2].ContextMap()["errors_before"].(int64),
		})
	})
}
