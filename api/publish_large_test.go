package api

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A producer refuses a record of 1 MB itself, and an intake takes values of 1 MiB or more.
func TestTheLargestValueIsTaken(t *testing.T) {
	w := newWorld(t)
	value := make([]byte, 1<<20)
	_, _ = rand.Read(value) // cannot be compressed
	schedule := func(value []byte) (int, string) {
		return w.do("POST", "/api/v1/tasks", `{"topic":"orders","id":"large","delay":"1h","value_base64":"`+base64.StdEncoding.EncodeToString(value)+`"}`)
	}
	for range 3 { // one after the other, and side by side with small ones
		code, answer := schedule(value)
		require.Equal(t, 202, code, answer)
		code, answer = schedule([]byte("small"))
		require.Equal(t, 202, code, answer)
	}
	large := 0
	for _, r := range w.records("in.a", 6) {
		if bytes.Equal(r.Value, value) {
			large++
		}
	}
	require.Equal(t, 3, large)

	code, answer := schedule(append(value, 0))
	require.Equal(t, 422, code)
	require.Contains(t, answer, "body.value")

	limit := "2000"
	c, err := kgo.NewClient(kgo.SeedBrokers(w.broker))
	require.NoError(t, err)
	defer c.Close()
	_, err = kadm.NewClient(c).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &limit}}, "in.a")
	require.NoError(t, err)
	code, answer = schedule(value)
	require.Equal(t, 422, code, "to send it again is of no use")
	require.Contains(t, answer, "max.message.bytes")
	require.Less(t, len(answer), 2000)
	code, _ = schedule([]byte(strings.Repeat("small", 10)))
	require.Equal(t, 202, code)
}
