package scanner

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What Kafka did not take is committed with the next, unless the partition is further or gone.
func TestAFailedCommitIsRepeated(t *testing.T) {
	s, _ := inMemory(t, Config{})
	p := s.parts
	for part := range int32(2) {
		p.sources[partitionKey{"in", part}] = nil
	}
	p.committed["in"] = map[int32]kgo.EpochOffset{1: {Offset: 8}}
	p.uncommitted(map[string]map[int32]kgo.EpochOffset{"in": {0: {Offset: 5}, 1: {Offset: 5}, 2: {Offset: 5}}})
	require.Equal(t, map[int32]kgo.EpochOffset{0: {Offset: 5}, 1: {Offset: 8}}, p.committed["in"])
}

// A Kafka that never answers the farewell must not keep the scanner from ending.
func TestAScannerEndsWithoutAnAnswerToItsLeave(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(ask("a", 0))
	f.eventually("stored", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 1 })
	never := make(chan struct{})
	defer close(never)
	f.cluster.ControlKey(int16(kmsg.LeaveGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		f.cluster.SleepControl(func() { <-never })
		return nil, nil, false
	})
	s.end()
}
