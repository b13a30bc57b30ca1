package service

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
)

// Whoever gets no answer, or one that says nothing, works on, although the group has a newer copy.
func TestOnlyANewerNameEndsAService(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "notyet.intake", "notyet.reports", "notyet.cancels"))
	require.NoError(t, err)
	defer cluster.Close()
	st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + t.TempDir() + "/notyet.db"}, zap.NewNop())
	require.NoError(t, err)
	defer func() { _ = st.Close() }()
	require.NoError(t, st.Migrate(t.Context(), 1))
	cfg, err := config.Load(config.Sources{Environ: []string{}})
	require.NoError(t, err)
	e := &Engine{ctx: t.Context(), cfg: cfg, log: zap.NewNop(), store: st, kafka: kafka.Config{Brokers: cluster.ListenAddrs()}, installation: "shop"}
	client, err := kafka.New(e.kafka, e.log)
	require.NoError(t, err)
	defer client.Close()
	compare := func() error {
		var err error
		for range 5 { // the machine may stand still for longer than a look may take
			began := time.Now()
			err = e.named(client).Compare(t.Context())
			require.Less(t, time.Since(began), 30*time.Second)
			if !errors.Is(err, context.DeadlineExceeded) {
				break
			}
		}
		return err
	}
	claim := func(c kafka.Claim) {
		t.Helper()
		require.NoError(t, kafka.TakeGroup(t.Context(), client, cfg.Scanner.Group, c, cfg.ReadTopics()...))
	}
	require.NoError(t, compare(), "there is no group")
	newer := kafka.Claim{Installation: "shop", Copy: kafka.NewCopy("ann")}
	claim(newer)
	require.ErrorIs(t, compare(), kafka.ErrOlderCopy)
	for name, fault := range map[string]kfake.Fault{
		"its coordinator is away":    {Keys: []kmsg.Key{kmsg.FindCoordinator, kmsg.OffsetFetch}, Err: kerr.CoordinatorNotAvailable, Count: -1},
		"its coordinator loads":      {Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.CoordinatorLoadInProgress, Count: -1},
		"no right to see the group":  {Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.GroupAuthorizationFailed, Count: -1},
		"no right to see the topics": {Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.TopicAuthorizationFailed, Count: -1},
	} {
		f := cluster.Fault(fault)
		err := compare()
		require.Error(t, err, name)
		require.NotErrorIs(t, err, kafka.ErrOlderCopy, name)
		f.Remove()
	}
	claim(kafka.Claim{Installation: "another", Copy: newer.Copy})
	require.NoError(t, compare(), "a setting that leads to another installation's group")
	claim(newer)

	adm := admin.New(st)
	require.NoError(t, adm.NameCopy(t.Context(), "", "of a later version"))
	err = compare()
	require.ErrorContains(t, err, "is no name of a copy")
	require.NotErrorIs(t, err, kafka.ErrOlderCopy)
	require.NoError(t, adm.NameCopy(t.Context(), "of a later version", newer.Copy.String()))
	require.ErrorIs(t, compare(), kafka.ErrOlderCopy)
	require.ErrorContains(t, compare(), `began with copy "", and mysql.dsn leads to copy "`+newer.Copy.String()+`" now: start it again`)
	e.copy = newer.Copy.String()
	require.NoError(t, compare())
	require.NoError(t, st.Close())
	require.NotErrorIs(t, compare(), kafka.ErrOlderCopy)
}
