package outbox

import (
	"database/sql"
	"testing"
	"time"

	_ "github.com/glebarez/go-sqlite"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/producer"
	"github.com/notyet/notyet/schemas"
)

func kafka(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(opts...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func intake(t *testing.T) []string {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, schemas.TopicIntake, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster.ListenAddrs()
}

// read returns the ids of the next n committed requests of the intake.
func read(t *testing.T, addrs []string, n int) []string {
	t.Helper()
	client := kafka(t, kgo.SeedBrokers(addrs...), kgo.ConsumeTopics(schemas.TopicIntake), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	var out []string
	for len(out) < n {
		fetches := client.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			request, err := schemas.Decode(r, schemas.Limits{})
			require.NoError(t, err)
			out = append(out, request.ID)
		})
	}
	return out
}

func reminder(id string) producer.Task {
	return producer.Task{Topic: "orders", ID: id, At: time.Now().Add(time.Hour), Value: []byte("still unpaid?")}
}

func TestARequestIsPublishedWhenItsTransactionCommits(t *testing.T) {
	addrs := intake(t)
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(t.Context(), "CREATE TABLE notyet_outbox (id INTEGER PRIMARY KEY, record BLOB NOT NULL)")
	require.NoError(t, err)
	client := kafka(t, kgo.SeedBrokers(addrs...))
	p := producer.New(client, producer.Config{})
	for _, c := range []struct {
		id     string
		commit bool
	}{{"kept", true}, {"undone", false}, {"kept, too", true}} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, ScheduleIn(t.Context(), tx, p, reminder(c.id)))
		if c.commit {
			require.NoError(t, tx.Commit())
		} else {
			require.NoError(t, tx.Rollback())
		}
	}
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.Error(t, ScheduleIn(t.Context(), tx, p, producer.Task{ID: "of no topic", Delay: time.Hour}))
	require.NoError(t, tx.Rollback())
	n, err := Relay(t.Context(), db, client)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	n, err = Relay(t.Context(), db, client)
	require.NoError(t, err)
	require.Zero(t, n, "what is acknowledged is deleted")
	require.Equal(t, []string{"kept", "kept, too"}, read(t, addrs, 2))
}

func TestARequestAndARecordAreOneTransaction(t *testing.T) {
	addrs := intake(t)
	client := kafka(t, kgo.SeedBrokers(addrs...), kgo.TransactionalID("orders"))
	p := producer.New(client, producer.Config{})
	require.NoError(t, Publish(t.Context(), client, p, &kgo.Record{Topic: "orders", Value: []byte("4711")}, reminder("first")))
	require.Error(t, Publish(t.Context(), client, p, &kgo.Record{Topic: "orders", Value: make([]byte, 8<<20)}, reminder("aborted with its order")))
	require.NoError(t, Publish(t.Context(), client, p, &kgo.Record{Topic: "orders", Value: []byte("4712")}, reminder("second")))
	require.Equal(t, []string{"first", "second"}, read(t, addrs, 2))
}
