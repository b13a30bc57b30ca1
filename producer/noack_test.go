package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/producer"
)

// A client that does not wait for Kafka's answer does not know whether a request is accepted, nor where it is, which names the task.
func TestNothingIsAcceptedWithoutAnAcknowledgement(t *testing.T) {
	f := newFake(t, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	ref, err := f.Schedule(t.Context(), producer.Task{Topic: "orders", Delay: time.Minute})
	require.ErrorIs(t, err, producer.ErrNoAck)
	require.Empty(t, ref)
	require.ErrorIs(t, f.Cancel(t.Context(), producer.Ref{Topic: "orders", ID: "x"}), producer.ErrNoAck)
}
