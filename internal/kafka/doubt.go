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

// errMaybeStored wraps a refusal that may not be the record's first answer.
var errMaybeStored = errors.New("an earlier try may have been stored")

// LostConnections tells a first answer from one to a client's own second try. The client tries
// again by itself when a connection ends, and when the broker's replicas lag: the broker may have
// stored the record, and refuse it now. Give the client the Opts.
type LostConnections struct{ n atomic.Int64 }

// Opts lets the client report its retries.
func (l *LostConnections) Opts() []kgo.Opt {
	return []kgo.Opt{kgo.WithHooks(l), kgo.RetryBackoffFn(l.pause)}
}

// OnBrokerDisconnect implements kgo.HookBrokerDisconnect.
func (l *LostConnections) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) { l.n.Add(1) }

// pause is the client's rest before a retry: as long as the library's own. The client asks after a
// record was stored in too few replicas, or not in time, and not before a look for a topic or
// another leader. So a record stored by a leader just before its end is not in doubt
// (docs/known-gaps.md).
func (l *LostConnections) pause(failures int) time.Duration {
	l.n.Add(1)
	const longest = 5 * time.Second
	long := loop.Pause(failures, 250*time.Millisecond, 8*time.Second)
	return min(long*4/5+rand.N(long*2/5), longest)
}

// Count is how many connections have been lost, and how often the client has paused. Note the count
// before a record is produced.
func (l *LostConnections) Count() int64 { return l.n.Load() }

// Judge returns a record's error. NotSent holds for it only without a retry since before.
func (l *LostConnections) Judge(err error, before int64) error {
	if err == nil || !refused(err) || l.Count() == before {
		return err
	}
	return fmt.Errorf("%w (%w)", err, errMaybeStored)
}
