package packages

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// kafkaTopic and the types below are what Strimzi and KEDA define. A key that they do not have fails the test.
type kafkaTopic struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   about  `json:"metadata"`
	Spec       struct {
		TopicName  string         `json:"topicName"`
		Partitions int            `json:"partitions"`
		Replicas   int            `json:"replicas"`
		Config     map[string]any `json:"config"`
	} `json:"spec"`
}

type about struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
}

type kafkaUser struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   about  `json:"metadata"`
	Spec       struct {
		Authentication struct {
			Type string `json:"type"`
		} `json:"authentication"`
		Authorization struct {
			Type string `json:"type"`
			ACLs []struct {
				Resource struct {
					Type        string `json:"type"`
					Name        string `json:"name"`
					PatternType string `json:"patternType"`
				} `json:"resource"`
				Operations []string `json:"operations"`
			} `json:"acls"`
		} `json:"authorization"`
	} `json:"spec"`
}

type scaledObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   about  `json:"metadata"`
	Spec       struct {
		ScaleTargetRef struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Name       string `json:"name"`
		} `json:"scaleTargetRef"`
		MinReplicaCount int `json:"minReplicaCount"`
		MaxReplicaCount int `json:"maxReplicaCount"`
		CooldownPeriod  int `json:"cooldownPeriod"`
		Triggers        []struct {
			Type     string            `json:"type"`
			Metadata map[string]string `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

func customs[T any](t *testing.T, r release, kind string) (out []T) {
	t.Helper()
	for _, v := range r.custom[kind] {
		text, err := yaml.Marshal(v)
		require.NoError(t, err)
		var one T
		require.NoError(t, yaml.UnmarshalStrict(text, &one))
		out = append(out, one)
	}
	return out
}

// Strimzi makes the topics that migrate would make, and its user may do what docs/security.md asks for.
func TestChartStrimzi(t *testing.T) {
	v := forms(t)["small, all parts"]
	v["config"].(values)["intake"] = values{"topics": []any{"Notyet_Intake", values{"topic": "orders.later", "target": "orders"}}}
	v["strimzi"].(values)["intakeConfig"] = values{"max.message.bytes": 9000000}
	r := decode(t, v)
	topics := map[string]kafkaTopic{}
	for _, topic := range customs[kafkaTopic](t, r, "KafkaTopic") {
		topics[topic.Spec.TopicName] = topic
		require.Equal(t, "main", topic.Metadata.Labels["strimzi.io/cluster"])
		require.Equal(t, "LogAppendTime", topic.Spec.Config["message.timestamp.type"], "delays count from the broker's clock")
	}
	require.Len(t, topics, 6)
	require.Equal(t, "notyet-intake", topics["Notyet_Intake"].Metadata.Name)
	for _, name := range []string{"Notyet_Intake", "orders.later", "notyet.reports", "notyet.cancels"} {
		c := topics[name].Spec.Config
		require.EqualValues(t, 1209600000, c["retention.ms"], name)
		require.EqualValues(t, -1, c["retention.bytes"], name)
		require.EqualValues(t, 2, c["min.insync.replicas"], name)
		require.Equal(t, name == "Notyet_Intake" || name == "orders.later", c["max.message.bytes"] != nil, name)
	}
	require.NotContains(t, topics["notyet.results"].Spec.Config, "retention.ms")
	require.Equal(t, 1, topics["notyet.wakes"].Spec.Partitions)
	require.Equal(t, 1, topics["notyet.cancels"].Spec.Partitions)

	users := customs[kafkaUser](t, r, "KafkaUser")
	require.Len(t, users, 1)
	rights := map[string]string{}
	for _, acl := range users[0].Spec.Authorization.ACLs {
		rights[acl.Resource.Type+" "+acl.Resource.Name+" "+acl.Resource.PatternType] = strings.Join(acl.Operations, ",")
	}
	const both, read, write = "Read,Write,Describe,DescribeConfigs", "Read,Describe,DescribeConfigs", "Write,Describe,DescribeConfigs"
	require.Equal(t, map[string]string{
		"group notyet-scanner ": "Read", "topic Notyet_Intake ": both, "topic orders.later ": both, "topic notyet.results ": both, "topic notyet.cancels ": both, "topic notyet.wakes ": both,
		"topic notyet.reports ": read, "topic orders literal": write, "topic shop. prefix": write,
	}, rights)
	mounted := []string{}
	for _, volume := range r.pods["all"].spec.Volumes {
		if volume.Projected != nil {
			for _, source := range volume.Projected.Sources {
				mounted = append(mounted, source.Secret.Name)
			}
		}
	}
	require.Equal(t, []string{"main-cluster-ca-cert", users[0].Metadata.Name}, mounted)
	require.NotEqual(t, v["existingSecret"], users[0].Metadata.Name, "Strimzi would write into the operator's own Secret")

	full := decode(t, forms(t)["full, all parts"])
	require.Len(t, customs[kafkaTopic](t, full, "KafkaTopic"), 4, "intake, reports, results, cancels")
}

// KEDA scales the pods that dispatch.
func TestChartKEDA(t *testing.T) {
	for form, target := range map[string]string{"small, all parts": "notyet-all", "full, all parts": "notyet-dispatcher"} {
		scaled := customs[scaledObject](t, decode(t, forms(t)[form]), "ScaledObject")
		require.Len(t, scaled, 1)
		require.Equal(t, "StatefulSet", scaled[0].Spec.ScaleTargetRef.Kind)
		require.Equal(t, target, scaled[0].Spec.ScaleTargetRef.Name)
		require.Equal(t, `max(notyet_dispatcher_due_tasks{within="5m",namespace="payments"})`, scaled[0].Spec.Triggers[0].Metadata["query"])
		require.Equal(t, "500000", scaled[0].Spec.Triggers[0].Metadata["threshold"])
	}
}
