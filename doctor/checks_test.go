package doctor

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
)

// well are the answers of servers with which nothing is wrong.
func well() facts {
	settings := config.Default()
	settings.Intake.Topics[0].MaxValueBytes, settings.Intake.Topics[0].AllowedTargets = 1<<20, []string{"*"}
	f := facts{Config: Config{
		Settings: &settings, Version: "v1", Targets: []string{"orders"},
		Store: &store.Config{DSN: "u:p@tcp(db:3306)/notyet"}, Kafka: &kafka.Config{Brokers: []string{"k:9092"}},
		Index: &index.Config{Addrs: []string{"r:6379"}}, Election: &election.Config{Servers: []string{"z:2181"}, Root: "/notyet"},
	}, answers: &answers{}}
	f.database = &database{
		Examined: store.Examined{Version: "10.11.19-mariadb", Schema: 9, Wanted: 9, Within: time.Millisecond, Variables: map[string]string{
			"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1", "log_bin": "on", "binlog_format": "row", "innodb_doublewrite": "on", "read_only": "off",
			"max_allowed_packet": "16777216", "max_connections": "300", "rpl_semi_sync_master_enabled": "on",
		}},
		installation: "1a", kafka: "k1",
		services: []admin.Service{{Kind: "all", Member: "m", Version: "v1"}},
	}
	f.cluster = &cluster{id: "k1", versions: []string{"v4.0"}, mayJoin: true, topics: map[string]kafka.Topic{}}
	for _, name := range append(settings.OwnTopics(), "orders") {
		f.cluster.topics[name] = kafka.Topic{Partitions: 12, Replicas: 3, InSync: 3, May: []string{"read", "write", "describe"}, Configs: map[string]string{
			"cleanup.policy": "delete", "message.timestamp.type": "LogAppendTime", "min.insync.replicas": "2", "unclean.leader.election.enable": "false",
			"retention.ms": "1209600000", "retention.bytes": "-1", "max.message.bytes": "2000000",
		}}
	}
	f.redis = &index.Examined{Version: "7.0", Policy: "noeviction"}
	f.ensemble = &election.Examined{Installation: "1a", Rooted: true, Members: []string{"m"}}
	f.Issuer, f.Settings.HTTP.SignIn.ClientID = &access.JWT{Issuer: "https://login.example"}, "c"
	f.issuer = &access.Examined{Keys: 2, Endpoints: true, S256: true, Ahead: -time.Second, Within: time.Second}
	f.disk = &sendlog.Examined{Installation: "1a", Exists: true, InUse: true, Sync: time.Millisecond, Free: 100 << 30}
	return f
}

func judge(f facts) []Finding {
	var out []Finding
	for _, c := range checks {
		for _, found := range c.judge(f) {
			found.Check = c.name
			out = append(out, found)
		}
	}
	return out
}

func TestNothingIsWrong(t *testing.T) {
	for _, found := range judge(well()) {
		require.Equal(t, OK, found.Level, found)
	}
	require.Empty(t, judge(facts{Config: well().Config, answers: &answers{}}), "servers that were not asked are not judged")
}

