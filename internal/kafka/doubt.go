package kafka

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/loop"
)

// errMaybeStored wraps a refusal that need not be the first answer to its record.
var errMaybeStored = errors.New("an earlier try may have been stored")

// LostConnections tells a first answer from one to a client's own second try. The client tries again by itself when a connection
// ends, and when the broker says that its replicas lag: it may have stored the record, and refuse it now. Give the client its Opts.
type LostConnections struct{ n atomic.Int64 }

// Opts has a client tell what it tries again.
func (l *LostConnections) Opts() []kgo.Opt {
	return []kgo.Opt{kgo.WithHooks(l), kgo.RetryBackoffFn(l.pause)}
}

// OnBrokerDisconnect implements kgo.HookBrokerDisconnect.
func (l *LostConnections) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) { l.n.Add(1) }

// pause is how long the client rests before it tries again: as long as the library's own. It asks after a record was stored in too few
// replicas, or not in time, and not before it looks for a topic or for another leader. So what a leader stored just before it stopped being
// one is not in doubt (docs/known-gaps.md).
func (l *LostConnections) pause(failures int) time.Duration {
	l.n.Add(1)
	const longest = 5 * time.Second
	long := loop.Pause(failures, 250*time.Millisecond, 8*time.Second)
	return min(long*4/5+rand.N(long*2/5), longest)
}

// Count is how many connections have been lost, and how often the client has paused. Note it before a record is produced.
func (l *LostConnections) Count() int64 { return l.n.Load() }

// Judge returns the error of a record for which NotSent holds only if nothing has happened since then that has it tried again.
func (l *LostConnections) Judge(err error, before int64) error {
	if err == nil || !refused(err) || l.Count() == before {
		return err
	}
	return fmt.Errorf("%w (%w)", err, errMaybeStored)
}
