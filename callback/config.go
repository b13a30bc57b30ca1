package callback

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/notyet/notyet/internal/defaults"
)

// Config holds a Sender's settings. The zero value works, and refuses every URL until
// URLRules.Enabled is set.
type Config struct {
	// URLRules say which URLs are called.
	URLRules URLRules

	// Secrets is a YAML file, a list of {origin, secrets: [whsec_…]}. Requests to the listed
	// origins are signed. A changed file is read again. Write a new version to another file and
	// rename it: half of a file can be a valid one with fewer origins. Default none: nothing is
	// signed.
	Secrets string

	// MaxInFlight limits the requests to one origin at a time, of all senders together, and the
	// connections to the origin. The caller of Send keeps to it (see Sender.Limits). Default 64.
	MaxInFlight int

	// MaxInFlightTotal likewise limits the requests to all origins, and idle connections. Default
	// 2048.
	MaxInFlightTotal int

	// MaxTimeout limits the time of one request. Without this bound a task with notyet-ack-timeout
	// 1000h could hold a connection for as long. Default 5m.
	MaxTimeout time.Duration

	// UserAgent is sent unless the task has a User-Agent header of its own. Default "notyet".
	UserAgent string

	// Now is the clock for signatures, and for dates in answers. Receivers compare signatures with
	// their own clocks. Default this machine's.
	Now func() time.Time

	// Dial connects instead of the network, for tests. Its address is not checked. Default the
	// guard's dial, with a check.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// TLS configures HTTPS connections. Default the system's authorities.
	TLS *tls.Config
}

func (c Config) withDefaults() (Config, error) {
	if c.MaxInFlight < 0 || c.MaxInFlightTotal < 0 || c.MaxTimeout < 0 {
		return c, errors.New("callback: limits must not be negative")
	}
	c.MaxInFlight = cmp.Or(c.MaxInFlight, defaults.CallsInFlight)
	c.MaxInFlightTotal = cmp.Or(c.MaxInFlightTotal, defaults.CallsInFlightTotal)
	c.MaxTimeout = cmp.Or(c.MaxTimeout, defaults.CallTimeout)
	c.UserAgent = cmp.Or(c.UserAgent, "notyet")
	if c.MaxInFlight > c.MaxInFlightTotal {
		return c, fmt.Errorf("callback.max-in-flight: %d is more than the %d of all origins together", c.MaxInFlight, c.MaxInFlightTotal)
	}
	return c, nil
}
