package scanner

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store/intake"
)

func TestAPartitionThatStandsMakesTheScannerUnready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s standing
		covered := []coverage{{reading: &reading{key: partitionKey{"in", 3}}, src: intake.Source{Next: 12}, first: 10}}
		s.begin(covered)
		time.Sleep(standAfter - time.Millisecond)
		require.NoError(t, s.ready())
		time.Sleep(time.Millisecond)
		require.EqualError(t, s.ready(), "in/3 stands at offset 10: its batch has been tried for 1m0s, the last error: the database has not answered")
		s.failed(covered, errors.New("disk full"))
		require.ErrorContains(t, s.ready(), "disk full")
		s.end(covered)
		require.NoError(t, s.ready())
	})
}
