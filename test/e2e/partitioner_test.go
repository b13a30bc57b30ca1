package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Requests about one task come from several clients. With the partitioner that the documents name,
// kcat puts a key where Go clients put it.
func TestKcatPutsAKeyWhereOthersDo(t *testing.T) {
	if _, err := exec.LookPath("kcat"); err != nil {
		require.NotEqual(t, "true", os.Getenv("CI"), "kcat is missing, and CI must run the test")
		t.Skip("kcat is not installed: apt-get install kcat")
	}
	for _, page := range []string{"README.md", "docs/tour.md", "examples/clients/README.md", "examples/clients/kcat.sh"} {
		text, err := os.ReadFile("../../" + page)
		require.NoError(t, err)
		for _, line := range strings.Split(string(text), "\n") {
			if strings.Contains(line, "kcat -P") && strings.Contains(line, " -k ") {
				require.Contains(t, line, " -X topic.partitioner=murmur2_random ", "%s: %s", page, line)
			}
		}
	}

	const keys, partitions = 200, 12
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "kcat", "go"))
	require.NoError(t, err)
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("kcat", "go"))
	require.NoError(t, err)
	defer client.Close()
	var lines bytes.Buffer
	for i := range keys {
		key := fmt.Sprint("customer-", i)
		fmt.Fprintln(&lines, key+":x")
		require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "go", Key: []byte(key)}).FirstErr())
	}
	kcat := exec.CommandContext(t.Context(), "kcat", "-P", "-b", cluster.ListenAddrs()[0], "-t", "kcat", "-K", ":", "-X", "topic.partitioner=murmur2_random")
	kcat.Stdin = &lines
	out, err := kcat.CombinedOutput()
	require.NoError(t, err, "%s", out)

	at := map[string]map[string]int32{"kcat": {}, "go": {}}
	for len(at["kcat"])+len(at["go"]) < 2*keys {
		fetches := client.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { at[r.Topic][string(r.Key)] = r.Partition })
	}
	require.Equal(t, at["go"], at["kcat"])
}
