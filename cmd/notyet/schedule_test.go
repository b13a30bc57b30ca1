package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/api"
)

// Delay and max-wait count from the timestamp that the broker writes, and so does the due time that is printed.
func TestScheduleNamesTheDueTimeOfTheDelivery(t *testing.T) {
	brokers := os.Getenv("NOTYET_KAFKA_BROKERS")
	if brokers == "" {
		t.Skip("NOTYET_KAFKA_BROKERS is not set: run scripts/servers up and evaluate scripts/servers env")
	}
	topic := fmt.Sprintf("cmd%x.intake", time.Now().UnixNano())
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(brokers, ",")...), kgo.ConsumeTopics(topic))
	require.NoError(t, err)
	defer client.Close()
	admin, stamps := kadm.NewClient(client), "LogAppendTime"
	_, err = admin.CreateTopic(t.Context(), 1, 1, map[string]*string{"message.timestamp.type": &stamps}, topic)
	require.NoError(t, err)
	defer func() { _, _ = admin.DeleteTopic(t.Context(), topic) }()

	for want, flags := range map[time.Duration][]string{
		time.Hour:   {"--delay", "1h"},
		time.Minute: {"--at", "2100-01-01T00:00:00Z", "--if-exists", "merge", "--max-wait", "1m"},
	} {
		r := notyet(t, []string{"NOTYET_KAFKA_BROKERS=" + brokers, "NOTYET_INTAKE_TOPICS=" + topic, "NOTYET_INTAKE_MAX_DELAY=1000000h", "NOTYET_HTTP_ADDR=127.0.0.1:1"}, "",
			append([]string{"schedule", "-t", "orders", "--id", "a", "--value", "v", "--json"}, flags...)...)
		require.Zero(t, r.code, r.stderr)
		var printed api.Published
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &printed))
		fetches := client.PollRecords(t.Context(), 1)
		require.NoError(t, fetches.Err())
		require.Equal(t, fetches.Records()[0].Timestamp.UnixMilli()+want.Milliseconds(), printed.Due)
	}
}
