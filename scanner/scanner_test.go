package scanner

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

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
