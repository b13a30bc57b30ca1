package doctor

import (
	"crypto/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/test/freeport"
	"github.com/notyet/notyet/test/mysqltest"
)

// onServers is a Config for the real servers, with topics, a database and a root of its own.
func onServers(t *testing.T, change func(*kafka.TopicSpec)) Config {
	t.Helper()
	for _, name := range []string{"NOTYET_KAFKA_BROKERS", "NOTYET_MYSQL_DSN", "NOTYET_REDIS_ADDRS", "NOTYET_ZOOKEEPER_SERVERS"} {
		if os.Getenv(name) == "" {
			t.Skip(name + " is not set: this machine runs no servers")
		}
	}
	own := "doctor-" + strings.ToLower(rand.Text())
	settings := config.Default()
	settings.Intake.Topics[0].Topic, settings.Intake.Topics[0].MaxValueBytes = own+".intake", 1<<20
	settings.Intake.Topics[0].AllowedTargets = []string{"*"}
	settings.Reports.Topic, settings.Results.Topic = own+".reports", own+".results"
	settings.Scanner.Group, settings.SendLog.Dir = own, t.TempDir()
	kcfg := kafka.Config{Brokers: strings.Split(os.Getenv("NOTYET_KAFKA_BROKERS"), ",")}
	client, err := kafka.New(kcfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	var specs []kafka.TopicSpec
	for _, name := range settings.OwnTopics() {
		spec := kafka.TopicSpec{Name: name, Partitions: 1, Configs: map[string]string{"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete", "retention.ms": "1209600000", "max.message.bytes": "2000000"}}
		change(&spec)
		specs = append(specs, spec)
	}
	_, err = kafka.EnsureTopics(t.Context(), client, specs)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = kadm.NewClient(client).DeleteTopics(t.Context(), settings.OwnTopics()...) })
	scfg := store.Config{DSN: mysqltest.Fresh(t)}
	st, err := store.Open(t.Context(), scfg, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, st.Migrate(t.Context(), 4))
	require.NoError(t, st.Close())
	return Config{
		Settings: &settings, Kafka: &kcfg, Store: &scfg, Disk: true, Version: "v1", Patience: 30 * time.Second,
		Index: &index.Config{
			Addrs: strings.Split(os.Getenv("NOTYET_REDIS_ADDRS"), ","), Prefix: own,
			Cluster: os.Getenv("NOTYET_REDIS_CLUSTER") == "true", MasterName: os.Getenv("NOTYET_REDIS_MASTER"),
		},
		Election: &election.Config{Servers: strings.Split(os.Getenv("NOTYET_ZOOKEEPER_SERVERS"), ","), Root: "/" + own},
	}
}

// worse returns the worst level of each check that is not well.
func worse(all []Finding) map[string]Level {
	out := map[string]Level{}
	for _, f := range all {
		if _, known := out[f.Check]; !known && (f.Level == Failure || f.Level == Warning) { // the worst come first
			out[f.Check] = f.Level
		}
	}
	return out
}

func TestRealServersThatAreWell(t *testing.T) {
	cfg := onServers(t, func(*kafka.TopicSpec) {})
	all := Look(t.Context(), cfg, zap.NewNop())
	found := worse(all)
	delete(found, "sendlog.disk")
	require.Equal(t, map[string]Level{"kafka.copies": Warning, "services": Warning}, found, "one broker, and nothing runs: %+v", all)
	require.Equal(t, Warning, Worst(all))
	for _, f := range all {
		require.NotContains(t, f.Found+f.Where, "notyet:notyet", "no password is shown")
	}
}

func TestRealServersThatAreNot(t *testing.T) {
	cfg := onServers(t, func(s *kafka.TopicSpec) {
		s.Configs["cleanup.policy"], s.Configs["message.timestamp.type"], s.Configs["retention.ms"] = "compact,delete", "CreateTime", "60000"
	})
	cfg.Targets = []string{"doctor-no-such-target"}
	st := *cfg.Store
	st.DSN = strings.Replace(st.DSN, ":", ":wrong", 1)
	cfg.Store = &st
	var all []Finding
	var found map[string]Level
	require.Eventually(t, func() bool { // a broker hears of a topic's settings from its controller
		all = Look(t.Context(), cfg, zap.NewNop())
		found = worse(all)
		return found["kafka.cleanup"] == Failure
	}, time.Minute, 100*time.Millisecond, "%+v", &all)
	for check, level := range map[string]Level{
		"mysql.reachable": Failure, "kafka.cleanup": Failure, "kafka.timestamps": Warning, "kafka.retention": Warning, "kafka.topics": Warning,
	} {
		require.Equal(t, level, found[check], check)
	}
	require.Equal(t, Failure, all[0].Level, "the worst comes first")
	require.NotContains(t, all[0].Found, "wrong")
}

