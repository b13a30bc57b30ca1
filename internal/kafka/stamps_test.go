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
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

// producers are those that deliver.
func producers(cfg kafka.Config, patience time.Duration) map[string]func() (*kgo.Client, error) {
	return map[string]func() (*kgo.Client, error){
		"shared": func() (*kgo.Client, error) {
			return kafka.NewProducer(cfg, zap.NewNop(), kafka.GiveUpAfter(patience)...)
		},
		"solo": func() (*kgo.Client, error) {
			return kafka.NewSoloProducer(cfg, zap.NewNop(), kafka.GiveUpAfter(patience)...)
		},
		"without ends": func() (*kgo.Client, error) { return kafka.NewSoloProducer(cfg, zap.NewNop()) },
	}
}

// TestRecordsAreStampedByTheGivenClock: whatever that clock says, a record is sent, carries its time, and is stamped anew when another
// producer gets it.
func TestRecordsAreStampedByTheGivenClock(t *testing.T) {
	cluster, cfg := startKafka(t, kfake.SeedTopics(1, "orders"))
	reader := newClient(t, kafka.NewReader, cfg, kgo.ConsumeTopics("orders"))
	for _, off := range []time.Duration{0, -2 * time.Hour, 2 * time.Hour} {
		cfg.Now = func() time.Time { return time.Now().Add(off) }
		for name, make := range producers(cfg, 30*time.Second) {
			t.Run(fmt.Sprint(name, " ", off), func(t *testing.T) {
				client, err := make()
				require.NoError(t, err)
				defer client.Close()
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				r := &kgo.Record{Topic: "orders", Timestamp: time.UnixMilli(1), Context: ended} // as an earlier producer left it
				fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas})
				begin := cfg.Now().Truncate(time.Millisecond)
				require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
				require.EqualValues(t, 1, fault.Hits(), "it is tried again")
				got := reader.PollFetches(t.Context()).Records()
				require.Len(t, got, 1)
				require.False(t, got[0].Timestamp.Before(begin))
				require.False(t, got[0].Timestamp.After(cfg.Now()))
			})
		}
	}
}

// TestGiveUpAfterGoesByTheMonotonicClock: a clock that is wrong or steps changes nothing about how long a producer tries.
func TestGiveUpAfterGoesByTheMonotonicClock(t *testing.T) {
	const wait = 3 * time.Second
	for _, off := range []time.Duration{0, -2 * time.Hour, 2 * time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			cluster, cfg := startKafka(t, kfake.SeedTopics(1, "orders", "others"))
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.NotEnoughReplicas, Count: -1})
			cfg.Now = func() time.Time { return time.Now().Add(off) }
			client := newClient(t, kafka.NewProducer, cfg, kafka.GiveUpAfter(wait)...)
			require.NoError(t, produce(t, client, "others", nil))
			begin := time.Now()
			err := produce(t, client, "orders", nil)
			require.ErrorIs(t, err, kgo.ErrRecordTimeout)
			require.False(t, kafka.Permanent(err) || kafka.NotSent(err))
			require.GreaterOrEqual(t, time.Since(begin), wait)
			require.NoError(t, produce(t, client, "others", nil), "other partitions are not concerned")
		})
	}
}

// TestClockDiffersIsTheWorldsFault asks a broker with a topic as Kafka makes it by default.
func TestClockDiffersIsTheWorldsFault(t *testing.T) {
	brokers := os.Getenv("NOTYET_KAFKA_BROKERS")
	if brokers == "" {
		t.Skip("NOTYET_KAFKA_BROKERS is not set")
	}
	cfg := kafka.Config{Brokers: strings.Split(brokers, ",")}
	topic := fmt.Sprintf("test-%x", rand.Uint64())
	admin := kadm.NewClient(newClient(t, kafka.New, cfg))
	_, err := admin.CreateTopic(t.Context(), 1, 1, nil, topic)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = admin.DeleteTopic(context.Background(), topic) })
	for off, taken := range map[time.Duration]bool{0: true, 59 * time.Minute: true, 61 * time.Minute: false, -2 * time.Hour: true} {
		cfg.Now = func() time.Time { return time.Now().Add(off) }
		for name, make := range producers(cfg, 30*time.Second) {
			client, err := make()
			require.NoError(t, err)
			err = produce(t, client, topic, []byte("x"))
			client.Close()
			require.Equal(t, taken, err == nil, "%s, clock off by %v: %v", name, off, err)
			require.Equal(t, !taken, kafka.ClockDiffers(err))
			require.False(t, kafka.Permanent(err))
			require.Equal(t, !taken, kafka.NotSent(err))
		}
	}
}
