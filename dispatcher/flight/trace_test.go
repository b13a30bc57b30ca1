package flight

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/test/tracingtest"
)

func TestTracesAreFreeWhenOff(t *testing.T) {
	headers := []kgo.RecordHeader{{Key: "traceparent", Value: []byte(tracingtest.Traceparent(true))}}
	var off *tracing.Tracer
	one, r := &Task{content: &content{topic: "orders"}}, &kgo.Record{}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		one.trace = newTraced(off.Caller(headers), "key")
		one.trace.begins()
		one.trace.sent(one, time.Time{}, r, kerr.MessageTooLarge)
		one.trace.called(one, "", time.Time{}, callback.Outcome{})
	}))
}
