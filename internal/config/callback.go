package config

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Callback configures HTTP callbacks: the permitted URLs, and the calls. All scanners and
// dispatchers need the same settings.
type Callback struct {
	// Enabled turns callbacks on. Otherwise requests for them are rejected. Default false.
	Enabled bool `key:"enabled"`
	// AllowHTTP allows http beside https. Default false.
	AllowHTTP bool `key:"allow-http"`
	// AllowedHosts are the hosts that may be called, such as *.example.com. Default every host,
	// with a warning.
	AllowedHosts []string `key:"allowed-hosts" restricts:"write patterns; * is every host"`
	// AllowedNetworks are private or reserved networks that may be called all the same, such as
	// 10.1.0.0/16. Default none.
	AllowedNetworks []string `key:"allowed-networks"`
	// AllowedPorts are the ports that may be called. Default every port, with a warning.
	AllowedPorts []string `key:"allowed-ports" restricts:"write ports; * is every port"`
	// Secrets is a YAML file of the secrets that sign requests: a list of {origin, secrets:
	// [whsec_…]}. Default none.
	Secrets string `key:"secrets" secret:"in file"`
	// MaxInFlight is the most requests to one origin at a time, of all dispatchers together.
	// Default 64.
	MaxInFlight int `key:"max-in-flight" live:"yes"`
	// MaxInFlightTotal is the most requests of one dispatcher at a time. Default 2048.
	MaxInFlightTotal int `key:"max-in-flight-total" live:"yes"`
	// MaxTimeout is the most time for one request. Default 5m.
	MaxTimeout time.Duration `key:"max-timeout" live:"yes"`
	// CA is a PEM file of authorities to trust beside the system's. A change needs a restart.
	// Default none.
	CA string `key:"ca"`
}

// Networks returns AllowedNetworks, as checked by Load.
func (c Callback) Networks() []netip.Prefix {
	out := make([]netip.Prefix, 0, len(c.AllowedNetworks))
	for _, text := range c.AllowedNetworks {
		if n, ok := network(text); ok {
			out = append(out, n)
		}
	}
	return out
}

// Ports returns AllowedPorts, as checked by Load; none: every port.
func (c Callback) Ports() []uint16 {
	out := make([]uint16, 0, len(c.AllowedPorts))
	for _, text := range c.AllowedPorts {
		if n, err := strconv.ParseUint(text, 10, 16); err == nil {
			out = append(out, uint16(n))
		}
	}
	return out
}

// network reads a network. IPv4 in IPv6 form would never match: such connections are IPv4.
func network(text string) (netip.Prefix, bool) {
	n, err := netip.ParsePrefix(text)
	return n, err == nil && !n.Addr().Is4In6()
}

func (l *loader) callback(c Callback) {
	for _, host := range c.AllowedHosts {
		if _, err := path.Match(host, ""); err != nil || strings.ContainsAny(host, "/:") {
			l.bad("callback.allowed-hosts", host, "is not a pattern", "write one such as hooks.example.com or *.example.com, without scheme and port")
		}
	}
	for _, text := range c.AllowedNetworks {
		if _, ok := network(text); !ok {
			l.bad("callback.allowed-networks", text, "is not a network", "write one such as 10.1.0.0/16 or fd00::/8")
		}
	}
	for _, text := range c.AllowedPorts {
		if n, err := strconv.ParseUint(text, 10, 16); (err != nil || n == 0) && !slices.Equal(c.AllowedPorts, []string{"*"}) {
			l.bad("callback.allowed-ports", text, "is not a port", "write 1 to 65535, or * alone")
		}
	}
	if c.MaxInFlight < 1 || c.MaxInFlightTotal < c.MaxInFlight || c.MaxInFlightTotal > 8000 {
		l.bad("callback.max-in-flight", fmt.Sprintf("%d of %d in all", c.MaxInFlight, c.MaxInFlightTotal), "is out of range", "write at least 1, at most callback.max-in-flight-total, and that at most 8000")
	}
	l.within("callback.max-timeout", c.MaxTimeout, time.Second, time.Hour, "write 1s to 1h")
}