// A port that takes connections and says nothing costs the time of one, and one that takes none costs nothing.
func TestServersThatSayNothing(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	addr := silent.Addr().String()
	settings := config.Default()
	settings.Intake.Topics[0].AllowedTargets = []string{"*"}
	cfg := Config{
		Settings: &settings, Patience: 300 * time.Millisecond, Store: &store.Config{DSN: "u:geheim@tcp(" + addr + ")/notyet"}, Kafka: &kafka.Config{Brokers: []string{addr}},
		Index: &index.Config{Addrs: []string{addr}}, Election: &election.Config{Servers: []string{addr}, Root: "/notyet"},
	}
	const most = 10 * time.Second
	var all []Finding
	fastest := time.Hour
	for tries := 0; tries < 3 && fastest >= most; tries++ { // a machine may stand still
		began := time.Now()
		all = Look(t.Context(), cfg, zap.NewNop())
		fastest = min(fastest, time.Since(began))
	}
	require.Less(t, fastest, most)
	found := worse(all)
	for _, name := range []string{"mysql", "kafka", "redis", "zookeeper"} {
		require.Equal(t, Failure, found[name+".reachable"], name)
	}
	require.Len(t, all, 4, "what did not answer is not judged")
	for _, f := range all {
		require.NotEmpty(t, f.Fix)
		require.NotContains(t, f.Found, "geheim")
	}
}

// A client of another partitioner is found by where its requests are.
func TestRequestsElsewhere(t *testing.T) {
	settings := config.Default()
	name := settings.Intake.Topics[0].Topic
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, settings.OwnTopics()...))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cfg := Config{Settings: &settings, Kafka: &kafka.Config{Brokers: cluster.ListenAddrs()}, Patience: time.Minute}
	client, err := kafka.NewProducer(*cfg.Kafka, zap.NewNop(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	publish := func(partition int32) {
		r := &kgo.Record{Topic: name, Partition: partition, Key: []byte("customer-12"), Headers: []kgo.RecordHeader{{Key: schemas.HeaderID, Value: []byte("4711")}}}
		require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
	}
	order := func() (level Level, text string) {
		for _, f := range Look(t.Context(), cfg, zap.NewNop()) {
			if f.Check == "kafka.order" {
				return f.Level, f.Found
			}
		}
		return OK, ""
	}
	right := kafka.PartitionOf([]byte("customer-12"), 4)
	publish(right)
	level, text := order()
	require.Equal(t, OK, level, text)
	for range recentRequests + 1 {
		publish((right + 1) % 4)
	}
	level, text = order()
	require.Equal(t, Warning, level)
	require.Contains(t, text, "of its newest 11 requests, 10 are in another partition")
}

// A MariaDB that may forget its last commits is named with what to set.
func TestADatabaseThatForgets(t *testing.T) {
	if os.Getenv("NOTYET_MYSQL_DSN") == "" {
		t.Skip("NOTYET_MYSQL_DSN is not set: this machine runs no databases")
	}
	for _, program := range []string{"mariadbd", "mariadb-install-db"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	settings := config.Default()
	settings.Intake.Topics[0].AllowedTargets = []string{"*"}
	cfg := Config{Settings: &settings, Running: true, Store: &store.Config{DSN: "notyet:geheim@tcp(127.0.0.1:" + forgetfulMariaDB(t) + ")/notyet"}}
	var all []Finding
	require.Eventually(t, func() bool { all = Look(t.Context(), cfg, zap.NewNop()); return len(all) > 1 }, 2*time.Minute, 50*time.Millisecond)
	var text strings.Builder
	for _, f := range all {
		if f.Check == "mysql.durable" {
			require.Equal(t, Warning, f.Level)
			text.WriteString(f.Found + " " + f.Fix + "\n")
		}
	}
	for _, want := range []string{"innodb_flush_log_at_trx_commit is 2", "innodb_flush_log_at_trx_commit = 1", "sync_binlog is 0", "innodb_flush_method is nosync"} {
		require.Contains(t, text.String(), want)
	}
	require.Equal(t, Failure, worse(all)["mysql.schema"], "it has no tables either")
}

func forgetfulMariaDB(t *testing.T) (port string) {
	home := t.TempDir()
	options := []string{"--no-defaults", "--datadir=" + filepath.Join(home, "data"), "--user=" + os.Getenv("USER"), "--tmpdir=" + home, "--innodb-flush-method=nosync"}
	if os.Geteuid() == 0 {
		options[2] = "--user=root"
	}
	out, err := exec.CommandContext(t.Context(), "mariadb-install-db", append(options, "--auth-root-authentication-method=normal", "--skip-test-db")...).CombinedOutput()
	require.NoError(t, err, string(out))
	init := filepath.Join(home, "init.sql")
	require.NoError(t, os.WriteFile(init, []byte("CREATE DATABASE IF NOT EXISTS notyet;\nCREATE USER 'notyet'@'%' IDENTIFIED BY 'geheim';\nGRANT ALL ON notyet.* TO 'notyet'@'%';\n"), 0o600))
	addr, err := freeport.Addr()
	require.NoError(t, err)
	_, port, _ = net.SplitHostPort(addr)
	cmd := exec.CommandContext(t.Context(), "mariadbd", append(options, "--init-file="+init, "--socket=m.sock", "--bind-address=127.0.0.1", "--port="+port,
		"--innodb-flush-log-at-trx-commit=2", "--log-bin=log", "--sync-binlog=0", "--innodb-buffer-pool-size=16M")...)
	cmd.Dir = home
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return port
}