func TestEachMistakeIsFound(t *testing.T) {
	set := func(name, value string) func(*facts) {
		return func(f *facts) { f.database.Variables[name] = value }
	}
	topic := func(name string, change func(*kafka.Topic)) func(*facts) {
		return func(f *facts) {
			t := f.cluster.topics[name]
			change(&t)
			f.cluster.topics[name] = t
		}
	}
	configured := func(name, setting, value string) func(*facts) {
		return topic(name, func(t *kafka.Topic) { t.Configs[setting] = value })
	}
	const in, reports, results = "notyet.intake", "notyet.reports", "notyet.results"
	for name, c := range map[string]struct {
		spoil func(*facts)
		check string
		level Level
		found string
	}{
		"a second of commits may go": {set("innodb_flush_log_at_trx_commit", "2"), "mysql.durable", Warning, "is 2"},
		"the binlog is not synced":   {set("sync_binlog", "0"), "mysql.durable", Warning, "sync_binlog is 0"},
		"half pages":                 {set("innodb_doublewrite", "off"), "mysql.durable", Warning, "half written"},
		"nothing is synced":          {set("innodb_flush_method", "nosync"), "mysql.durable", Warning, "forced to the disk"},
		"a replica":                  {set("read_only", "on"), "mysql.writes", Failure, "read-only"},
		"statements in the binlog":   {set("binlog_format", "statement"), "mysql.writes", Failure, "STATEMENT"},
		"lists that are cut":         {set("sql_select_limit", "100"), "mysql.sessions", Warning, "mysqldump"},
		"statements that are ended":  {set("max_statement_time", "0.5"), "mysql.sessions", Warning, "slow"},
		"replicas may be behind":     {set("rpl_semi_sync_master_enabled", "off"), "mysql.writes", Note, "behind"},
		"small packets":              {set("max_allowed_packet", "4194304"), "mysql.packets", Warning, "dead letters"},
		"few connections":            {set("max_connections", "20"), "mysql.connections", Warning, "max_connections is 20"},
		"none for the election": {func(f *facts) {
			f.database.Variables["max_connections"], f.Settings.Election.Kind = "26", config.KindMySQL
		}, "mysql.connections", Warning, "may need 27"},
		"few connections of a user":    {set("max_user_connections", "10"), "mysql.connections", Warning, "max_user_connections is 10"},
		"an old server":                {func(f *facts) { f.database.Version = "5.7.44-log" }, "mysql.version", Warning, "5.7.44"},
		"an old MariaDB":               {func(f *facts) { f.database.Version = "10.5.1-MariaDB" }, "mysql.version", Warning, "10.5.1"},
		"no row locks":                 {func(f *facts) { f.database.locks = store.ErrNoRowLocks }, "mysql.row-locks", Failure, "does not hold"},
		"no tables":                    {func(f *facts) { f.database.migrated, f.database.Schema = store.ErrNotMigrated, 0 }, "mysql.schema", Failure, "no tables"},
		"old tables":                   {func(f *facts) { f.database.migrated, f.database.Schema = store.ErrNotMigrated, 3 }, "mysql.schema", Failure, "version 3"},
		"newer tables":                 {func(f *facts) { f.database.Schema = 11 }, "mysql.schema", Note, "version 11"},
		"a reader":                     {func(f *facts) { f.database.Missing = []string{"DELETE", "ALTER"} }, "mysql.rights", Failure, "DELETE"},
		"no migration":                 {func(f *facts) { f.database.Missing = []string{"ALTER"} }, "mysql.rights", Note, "ALTER"},
		"the database is ahead":        {func(f *facts) { f.database.Ahead = time.Hour }, "mysql.clock", Warning, "1h0m0s ahead"},
		"the database is behind":       {func(f *facts) { f.database.Ahead = -time.Hour }, "mysql.clock", Warning, "behind"},
		"no dispatcher":                {func(f *facts) { f.database.services[0].Member = "" }, "services", Warning, "no dispatcher"},
		"no scanner":                   {func(f *facts) { f.database.services[0].Kind = "dispatcher" }, "services", Warning, "no scanner"},
		"another election":             {func(f *facts) { f.Disk, f.database.elected = true, "mysql" }, "election", Failure, "elect by mysql"},
		"another index":                {func(f *facts) { f.database.indexed = "mysql" }, "index", Failure, "services have index.kind mysql"},
		"another version":              {func(f *facts) { f.Version = "v2" }, "services", Note, "1 of v1"},
		"no intake":                    {topic(in, func(t *kafka.Topic) { *t = kafka.Topic{Err: kerr.UnknownTopicOrPartition} }), "kafka.topics", Failure, "does not exist"},
		"no target":                    {topic("orders", func(t *kafka.Topic) { *t = kafka.Topic{Err: kerr.UnknownTopicOrPartition} }), "kafka.topics", Warning, "dead letters"},
		"an intake that forbids":       {topic(in, func(t *kafka.Topic) { *t = kafka.Topic{Err: kerr.TopicAuthorizationFailed} }), "kafka.topics", Failure, "TOPIC_AUTH"},
		"no leader":                    {topic(in, func(t *kafka.Topic) { t.InSync = 0 }), "kafka.topics", Failure, "leader"},
		"a compacted intake":           {configured(in, "cleanup.policy", "compact,delete"), "kafka.cleanup", Failure, "are lost"},
		"compacted reports":            {configured(reports, "cleanup.policy", "compact"), "kafka.cleanup", Failure, "are lost"},
		"compacted results":            {configured(results, "cleanup.policy", "compact"), "kafka.cleanup", Warning, "answers"},
		"a compacted target":           {configured("orders", "cleanup.policy", "compact"), "kafka.cleanup", Note, "without a key"},
		"the callers' clocks":          {configured(in, "message.timestamp.type", "CreateTime"), "kafka.timestamps", Warning, "caller's clock"},
		"one copy":                     {topic(in, func(t *kafka.Topic) { t.Replicas, t.InSync = 1, 1; t.Configs["min.insync.replicas"] = "1" }), "kafka.copies", Warning, "one copy"},
		"one copy must have it":        {configured(in, "min.insync.replicas", "1"), "kafka.copies", Warning, "one disk only"},
		"too many must have it":        {configured("orders", "min.insync.replicas", "4"), "kafka.copies", Failure, "nothing can be written"},
		"too few are in sync":          {topic(in, func(t *kafka.Topic) { t.InSync = 1 }), "kafka.copies", Failure, "in sync"},
		"one is not in sync":           {topic(in, func(t *kafka.Topic) { t.InSync = 2 }), "kafka.copies", Warning, "2 of 3"},
		"unclean leaders":              {configured("orders", "unclean.leader.election.enable", "true"), "kafka.unclean-election", Warning, "lost"},
		"a day of requests":            {configured(in, "retention.ms", "86400000"), "kafka.retention", Warning, "24h0m0s"},
		"some bytes of requests":       {configured(reports, "retention.bytes", "1000"), "kafka.retention", Warning, "retention.bytes"},
		"small requests only":          {configured(in, "max.message.bytes", "1048588"), "kafka.message-size", Note, "largest"},
		"settings that nobody sees":    {topic(in, func(t *kafka.Topic) { t.Configs, t.ConfigsErr = nil, errors.New("no") }), "kafka.settings", Note, "no"},
		"an intake that is not read":   {topic(in, func(t *kafka.Topic) { t.May = []string{"write"} }), "kafka.rights", Failure, "scanners stand"},
		"an intake without the API":    {topic(in, func(t *kafka.Topic) { t.May = []string{"read"} }), "kafka.rights", Warning, "schedule"},
		"results that are not read":    {topic(results, func(t *kafka.Topic) { t.May = []string{"write"} }), "kafka.rights", Failure, "?wait="},
		"results that are not written": {topic(results, func(t *kafka.Topic) { t.May = []string{"read"} }), "kafka.rights", Failure, "no event"},
		"a target that is not written": {topic("orders", func(t *kafka.Topic) { t.May = []string{"read"} }), "kafka.rights", Warning, "dead letters"},
		"a group that is closed":       {func(f *facts) { f.cluster.mayJoin = false }, "kafka.group", Failure, "scanners stand"},
		"a broker's clock":             {topic(in, func(t *kafka.Topic) { t.Newest = time.Now().Add(time.Hour) }), "kafka.clock", Warning, "ahead"},
		"an index that forgets":        {func(f *facts) { f.redis.Policy = "allkeys-lru" }, "redis.eviction", Warning, "allkeys-lru"},
		"an index that says nothing":   {func(f *facts) { f.redis.Policy = "" }, "redis.eviction", Note, "INFO"},
		"the index's clock":            {func(f *facts) { f.redis.Ahead = -time.Minute }, "redis.clock", Warning, "behind"},
		"the ensemble's clock":         {func(f *facts) { f.ensemble.Ahead = time.Minute }, "zookeeper.clock", Warning, "ahead"},
		"an empty ensemble":            {func(f *facts) { f.ensemble.Rooted = false }, "zookeeper.members", Note, "no dispatcher"},
		"another Kafka":                {func(f *facts) { f.cluster.id = "k2" }, "installation", Failure, "belongs to k2"},
		"another's root":               {func(f *facts) { f.ensemble.Installation = "2b" }, "installation", Failure, "belongs to 2b"},
		"another's send log":           {func(f *facts) { f.disk.Installation = "2b" }, "installation", Failure, "belongs to 2b"},
		"a slow disk":                  {func(f *facts) { f.disk.Sync = time.Second }, "sendlog.disk", Warning, "durable"},
		"a full disk":                  {func(f *facts) { f.disk.Free = 1 << 20 }, "sendlog.disk", Warning, "left"},
		"no send log":                  {func(f *facts) { f.disk.Exists = false }, "sendlog.disk", Note, "does not exist"},
		"an issuer that is ahead":      {func(f *facts) { f.issuer.Ahead = time.Minute }, "issuer.clock", Warning, "at least 1m0s apart"},
		"an issuer that is behind":     {func(f *facts) { f.issuer.Ahead = -time.Minute }, "issuer.clock", Warning, "at least 59s apart"},
		"an issuer without sign-in":    {func(f *facts) { f.issuer.Endpoints = false }, "issuer.sign-in", Failure, "nobody can sign in"},
		"an issuer without PKCE":       {func(f *facts) { f.issuer.S256 = false }, "issuer.sign-in", Note, "S256"},
		"Kafka's password": {func(f *facts) {
			f.Settings.Kafka.SASL.Mechanism = "PLAIN"
			f.Settings.Kafka.Brokers = []string{"k:9092"}
		}, "settings", Warning, "token of kafka.sasl"},
		"Redis's password":      {func(f *facts) { f.Settings.Redis.Password = "x"; f.Settings.Redis.Addrs = []string{"r:6379"} }, "settings", Warning, "Redis"},
		"a sentinel's password": {func(f *facts) { f.Settings.Redis.SentinelPassword = "x"; f.Settings.Redis.Addrs = []string{"r"} }, "settings", Warning, "sentinels"},
		"ZooKeeper's password": {func(f *facts) {
			f.Settings.ZooKeeper.Auth = "u:p"
			f.Settings.ZooKeeper.Servers = []string{"127.0.0.1:1", "z:2181"}
		}, "settings", Warning, "zookeeper.auth"},
		"tokens in the clear": {func(f *facts) { f.Settings.HTTP.Tokens, f.Settings.HTTP.Addr = "/t", ":8080" }, "settings", Warning, "tokens and sessions"},
		"an intake for all":   {func(f *facts) { f.Settings.Intake.Topics[0].AllowedTargets = nil }, "settings", Warning, "every target"},
	} {
		t.Run(name, func(t *testing.T) {
			f := well()
			c.spoil(&f)
			for _, found := range judge(f) {
				if found.Check == c.check && found.Level == c.level {
					require.Contains(t, found.Found, c.found)
					require.True(t, found.Fix != "" || found.Level == Note, "each says its fix")
					require.NotEmpty(t, found.Where)
					return
				}
			}
			t.Fatalf("not found among %+v", judge(f))
		})
	}
}

// A password that stays on this machine is nobody else's.
func TestPasswordsOnThisMachine(t *testing.T) {
	f := well()
	f.Settings.Redis.Password, f.Settings.Redis.Addrs = "x", []string{"127.0.0.1:6379", "[::1]:6379", "localhost"}
	require.Empty(t, settings(f))
}
