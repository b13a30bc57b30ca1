package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store"
)

func TestMigrateTheDatabaseAlone(t *testing.T) {
	environ := []string{"NOTYET_MYSQL_DSN=sqlite:" + t.TempDir() + "/notyet.db"}
	r := notyet(t, environ, "", "migrate", "--database-only")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Equal(t, "database: up to date, 64 slots\n", r.stdout)
	require.Equal(t, command.ExitUsage, notyet(t, environ, "", "migrate").code, "with Kafka it needs to know where")
	require.Equal(t, command.ExitUsage, notyet(t, environ, "", "migrate", "--database-only", "--kafka-moved").code)
}

// A dry run names what is to be made, and makes nothing.
func TestMigrateDryRun(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "notyet.results"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	broker := cluster.ListenAddrs()[0]
	environ := []string{"NOTYET_MYSQL_DSN=sqlite:" + t.TempDir() + "/notyet.db", "NOTYET_KAFKA_BROKERS=" + broker, "NOTYET_MIGRATE_REPLICATION=1"}
	plan := func() (out planned) {
		r := notyet(t, environ, "", "migrate", "--dry-run", "--json")
		require.Equal(t, command.ExitDone, r.code, r.stderr)
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &out))
		return out
	}
	first := plan()
	require.NotEmpty(t, first.Migrations)
	require.Equal(t, 64, first.Slots)
	require.Len(t, first.Topics, 2, "one of three exists")
	require.Equal(t, "1209600000", first.Topics[0].Configs["retention.ms"])
	require.Equal(t, first, plan(), "nothing was made")

	r := notyet(t, environ, "", "migrate", "--dry-run", "--database-only")
	require.Contains(t, r.stdout, "-- "+first.Migrations[0].Name+"\n")
	require.Contains(t, r.stdout, "CREATE TABLE tasks")
	require.Contains(t, r.stdout, "-- then the installation's id and key, and 64 slots\n")
	require.NotContains(t, r.stdout, "-- topic")

	require.Equal(t, command.ExitDone, notyet(t, environ, "", "migrate").code)
	require.Equal(t, planned{Migrations: []store.Migration{}, Topics: []kafka.TopicSpec{}}, plan())
	require.Equal(t, "-- 0 migrations and 0 topics to be made; nothing was changed\n", notyet(t, environ, "", "migrate", "--dry-run").stdout)
}
