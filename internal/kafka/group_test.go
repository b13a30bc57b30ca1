package kafka_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

// Only a newer copy of the same installation's database, or another one with the same number, replaces ours.
func TestClaimReplaces(t *testing.T) {
	of := func(n int64, name string) kafka.Claim {
		return kafka.Claim{Installation: "shop", Copy: kafka.Copy{N: n, Name: name, By: "ann@host"}}
	}
	for name, c := range map[string]struct {
		group, ours kafka.Claim
		replaces    bool
	}{
		"nobody has claimed":            {kafka.Claim{}, of(3, "a"), false},
		"no copy has a name":            {of(0, ""), of(0, ""), false},
		"the same copy":                 {of(3, "a"), of(3, "a"), false},
		"the group has lost a commit":   {of(2, "z"), of(3, "a"), false},
		"older scanners have committed": {of(0, ""), of(3, "a"), false},
		"another installation's":        {kafka.Claim{Installation: "else", Copy: kafka.Copy{N: 9, Name: "a"}}, of(3, "a"), false},
		"a newer one":                   {of(4, "a"), of(3, "a"), true},
		"one has a name, ours has none": {of(1, "a"), of(0, ""), true},
		"named at the same moment":      {of(3, "a"), of(3, "b"), true},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.group.Replaces(c.ours, "g")
			if !c.replaces {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, kafka.ErrOlderCopy)
			require.ErrorContains(t, err, c.group.Copy.String())
			require.ErrorContains(t, err, "docs/recovery.md")
		})
	}
}

func TestCopyHasAForm(t *testing.T) {
	older := kafka.Copy{N: 7, Name: "0123456789abcdef"}
	require.InDelta(t, time.Now().Unix(), kafka.NewCopy("", older).N, 60)
	older.N = 1 << 40 // by a clock that was ahead
	c := kafka.NewCopy("ann@host at noon", kafka.Copy{}, older)
	require.EqualValues(t, older.N+1, c.N)
	require.Len(t, c.Name, 16)
	require.NotEqual(t, c.Name, kafka.NewCopy("").Name)
	for _, c := range []kafka.Copy{{}, older, c} {
		read, err := kafka.ParseCopy(c.String())
		require.NoError(t, err)
		require.Equal(t, c, read)
	}
	for _, text := range []string{"8", "8 ", "0 a b", "-1 a b", "x a b", "member-1"} {
		_, err := kafka.ParseCopy(text)
		require.Error(t, err, text)
	}
}

// A claim is in the offsets' metadata, and a command that claims leaves the offsets as they are.
func TestClaimsOfAGroup(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		_, cfg := startKafka(t, kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
		claims(t, cfg)
	})
	t.Run("real", func(t *testing.T) {
		brokers := os.Getenv("NOTYET_KAFKA_BROKERS")
		if brokers == "" {
			t.Skip("NOTYET_KAFKA_BROKERS is not set")
		}
		claims(t, kafka.Config{Brokers: strings.Split(brokers, ",")})
	})
}

func claims(t *testing.T, cfg kafka.Config) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := newClient(t, kafka.NewProducer, cfg)
	admin := kadm.NewClient(client)
	suffix := fmt.Sprintf("-%x", rand.Uint64())
	g, in, reports, other := "g"+suffix, "in"+suffix, "reports"+suffix, "other"+suffix
	_, err := kafka.EnsureTopics(ctx, client, []kafka.TopicSpec{{Name: in, Partitions: 3, Replication: 1}, {Name: reports, Partitions: 3, Replication: 1}, {Name: other, Partitions: 3, Replication: 1}})
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = admin.DeleteTopics(context.WithoutCancel(ctx), in, reports, other) })
	commit := func(topic string, partition int32, at int64, note string) {
		t.Helper()
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: at, LeaderEpoch: -1, Metadata: note})
		require.Eventually(t, func() bool { return admin.CommitAllOffsets(ctx, g, offsets) == nil }, patience, 50*time.Millisecond) // its topics are new
	}
	claim := func() kafka.Claim {
		t.Helper()
		c, err := kafka.GroupClaim(ctx, client, g, in, reports, "gone")
		require.NoError(t, err)
		return c
	}
	shop, named := kafka.Claim{Installation: "shop"}, kafka.Claim{Installation: "shop", Copy: kafka.Copy{N: 2, Name: "abc", By: "ann@host at noon"}}
	require.Eventually(t, func() bool { // a new broker first makes the topic of offsets
		_, err := kafka.GroupClaim(ctx, client, g, in)
		return err == nil
	}, patience, 50*time.Millisecond)
	require.Zero(t, claim())
	commit(other, 0, 1, "notyet installation else")
	commit(in, 0, 5, "member-1")
	require.Zero(t, claim(), "an older version's, and another topic's")
	restarted := kafka.Restarts{TopicID: [16]byte{1, 15: 2}, N: 3}
	restarts := "notyet restarts 01000000000000000000000000000002 3 "
	for _, bad := range []string{"notyet copy shop x abc", "notyet copy shop", "notyet copy", restarts + "notyet copy", "notyet restarts 01 3 notyet installation shop", strings.Replace(restarts, "3", "x", 1) + "notyet installation shop"} {
		commit(in, 0, 5, bad)
		require.Zero(t, claim(), bad)
	}
	commit(in, 1, 17, restarts+"notyet installation shop")
	require.Equal(t, shop, claim())
	commit(reports, 0, 5, "notyet copy shop 2 abc ann@host at noon")
	require.Equal(t, named, claim())
	commit(reports, 1, 5, "notyet copy shop 1 zzz bob")
	require.Equal(t, named, claim(), "the newest")

	named.Copy.N = 3
	require.NoError(t, kafka.TakeGroup(ctx, client, g, named, in, reports, "gone"))
	committed, err := kafka.GroupOffsets(ctx, client, g, in, reports, other)
	require.NoError(t, err)
	note := "notyet copy shop 3 abc ann@host at noon"
	require.Equal(t, map[string]map[int32]kafka.Committed{
		in:      {0: {At: 5, Note: note}, 1: {At: 17, Note: restarts + note}, 2: {At: 0, Note: note}},
		reports: {0: {At: 5, Note: note}, 1: {At: 5, Note: note}, 2: {At: 0, Note: note}},
		other:   {0: {At: 1, Note: "notyet installation else"}},
	}, committed)
	require.Equal(t, restarted, committed[in][1].Restarts(), "who takes the group over keeps them")
	require.Zero(t, committed[in][0].Restarts())
	require.Equal(t, named, claim())

	member, err := kafka.NewConsumerGroup(cfg, g, []string{in}, zap.NewNop())
	require.NoError(t, err)
	defer member.Close()
	require.Eventually(t, func() bool {
		members, err := kafka.GroupMembers(ctx, client, g)
		return err == nil && len(members) == 1
	}, patience, 10*time.Millisecond)
	require.ErrorIs(t, kafka.TakeGroup(ctx, client, g, shop, in), kafka.ErrGroupAtWork, "and not that Kafka does not know us")
	require.Equal(t, named, claim())
}
