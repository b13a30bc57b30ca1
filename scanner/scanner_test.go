package scanner

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/schemas"
)

// A broker answers at once while one of the partitions fails that it is asked for.
func TestAFailingPartitionIsNotAskedForWithoutAPause(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(asksIn("a", 2, 0)...)
	f.eventually("stored", func() bool { return f.tasks() == 2 })
	asked := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
	failing := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: schemas.TopicIntake, Partitions: []int32{0}, Err: kerr.KafkaStorageError, Count: -1})
	f.publish(asksIn("b", 1, 1)...)
	f.eventually("the others go on", func() bool { return f.tasks() == 3 })
	before := asked.Hits()
	f.eventually("it is told", func() bool { return counted(s.worker.metrics.fetchErrors) >= 2 })
	require.Less(t, asked.Hits()-before, 1000)
	f.eventually("it says so", func() bool { // a process that stood still joins the group again first
		err := s.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), "fetching "+schemas.TopicIntake+"/0: ")
	})
	failing.Remove()
	f.publish(asksIn("c", 1, 0)...)
	f.eventually("it goes on too", func() bool { return f.tasks() == 4 })
	f.eventually("it is ready", func() bool { return s.Ready(t.Context()) == nil })
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
