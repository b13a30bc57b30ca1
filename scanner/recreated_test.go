package scanner

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
)

func TestARecreatedIntakeIsReadFromItsStart(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(ask("a", 0), ask("b", 0), ask("c", 0))
	f.eventually("stored", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 3 })
	old, err := intake.New(f.store).Sources(t.Context())
	require.NoError(t, err)
	admin := kadm.NewClient(f.client)
	_, err = admin.DeleteTopic(t.Context(), schemas.TopicIntake)
	require.NoError(t, err)
	_, err = admin.CreateTopic(t.Context(), intakeParts, 1, nil, schemas.TopicIntake)
	require.NoError(t, err)
	p, err := kafka.NewProducer(f.kafka, zap.NewNop(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer p.Close()
	for i := range 6 {
		require.NoError(t, p.ProduceSync(t.Context(), ask(fmt.Sprint("n", i), 0)).FirstErr())
	}
	require.ErrorContains(t, s.Ready(t.Context()), "created again")
	f.eventually("the new ones are stored", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 9 })
	f.eventually("it is ready: fetches of the old topic failed last a while ago", func() bool { return s.Ready(t.Context()) == nil })
	for _, src := range old {
		require.Contains(t, s.parts.ids(), src.ID, "somebody still looks after the pending events of the old topic")
	}
}

// Partitions that are assigned between the recreation and the look at it are read of the old topic, because the client knows no other.
func TestARecreatedIntakeIsNoticedAfterAnAssignment(t *testing.T) {
	p := newPartitions(zap.NewNop())
	old, now := map[string][16]byte{"in": {1}}, map[string][16]byte{"in": {2}}
	p.assign(map[string]map[int32]kgo.Offset{"in": {0: {}}}, nil, old, nil)
	p.assign(map[string]map[int32]kgo.Offset{"in": {1: {}}}, nil, now, []intake.Source{{ID: 17, Topic: "in", TopicID: [16]byte{1}, Partition: 1, Next: 5}})
	require.Equal(t, []string{"in"}, p.otherTopics(now))
	src, of := p.source(partitionKey{"in", 1})
	require.Equal(t, kafka.Restarts{TopicID: [16]byte{1}}, of)
	require.EqualValues(t, 5, src.Next)
	p.forget([]string{"in"})
	p.assign(map[string]map[int32]kgo.Offset{"in": {0: {}}}, nil, now, nil)
	require.Empty(t, p.otherTopics(now))
}
