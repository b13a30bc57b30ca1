package kafka

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// errMaybeStored wraps a refusal that need not be the first answer to its record.
var errMaybeStored = errors.New("an earlier try may have been stored")

// LostConnections tells a first answer from one to a client's own second try. The client tries again by itself when a connection
// ends: the broker may have stored the record, and refuse it now. Give it to the client as a hook.
type LostConnections struct{ n atomic.Int64 }

// OnBrokerDisconnect implements kgo.HookBrokerDisconnect.
func (l *LostConnections) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) { l.n.Add(1) }

// Count is how many connections have been lost. Note it before a record is produced.
func (l *LostConnections) Count() int64 { return l.n.Load() }

// Judge returns the error of a record for which NotSent holds only if no connection was lost since then.
func (l *LostConnections) Judge(err error, before int64) error {
	if err == nil || !Permanent(err) || l.Count() == before {
		return err
	}
	return fmt.Errorf("%w (%w)", err, errMaybeStored)
}
