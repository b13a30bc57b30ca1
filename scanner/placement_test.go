package scanner

import (
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
)

// Schedules and cancels that come through one partitioner keep their order. Where librdkafka's own
// puts keys elsewhere, the metric counts them, and not_found says what to set.
func TestRequestsElsewhereAreTold(t *testing.T) {
	const n = 200
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.eventually("the number of partitions is known", func() bool { _, known := s.worker.decoder.placement.partitions.Load(schemas.TopicIntake); return known })
	elsewhere := func() int { return counted(s.worker.metrics.elsewhere.WithLabelValues(schemas.TopicIntake)) }
	murmur := func(key string) int32 { return kafka.PartitionOf([]byte(key), intakeParts) }
	librdkafka := func(key string) int32 { return int32(crc32.ChecksumIEEE([]byte(key)) % intakeParts) }
	keyed := func(id string, partition func(string) int32, headers ...string) *kgo.Record {
		r := record(schemas.TopicIntake, partition(id), append(headers, schemas.HeaderTopic, "orders", schemas.HeaderID, id)...)
		r.Key = []byte(id)
		return r
	}
	cancel := func(id string) *kgo.Record { return keyed(id, murmur, schemas.HeaderOp, "cancel") }
	var pairs []*kgo.Record
	for i := range n {
		id := fmt.Sprint("pair", i)
		pairs = append(pairs, keyed(id, murmur, schemas.HeaderDelay, "1h"), cancel(id))
	}
	keyless := ask("keyless", (murmur("keyless")+1)%intakeParts)
	keyless.Key = nil
	f.publish(append(pairs, keyless, cancel("unknown"))...)
	events := f.events(func(e []schemas.Event) bool {
		return len(byID(e, schemas.StateCancelled)) == n && len(byID(e, schemas.StateNotFound)) == 1
	})
	require.Equal(t, "no task of this topic and id is known", reasonOf(events, "unknown"))
	require.Zero(t, elsewhere())

	var foreign []*kgo.Record
	for i := range n {
		if id := fmt.Sprint("foreign", i); murmur(id) != librdkafka(id) {
			foreign = append(foreign, keyed(id, librdkafka, schemas.HeaderDelay, "1h"))
		}
	}
	require.Greater(t, len(foreign), n/2)
	f.publish(foreign...)
	f.eventually("all are counted", func() bool { return elsewhere() >= len(foreign) })
	f.publish(cancel("neither"))
	events = f.events(func(e []schemas.Event) bool { return len(byID(e, schemas.StateNotFound)) == 2 })
	require.Contains(t, reasonOf(events, "neither"), "no task of this topic and id is known: its schedule may follow")
	require.Contains(t, reasonOf(events, "neither"), "murmur2_random")
	keyless = record(schemas.TopicIntake, (murmur("alone")+1)%intakeParts, schemas.HeaderTopic, "orders", schemas.HeaderID, "alone", schemas.HeaderOp, "cancel")
	keyless.Key = nil
	require.True(t, kafka.Elsewhere(keyless, intakeParts), "without a key it goes by the id")
}

func reasonOf(events []schemas.Event, id string) string {
	for _, e := range events {
		if e.ID == id {
			return e.Reason
		}
	}
	return ""
}
