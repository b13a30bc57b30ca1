package doctor

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/kafka"
)

// The rights that docs/security.md lists are enough for a user of a real broker, and without each of them doctor says so.
func TestDocumentedRightsInKafka(t *testing.T) {
	if os.Getenv("NOTYET_KAFKA_BROKERS") == "" {
		t.Skip("NOTYET_KAFKA_BROKERS is not set: this machine runs no servers")
	}
	super, err := kafka.New(kafka.Config{Brokers: strings.Split(os.Getenv("NOTYET_KAFKA_BROKERS"), ",")}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(super.Close)
	admin := kadm.NewClient(super)
	users := usersListener(t, admin)
	if users == "" {
		t.Skip("this broker has no listener where users sign in: restart it (scripts/servers down kafka; scripts/servers up kafka)")
	}
	own := "rights-" + strings.ToLower(rand.Text())
	settings := config.Default()
	settings.Intake.Topics[0].Topic, settings.Intake.Topics[0].MaxValueBytes = own+".intake", 1<<20
	settings.Intake.Topics[0].AllowedTargets = []string{"*"}
	settings.Index.Kind, settings.Wakes.Topic = config.KindMySQL, own+".wakes"
	settings.Reports.Topic, settings.Results.Topic, settings.Cancels.Topic, settings.Scanner.Group = own+".reports", own+".results", own+".cancels", own
	target := own + ".orders"
	var specs []kafka.TopicSpec
	for _, name := range append(settings.OwnTopics(), target) {
		specs = append(specs, kafka.TopicSpec{Name: name, Partitions: 1})
	}
	_, err = kafka.EnsureTopics(t.Context(), super, specs)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, _ = admin.DeleteTopics(context.Background(), append(settings.OwnTopics(), target)...)
		_, _ = admin.AlterUserSCRAMs(context.Background(), []kadm.DeleteSCRAM{{User: own, Mechanism: kadm.ScramSha256}}, nil)
	})
	_, err = admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: own, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "geheim"}})
	require.NoError(t, err)
	cfg := Config{Settings: &settings, Targets: []string{target}, Patience: 30 * time.Second, Kafka: &kafka.Config{Brokers: []string{users}, SASL: "SCRAM-SHA-256", Credentials: func() (string, string) { return own, "geheim" }}}
	wrong := func() (out []string) {
		for _, f := range Look(t.Context(), cfg, zap.NewNop()) {
			if (f.Level == Failure || f.Level == Warning) && f.Check != "kafka.copies" {
				out = append(out, f.Check+" "+f.Where)
			}
		}
		return out
	}
	type right struct {
		topic, group string
		op           kadm.ACLOperation
		check        string // what is found without it
	}
	rights := []right{
		{topic: settings.Intake.Topics[0].Topic, op: kadm.OpRead, check: "kafka.rights"},
		{topic: settings.Intake.Topics[0].Topic, op: kadm.OpWrite, check: "kafka.rights"},
		{topic: settings.Reports.Topic, op: kadm.OpRead, check: "kafka.topics"},
		{topic: settings.Results.Topic, op: kadm.OpWrite, check: "kafka.rights"},
		{topic: settings.Results.Topic, op: kadm.OpRead, check: "kafka.rights"},
		{topic: settings.Cancels.Topic, op: kadm.OpRead, check: "kafka.rights"},
		{topic: settings.Cancels.Topic, op: kadm.OpWrite, check: "kafka.rights"},
		{topic: settings.Wakes.Topic, op: kadm.OpRead, check: "kafka.rights"},
		{topic: settings.Wakes.Topic, op: kadm.OpWrite, check: "kafka.rights"},
		{topic: target, op: kadm.OpWrite, check: "kafka.topics"},
		{group: settings.Scanner.Group, op: kadm.OpRead, check: "kafka.group"},
	}
	acl := func(r right) *kadm.ACLBuilder {
		b := kadm.NewACLs().ResourcePatternType(kadm.ACLPatternLiteral).Allow("User:" + own).AllowHosts("*").Operations(r.op)
		if r.topic != "" {
			return b.Topics(r.topic)
		}
		return b.Groups(r.group)
	}
	grant := func(r right) {
		_, err := admin.CreateACLs(t.Context(), acl(r))
		require.NoError(t, err)
	}
	for _, r := range rights {
		grant(r)
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Empty(c, wrong(), "all of them suffice") }, time.Minute, 50*time.Millisecond)
	user, err := kafka.New(*cfg.Kafka, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(user.Close)
	created, err := kafka.EnsureTopics(t.Context(), user, specs)
	require.NoError(t, err, "topics that others made are kept without the right to create them")
	require.Empty(t, created)
	for _, r := range rights {
		_, err := admin.DeleteACLs(t.Context(), acl(r))
		require.NoError(t, err)
		where := "topic " + r.topic
		if r.group != "" {
			where = "group " + r.group
		}
		require.Eventually(t, func() bool {
			found := wrong()
			return len(found) == 1 && found[0] == r.check+" "+where
		}, time.Minute, 50*time.Millisecond, "without %s on %s", r.op, where)
		grant(r)
		require.Eventually(t, func() bool { return len(wrong()) == 0 }, time.Minute, 50*time.Millisecond)
	}
}

// usersListener returns where users of scripts/servers' broker sign in; "": nowhere.
func usersListener(t *testing.T, admin *kadm.Client) string {
	t.Helper()
	brokers, err := admin.ListBrokers(t.Context())
	require.NoError(t, err)
	configs, err := admin.DescribeBrokerConfigs(t.Context(), brokers.NodeIDs()...)
	require.NoError(t, err)
	for _, broker := range configs {
		for _, c := range broker.Configs {
			for listener := range strings.SplitSeq(c.MaybeValue(), ",") {
				if addr, ok := strings.CutPrefix(listener, "SASL_PLAINTEXT://"); ok && c.Key == "advertised.listeners" {
					return addr
				}
			}
		}
	}
	return ""
}
