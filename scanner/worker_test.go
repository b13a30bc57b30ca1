package scanner

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
)

// A transaction is bounded by what its records weigh too, and loses none of them.
func TestATransactionIsBoundedByBytes(t *testing.T) {
	s, st := inMemory(t, Config{})
	key := partitionKey{schemas.TopicIntake, 0}
	src, err := intake.New(st).Source(t.Context(), key.topic, [16]byte{1}, 0, 0)
	require.NoError(t, err)
	s.parts.sources[key] = &src
	s.parts.begun(key, 0)
	r := s.parts.readings[key]
	stretches := []stretch{asksAt(r, 0, 30), asksAt(r, 30, 1)}
	for _, rec := range stretches[0].records {
		rec.Value = make([]byte, 1<<20)
	}
	batch, covered, rest, err := s.worker.assemble(t.Context(), stretches, 2000, refusedRecords{})
	require.NoError(t, err)
	require.Less(t, len(batch.Changes), 1+transactionBytes>>20)
	require.NotEmpty(t, batch.Changes)
	require.Len(t, covered, 1)
	require.Len(t, rest, 2)
	require.Equal(t, covered[0].src.Next, rest[0].from, "the rest begins where the batch ends")
	require.EqualValues(t, 30, rest[1].from)

	heavy := asksAt(r, 0, 2)
	heavy.records[0].Value = make([]byte, 2*transactionBytes)
	batch, _, rest, err = s.worker.assemble(t.Context(), []stretch{heavy}, 2000, refusedRecords{})
	require.NoError(t, err)
	require.Len(t, batch.Changes, 1, "one record is taken however heavy")
	require.Len(t, rest, 1)
}
