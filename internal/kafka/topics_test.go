package kafka_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/internal/kafka"
)

func TestEnsureTopics(t *testing.T) {
	cluster, cfg := startKafka(t, kfake.SeedTopics(3, "there"), kfake.DefaultNumPartitions(5))
	client := newClient(t, kafka.New, cfg)
	specs := []kafka.TopicSpec{
		{Name: "notyet.intake", Partitions: 2, Replication: 1, Configs: map[string]string{"retention.ms": "-1"}},
		{Name: "there", Partitions: 9},
		{Name: "notyet.results"},
	}
	created, err := kafka.EnsureTopics(t.Context(), client, specs)
	require.NoError(t, err)
	require.Equal(t, []string{"notyet.intake", "notyet.results"}, created)
	created, err = kafka.EnsureTopics(t.Context(), client, specs)
	require.NoError(t, err)
	require.Empty(t, created)

	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(t.Context())
	require.NoError(t, err)
	for name, partitions := range map[string]int{"notyet.intake": 2, "there": 3, "notyet.results": 5} {
		require.Len(t, topics[name].Partitions, partitions, name)
	}
	settings, err := admin.DescribeTopicConfigs(t.Context(), "notyet.intake")
	require.NoError(t, err)
	found := ""
	for _, s := range settings[0].Configs {
		if s.Key == "retention.ms" {
			found = s.MaybeValue()
		}
	}
	require.Equal(t, "-1", found)

	created, err = kafka.EnsureTopics(t.Context(), client, []kafka.TopicSpec{{Name: "good"}, {Name: "notyet_intake"}, {Name: "never"}})
	require.ErrorIs(t, err, kerr.InvalidTopicException)
	require.ErrorContains(t, err, `"notyet_intake"`, "differs from another only in . and _")
	require.Equal(t, []string{"good"}, created)
	require.EqualValues(t, -1, cluster.LeaderFor("never", 0))
}

// Topics that others made are kept by a user who may not create any.
func TestEnsureTopicsWithoutTheRightToCreate(t *testing.T) {
	cluster, cfg := startKafka(t, kfake.SeedTopics(1, "there"))
	client := newClient(t, kafka.New, cfg)
	for _, refusal := range []*kerr.Error{kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed} {
		for range 2 {
			cluster.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
				resp := r.ResponseKind().(*kmsg.CreateTopicsResponse)
				for _, topic := range r.(*kmsg.CreateTopicsRequest).Topics {
					answer := kmsg.NewCreateTopicsResponseTopic()
					answer.Topic, answer.ErrorCode = topic.Topic, refusal.Code
					resp.Topics = append(resp.Topics, answer)
				}
				return resp, nil, true
			})
		}
		created, err := kafka.EnsureTopics(t.Context(), client, []kafka.TopicSpec{{Name: "there"}})
		require.NoError(t, err)
		require.Empty(t, created)
		_, err = kafka.EnsureTopics(t.Context(), client, []kafka.TopicSpec{{Name: "missing"}})
		require.ErrorIs(t, err, refusal)
		require.ErrorContains(t, err, "grant Create")
	}
}

func TestTopicIDs(t *testing.T) {
	cluster, cfg := startKafka(t, kfake.SeedTopics(1, "a", "b"))
	client := newClient(t, kafka.New, cfg)
	ids, err := kafka.TopicIDs(t.Context(), client, "a", "b", "missing")
	require.NoError(t, err)
	require.Len(t, ids, 2)
	require.NotEqual(t, ids["a"], ids["b"])
	require.NotZero(t, ids["a"])

	require.NoError(t, cluster.DeleteTopic("a"))
	require.NoError(t, cluster.CreateTopic("a", 1, nil))
	again, err := kafka.TopicIDs(t.Context(), client, "a", "b")
	require.NoError(t, err)
	require.Equal(t, ids["b"], again["b"])
	require.NotEqual(t, ids["a"], again["a"], "another topic, whatever its name")

	none, err := kafka.TopicIDs(t.Context(), client)
	require.NoError(t, err)
	require.Empty(t, none)
}

// A topic is missing if two brokers say so. One that does not answer is no witness, and no topic is made by asking. What an answer
// leaves out, or is unclear, is neither there nor missing.
func TestLookUp(t *testing.T) {
	cluster, cfg := startKafka(t, kfake.SeedTopics(1, "there", "hidden", "young", "unclear"), kfake.NumBrokers(3), kfake.BrokerConfigs(map[string]string{"auto.create.topics.enable": "true"}))
	client := newClient(t, kafka.New, cfg)
	names := []string{"there", "hidden", "young", "unclear", "left out", "missing"}
	ask := func() map[string]error {
		t.Helper()
		found, err := kafka.LookUp(t.Context(), client, false, names...)
		require.NoError(t, err)
		return found
	}
	require.ErrorIs(t, ask()["missing"], kerr.UnknownTopicOrPartition, "by a client that knows no brokers yet")
	require.NoError(t, client.Ping(t.Context()))
	require.Eventually(t, func() bool { return len(client.DiscoveredBrokers()) == 3 }, time.Minute, time.Millisecond)
	var silent, asked atomic.Int32 // silent: a bit for each broker
	cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if silent.Load()>>cluster.CurrentNode()&1 == 1 {
			return nil, errors.New("away"), true
		}
		req := r.(*kmsg.MetadataRequest)
		if len(req.Topics) == 0 {
			return nil, nil, false
		}
		first := asked.Add(1)%2 == 1
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, of := range req.Topics {
			answer := kmsg.NewMetadataResponseTopic()
			answer.Topic = of.Topic
			switch {
			case *of.Topic == "left out" && !first:
				continue
			case *of.Topic == "hidden":
				answer.ErrorCode = kerr.TopicAuthorizationFailed.Code
			case *of.Topic == "unclear" && !first:
				answer.ErrorCode = kerr.LeaderNotAvailable.Code
			case *of.Topic != "there" && (first || *of.Topic == "missing"):
				answer.ErrorCode = kerr.UnknownTopicOrPartition.Code
			}
			resp.Topics = append(resp.Topics, answer)
		}
		return resp, nil, true
	})
	want := map[string]error{"there": nil, "hidden": kerr.TopicAuthorizationFailed, "young": nil, "missing": kerr.UnknownTopicOrPartition}
	require.Equal(t, want, ask(), "only one broker has not heard of the young one")
	require.EqualValues(t, 2, asked.Load())
	silent.Store(0b010)
	require.Equal(t, want, ask())
	silent.Store(0b110)
	for range 20 { // the brokers are asked in any order
		found, err := kafka.LookUp(t.Context(), client, false, "there", "missing")
		require.ErrorContains(t, err, "looking up 1 topics")
		require.Equal(t, map[string]error{"there": nil}, found, "one witness is enough for what exists")
	}
	require.EqualValues(t, -1, cluster.LeaderFor("missing", 0))
}
