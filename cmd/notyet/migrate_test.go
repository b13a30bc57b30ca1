package main

import (
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/command"
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
	require.Len(t, first.Topics, 3, "one of four exists")
	require.EqualValues(t, 12, first.Topics[1].Partitions)
	require.EqualValues(t, 1, first.Topics[2].Partitions, "of notyet.cancels")
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

// migrate works with the DSN that it has for itself, which a service does not take.
func TestMigrateHasADSNOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	own, others := "sqlite:"+filepath.Join(dir, "own.db"), "sqlite:"+filepath.Join(dir, "others.db")
	for name, c := range map[string]struct {
		environ, args []string
		code          int
	}{
		"its own alone":    {[]string{"NOTYET_MIGRATE_DSN=" + own}, nil, command.ExitDone},
		"from a file":      {[]string{"NOTYET_MIGRATE_DSN_FILE=" + fileWith(t, "dsn", own+"\n")}, nil, command.ExitDone},
		"by a flag":        {[]string{"NOTYET_MYSQL_DSN=" + others}, []string{"--migrate-dsn", own}, command.ExitDone},
		"beside another":   {[]string{"NOTYET_MYSQL_DSN=" + others, "NOTYET_MIGRATE_DSN=" + own}, nil, command.ExitDone},
		"neither":          {nil, nil, command.ExitUsage},
		"twice":            {[]string{"NOTYET_MIGRATE_DSN=" + own, "NOTYET_MIGRATE_DSN_FILE=" + fileWith(t, "dsn", own)}, nil, command.ExitUsage},
		"another database": {[]string{"NOTYET_MYSQL_DSN=u@tcp(h:1)/a", "NOTYET_MIGRATE_DSN=u@tcp(h:1)/b"}, nil, command.ExitUsage},
	} {
		r := notyet(t, c.environ, "", append([]string{"migrate", "--database-only"}, c.args...)...)
		require.Equal(t, c.code, r.code, "%s: %s", name, r.stderr)
	}
	require.NoFileExists(t, filepath.Join(dir, "others.db"))
	r := notyet(t, []string{"NOTYET_MIGRATE_DSN=" + own, "NOTYET_KAFKA_BROKERS=127.0.0.1:1", "NOTYET_REDIS_ADDRS=127.0.0.1:1"}, "", "config", "check", "--service", "scanner")
	require.Equal(t, command.ExitUsage, r.code)
	require.Contains(t, r.stderr, "mysql.dsn is not set")
}

// A backup from before databases had an id, restored: the id is that of the installation whose scanners' group it is.
func TestMigrateTakesTheClaimedInstallation(t *testing.T) {
	const id = "5f0c1a2b5f0c1a2b5f0c1a2b5f0c1a2b"
	for name, c := range map[string]struct {
		claim   bool
		empty   bool   // the database
		sendLog string // whose it is
		at      bool   // a scanner is at work
		problem string
		same    bool
	}{
		"claimed":                      {claim: true, same: true},
		"by the send log as well":      {claim: true, sendLog: id, same: true},
		"an upgrade":                   {},
		"an upgrade, scanners at work": {at: true},
		"a new database":               {claim: true, empty: true},
		"the send log is another's":    {claim: true, sendLog: "6f", problem: "belongs to " + id + ", but sendlog.dir"},
		"a scanner of it is at work":   {claim: true, at: true, problem: "are at work: stop"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "notyet.intake", "notyet.reports", "notyet.results", "notyet.cancels"))
			require.NoError(t, err)
			t.Cleanup(cluster.Close)
			kcfg := kafka.Config{Brokers: cluster.ListenAddrs()}
			dir, logs := t.TempDir(), t.TempDir()
			environ := []string{"NOTYET_MYSQL_DSN=sqlite:" + dir + "/notyet.db", "NOTYET_KAFKA_BROKERS=" + kcfg.Brokers[0], "NOTYET_MIGRATE_REPLICATION=1", "NOTYET_SENDLOG_DIR=" + logs}
			read := func() string {
				st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + dir + "/notyet.db"}, zap.NewNop())
				require.NoError(t, err)
				defer func() { require.NoError(t, st.Close()) }()
				now, err := st.Installation(t.Context())
				if err != nil {
					return ""
				}
				return now
			}
			if !c.empty {
				require.Equal(t, command.ExitDone, notyet(t, environ, "", "migrate").code)
				db, err := sql.Open("sqlite", dir+"/notyet.db")
				require.NoError(t, err)
				_, err = db.Exec("DELETE FROM meta WHERE name = CAST('installation.id' AS BLOB)")
				require.NoError(t, err)
				require.NoError(t, db.Close())
				require.Empty(t, read())
			}
			if c.sendLog != "" {
				require.NoError(t, os.WriteFile(filepath.Join(logs, "installation"), []byte(c.sendLog+"\n"), 0o600))
			}
			member, err := kafka.NewConsumerGroup(kcfg, "notyet-scanner", []string{"notyet.intake"}, zap.NewNop())
			require.NoError(t, err)
			defer member.Close()
			joined := func() bool {
				members, err := kafka.GroupMembers(t.Context(), member, "notyet-scanner")
				return err == nil && len(members) > 0
			}
			require.Eventually(t, joined, time.Minute, 10*time.Millisecond)
			if c.claim {
				member.CommitOffsetsSync(kafka.ClaimGroup(t.Context(), kafka.Claim{Installation: id}, func(string, int32) (none kafka.Restarts) { return none }), map[string]map[int32]kgo.EpochOffset{"notyet.intake": {0: {Epoch: -1}}}, nil)
			}
			if !c.at {
				require.NoError(t, member.LeaveGroupContext(t.Context()))
			}
			r := notyet(t, environ, "", "migrate")
			if c.problem != "" {
				require.Equal(t, command.ExitFailed, r.code)
				require.Contains(t, r.stderr, c.problem)
				require.Empty(t, read())
				return
			}
			require.Equal(t, command.ExitDone, r.code, r.stderr)
			require.NotEmpty(t, read())
			require.Equal(t, c.same, read() == id)
		})
	}
}
