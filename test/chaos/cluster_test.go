package chaos

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/test/chaos/proxy"
)

func TestFaultsFollowTheForm(t *testing.T) {
	kinds := func(form Form) (out []string) {
		all, err := faultsNamed(nil, serverNames, form)
		require.NoError(t, err)
		for _, f := range all {
			out = append(out, f.kind)
		}
		return out
	}
	require.NotContains(t, kinds(Single), "mysql-promoted")
	require.Contains(t, kinds(Single), "mysql-forgets")
	require.Contains(t, kinds(Clustered), "mysql-promoted")
	require.NotContains(t, kinds(Clustered), "mysql-forgets")
	require.Contains(t, kinds(Sentinels), "broker-killed")
	require.NotContains(t, kinds(Single), "backup-drill", "it is a run of its own")
	_, err := faultsNamed([]string{"backup-drill"}, serverNames, Single)
	require.NoError(t, err)
	_, err = faultsNamed([]string{"redis-failed-over"}, serverNames, Single)
	require.ErrorContains(t, err, "redis-failed-over does not exist in this form")
	_, err = faultsNamed([]string{"zookeeper-quorum-lost"}, smallServers, Clustered)
	require.Error(t, err)
}

func TestAddressesOfAForm(t *testing.T) {
	one := NewServers("/root", t.TempDir(), 21000, Single, 1)
	require.Equal(t, "127.0.0.1:21092", one.addr(kafkaServer))
	require.Equal(t, []string{"127.0.0.1:21379"}, one.targets(redisServer))
	many := NewServers("/root", t.TempDir(), 21000, Sentinels, 1)
	require.Equal(t, "127.0.0.1:21092,127.0.0.1:21102,127.0.0.1:21112", many.addr(kafkaServer))
	require.Equal(t, "127.0.0.1:21102", many.addr("kafka-2"))
	require.Equal(t, "127.0.0.1:21384,127.0.0.1:21394,127.0.0.1:21404", many.addr(redisServer))
	require.Equal(t, []string{"127.0.0.1:21384", "127.0.0.1:21394", "127.0.0.1:21404", "127.0.0.1:21379", "127.0.0.1:21389"}, many.targets(redisServer))
	require.Equal(t, "127.0.0.1:21306", many.addr(mysqlServer))
	require.NoError(t, os.WriteFile(many.dir+"/primary", []byte("mariadb-2\n"), 0o644))
	require.Equal(t, "127.0.0.1:21316", many.addr(mysqlServer))
}

// TestIndexComesThroughTheProxy: the product's client finds all nodes of a real Redis Cluster, or the master of real sentinels,
// and none of them past the proxy.
func TestIndexComesThroughTheProxy(t *testing.T) {
	addrs, cluster, master := os.Getenv("NOTYET_REDIS_ADDRS"), os.Getenv("NOTYET_REDIS_CLUSTER") == "true", os.Getenv("NOTYET_REDIS_MASTER")
	if !cluster && master == "" {
		t.Skip("NOTYET_REDIS_CLUSTER and NOTYET_REDIS_MASTER are not set: run scripts/servers up --cluster and evaluate scripts/servers env --cluster")
	}
	targets := strings.Split(addrs, ",")
	if master != "" { // the servers that the sentinels watch
		for _, at := range slices.Clone(targets) {
			n, err := strconv.Atoi(at[strings.LastIndexByte(at, ':')+1:])
			require.NoError(t, err)
			targets = append(targets, "127.0.0.1:"+strconv.Itoa(n-5))
		}
	}
	p, err := proxy.StartRedis(targets...)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	x, err := index.New(index.Config{Addrs: strings.Split(p.Via(addrs), ","), Cluster: cluster, MasterName: master, Prefix: "proxy" + strconv.FormatUint(rand.Uint64(), 36)}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(x.Close)
	var all []index.Entry
	for slot := range 16 {
		all = append(all, index.Entry{Slot: slot, Pos: time.Now().UnixMilli(), Seq: 1<<48 | int64(slot)})
	}
	require.NoError(t, x.Add(t.Context(), all))
	for _, e := range all {
		found, err := x.Members(t.Context(), e.Slot)
		require.NoError(t, err)
		require.Equal(t, []index.Entry{e}, found)
	}
	require.NoError(t, x.Remove(t.Context(), all))
	p.Affected()
	p.Cut()
	for _, e := range all {
		require.Error(t, x.Add(t.Context(), []index.Entry{e}), "slot %d is reached past the proxy", e.Slot)
	}
	require.Positive(t, p.Affected())
}
