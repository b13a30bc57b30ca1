package history

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/sendlog"
)

func TestReadSendLog(t *testing.T) {
	dir := t.TempDir()
	log, err := sendlog.Open(dir, sendlog.Config{}, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, log.AppendIntents(t.Context(), []sendlog.Intent{{Seq: 7, Attempt: 2, Slot: 3, Epoch: 4, Topic: "orders", ID: "a"}}))
	require.NoError(t, log.AppendOutcomes(t.Context(), []sendlog.Outcome{{Seq: 7, Attempt: 2, Acked: true, Partition: 5, Offset: 6}}))
	h := &History{}
	require.Error(t, h.ReadSendLog(t.Context(), "one", dir, 0, zap.NewNop()), "its dispatcher still has it")
	require.NoError(t, log.Close())
	require.NoError(t, h.ReadSendLog(t.Context(), "one", dir, 0, zap.NewNop()))
	require.Len(t, h.Sent, 2)
	for i := range h.Sent {
		require.Positive(t, h.Sent[i].At)
		h.Sent[i].At = 0
	}
	require.Equal(t, []Sent{
		{Log: "one", Seq: 7, Attempt: 2, Topic: "orders", ID: "a", Slot: 3, Epoch: 4},
		{Log: "one", Seq: 7, Attempt: 2, Outcome: true, Acked: true, Partition: 5, Offset: 6},
	}, h.Sent)
	h.ForgetSent(func(topic string) bool { return topic == "others" })
	require.Len(t, h.Sent, 2)
	h.ForgetSent(func(topic string) bool { return topic == "orders" })
	require.Empty(t, h.Sent, "an outcome goes with its intent")
}
