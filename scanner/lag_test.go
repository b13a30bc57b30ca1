package scanner

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

// The lag is that of the database behind Kafka, also while the database is away, and is not shown
// where Kafka does not say where the intake ends.
func TestLag(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	lagging := func() int {
		s.lag.look(t.Context())
		return gauged(s.lag.gauge.WithLabelValues(schemas.TopicIntake, "0"))
	}
	f.publish(asksIn("a", 6, 0)...)
	f.eventually("all is stored", func() bool { return f.tasks() == 6 })
	f.eventually("and it is known", func() bool { return lagging() == 0 })

	s.parts.mu.Lock() // what is stored is known to be less
	src := *s.parts.sources[partitionKey{schemas.TopicIntake, 0}]
	src.Next -= 4
	s.parts.sources[partitionKey{schemas.TopicIntake, 0}] = &src
	s.parts.mu.Unlock()
	require.Equal(t, 4, lagging())

	s.parts.drop(map[string][]int32{schemas.TopicIntake: {0}})
	require.Zero(t, lagging(), "another scanner has it now")

	other := *s.lag
	other.topics = []string{"no such topic"}
	s.lag.gauge.WithLabelValues("old", "0").Set(7)
	other.look(t.Context())
	require.Zero(t, gauged(s.lag.gauge.WithLabelValues("old", "0")), "what is not known is not shown")
}

// Nothing of a partition is stored: its lag counts from where it began to be read.
func TestLagOfANewPartition(t *testing.T) {
	p := newPartitions(nil)
	key := partitionKey{"in", 3}
	p.sources[key] = nil
	require.Empty(t, p.storedUpTo())
	p.begun(key, 17)
	require.Equal(t, map[partitionKey]int64{key: 17}, p.storedUpTo())
}
