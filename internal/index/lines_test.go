package index_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/embedded"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
)

const wakesTopic = "notyet.wakes"

// broker is a Kafka with the topic of wakes.
func broker(t *testing.T, topics ...embedded.Topic) kafka.Config {
	k, err := embedded.StartKafka(embedded.Config{Addr: "127.0.0.1:0", Topics: topics}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(k.Close)
	return kafka.Config{Brokers: []string{k.Addr()}}
}

// process is an index of one process.
func process(t *testing.T, cfg kafka.Config) *index.Database {
	return processOf(t, cfg, "5f0c1a2b00000000")
}

func processOf(t *testing.T, cfg kafka.Config, installation string) *index.Database {
	d := index.NewDatabase(nil, cfg, wakesTopic, installation, zap.NewNop())
	t.Cleanup(d.Close)
	return d
}

// heard waits until a wake of the slot is heard; it is said again and again, because nobody says when a listener has begun.
func heard(t *testing.T, wakes <-chan []index.SlotPos, by *index.Database, at index.SlotPos) {
	t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(time.Minute)
	for {
		select {
		case places := <-wakes:
			if len(places) == 1 && places[0] == at {
				return
			}
		case <-again.C:
			_ = by.Wake(t.Context(), []index.SlotPos{at}) // may fail while the topic is away
		case <-deadline:
			require.Fail(t, "nothing was heard")
		}
	}
}

func TestWakesOverATopic(t *testing.T) {
	cfg := broker(t, embedded.Topic{Name: wakesTopic, Partitions: 1})
	scanner, one, two := process(t, cfg), process(t, cfg), process(t, cfg)
	require.NoError(t, one.Ping(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	a, b := one.Wakes(ctx), two.Wakes(ctx)
	at := index.SlotPos{Slot: 3, Pos: base}
	heard(t, a, scanner, at)
	heard(t, b, scanner, at)

	// Another installation on the same topic. What it says comes first.
	require.NoError(t, processOf(t, cfg, "5f0c1a2c00000000").Wake(ctx, []index.SlotPos{{Slot: 9, Pos: base}}))

	// A slow reader gets what was said meanwhile as one.
	for i := range 100 {
		require.NoError(t, scanner.Wake(ctx, []index.SlotPos{{Slot: 5, Pos: base + int64(100-i)}, {Slot: 4, Pos: index.TimersChanged}}))
	}
	require.NoError(t, scanner.Wake(ctx, []index.SlotPos{{Slot: 6, Pos: base}}))
	lowest := map[index.SlotPos]bool{}
	for !lowest[index.SlotPos{Slot: 6, Pos: base}] {
		for _, p := range <-b {
			lowest[p] = true
		}
	}
	require.True(t, lowest[index.SlotPos{Slot: 5, Pos: base + 1}])
	require.False(t, lowest[index.SlotPos{Slot: 9, Pos: base}])
	require.True(t, lowest[index.SlotPos{Slot: 4, Pos: index.TimersChanged}])
	cancel()
	for range a { // closes
	}
	for range b {
	}
}

// Whoever may write the topic may write a batch that is small on the way and large in memory.
func TestALargeBatchMakesNobodyDeaf(t *testing.T) {
	cfg := broker(t, embedded.Topic{Name: wakesTopic, Partitions: 1})
	scanner, one := process(t, cfg), process(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	wakes := one.Wakes(ctx)
	at := index.SlotPos{Slot: 3, Pos: base}
	heard(t, wakes, scanner, at)

	big, err := kafka.New(cfg, zap.NewNop(), kgo.ProducerBatchMaxBytes(100<<20), kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer big.Close()
	require.NoError(t, big.ProduceSync(ctx, &kgo.Record{Topic: wakesTopic, Value: make([]byte, 70<<20)}).FirstErr())
	at.Slot++
	heard(t, wakes, scanner, at)
	cancel()
	for range wakes { // closes
	}
}

func TestWakesWithoutTheTopic(t *testing.T) {
	cfg := broker(t)
	d := process(t, cfg)
	require.ErrorContains(t, d.Ping(t.Context()), "run `notyet migrate`")
	at := []index.SlotPos{{Slot: 1, Pos: base}}
	require.NoError(t, d.Wake(t.Context(), at), "nobody waits for Kafka")
	require.Eventually(t, func() bool { return d.Wake(t.Context(), at) != nil }, time.Minute, 10*time.Millisecond, "a later one says what has become of it")
}

// Each of these clients has an identity of the topic in hand.
func TestWakesOverATopicThatIsMadeAnew(t *testing.T) {
	k, err := embedded.StartKafka(embedded.Config{Addr: "127.0.0.1:0", Topics: []embedded.Topic{{Name: wakesTopic, Partitions: 1}}}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(k.Close)
	cfg := kafka.Config{Brokers: []string{k.Addr()}}
	scanner, one := process(t, cfg), process(t, cfg)
	wakes := one.Wakes(t.Context())
	at := index.SlotPos{Slot: 3, Pos: base}
	heard(t, wakes, scanner, at)
	require.NoError(t, scanner.Ping(t.Context()))
	require.NoError(t, one.Ping(t.Context()))

	client, err := kafka.New(cfg, zap.NewNop())
	require.NoError(t, err)
	defer client.Close()
	admin := kadm.NewClient(client)
	_, err = admin.DeleteTopic(t.Context(), wakesTopic)
	require.NoError(t, err)
	require.Error(t, one.Ping(t.Context()))
	_, err = admin.CreateTopic(t.Context(), 1, 1, nil, wakesTopic)
	require.NoError(t, err)
	at.Slot++
	heard(t, wakes, scanner, at)
	require.Eventually(t, func() bool { return one.Ping(t.Context()) == nil }, time.Minute, 10*time.Millisecond)
}
