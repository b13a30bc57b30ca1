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

// A delay counts from the timestamp that the broker writes, and so does the due time that is printed.
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

	r := notyet(t, []string{"NOTYET_KAFKA_BROKERS=" + brokers, "NOTYET_INTAKE_TOPICS=" + topic, "NOTYET_HTTP_ADDR=127.0.0.1:1"}, "",
		"schedule", "-t", "orders", "--id", "a", "--delay", "1h", "--value", "v", "--json")
	require.Zero(t, r.code, r.stderr)
	var printed api.Published
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &printed))
	fetches := client.PollRecords(t.Context(), 1)
	require.NoError(t, fetches.Err())
	require.Equal(t, fetches.Records()[0].Timestamp.UnixMilli()+time.Hour.Milliseconds(), printed.Due)
}
