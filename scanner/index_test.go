package scanner

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store"
)

// An index that does not answer must not hold a worker, however much is stored meanwhile.
func TestAnIndexThatDoesNotAnswerHoldsNobody(t *testing.T) {
	s, _ := inMemory(t, Config{})
	for range cap(s.indexing) + 3 {
		s.applied(store.Applied{Added: make([]store.Place, 2)})
	}
	require.Equal(t, 6, counted(s.metrics.indexDropped))
}
