package callback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/notyet/notyet/schemas"
)

// URLRules say which URLs an installation calls. The zero value allows none.
type URLRules struct {
	// Enabled turns callbacks on. Default false: every URL is refused.
	Enabled bool

	// AllowHTTP also allows http URLs. Default false: https only.
	AllowHTTP bool

	// AllowedHosts are patterns as of path.Match for a URL's host without its port:
	// "hooks.example.com", "*.example.com". Compared in lower case. Default empty: every host.
	AllowedHosts []string

	// AllowedNetworks are exceptions to the refusal of loopback, private and other special
	// networks. Public addresses are not restricted. Default none.
	AllowedNetworks []netip.Prefix

	// AllowedPorts are the permitted ports. Default empty: every port.
	AllowedPorts []uint16
}

// wireServer serves virtual machines' metadata in Azure, at a seemingly public address.
var wireServer = netip.MustParsePrefix("168.63.129.16/32")

// dialTimeout limits the lookup of a name and the connection to one of its addresses.
const dialTimeout = 10 * time.Second

// Guard refuses URLs by URLRules. The check at each connection decides, with the very address and
// after the last lookup of the name. Safe for concurrent use.
type Guard struct {
	rules     URLRules
	addresses *ssrf.Guardian
	resolver  *net.Resolver // nil: Go's default
}

// NewGuard checks the rules.
func NewGuard(p URLRules) (*Guard, error) {
	p.AllowedHosts = slices.Clone(p.AllowedHosts)
	for i, pattern := range p.AllowedHosts {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" || strings.ContainsAny(pattern, "/:") {
			return nil, fmt.Errorf("callback.allowed-hosts: %q is not a pattern: write one such as hooks.example.com or *.example.com, without scheme and port", pattern)
		}
		p.AllowedHosts[i] = strings.ToLower(pattern)
	}
	var v4, v6 []netip.Prefix
	for _, n := range p.AllowedNetworks {
		switch {
		case !n.IsValid():
			return nil, errors.New("callback.allowed-networks: an entry is not a network: write one such as 10.1.0.0/16 or fd00::/8")
		case n.Addr().Is4In6(): // it would never match: connections to it are IPv4
			return nil, fmt.Errorf("callback.allowed-networks: %s is an IPv4 network in IPv6 form: write it as an IPv4 network", n)
		case n.Addr().Is4():
			v4 = append(v4, n)
		default:
			v6 = append(v6, n)
		}
	}
	if slices.Contains(p.AllowedPorts, 0) {
		return nil, errors.New("callback.allowed-ports: 0 is not a port: write 1 to 65535")
	}
	ports := ssrf.WithAnyPort()
	if len(p.AllowedPorts) > 0 {
		ports = ssrf.WithPorts(p.AllowedPorts...)
	}
	return &Guard{rules: p, addresses: ssrf.New(
		ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...), ssrf.WithDeniedV4Prefixes(wireServer), ports,
	)}, nil
}

// Check refuses without a lookup, by the rules and the URL alone. The scanner checks each request
// for a callback, and the Sender each attempt, because the rules may have changed in between.
func (g *Guard) Check(c schemas.CallbackURL) *schemas.Rejection {
	refuse := func(problem, fix string) *schemas.Rejection {
		return &schemas.Rejection{Header: schemas.HeaderURL, Value: c.Origin, Problem: problem, Fix: fix}
	}
	const ask = "ask the operator of this installation to allow it in "
	switch {
	case !g.rules.Enabled:
		return refuse("is an HTTP callback, and this installation makes none", "name a topic in "+schemas.HeaderTopic+", or ask the operator to set callback.enabled")
	case c.Scheme != "https" && !g.rules.AllowHTTP:
		return refuse("is not https", "use https, or "+ask+"callback.allow-http")
	case !g.allowsHost(c.Host):
		return refuse("has a host that is not allowed", ask+"callback.allowed-hosts")
	case len(g.rules.AllowedPorts) > 0 && !slices.Contains(g.rules.AllowedPorts, c.Port):
		return refuse("has a port that is not allowed", ask+"callback.allowed-ports")
	case !g.allowsLiteral(c.Host):
		return refuse("has an address that is not public", ask+"callback.allowed-networks")
	}
	return nil
}

func (g *Guard) allowsHost(host string) bool {
	return len(g.rules.AllowedHosts) == 0 || slices.ContainsFunc(g.rules.AllowedHosts, func(pattern string) bool {
		ok, err := path.Match(pattern, host)
		return ok && err == nil
	})
}

// allowsLiteral judges a literal address, or a name of fixed meaning. Any other name passes.
func (g *Guard) allowsLiteral(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") { // RFC 6761: always loopback
		v4, v6 := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
		return g.addresses.SafeAddr(v4) == nil || g.addresses.SafeAddr(v6) == nil
	}
	addr, err := netip.ParseAddr(host)
	return err != nil || g.addresses.SafeAddr(addr) == nil
}

// refusedError means that every address of a name was refused. The text omits the addresses: a dead
// letter's reason reaches the task's owner, and must not reveal to which addresses names resolve
// here.
type refusedError struct{ cause error }

func (e *refusedError) Error() string {
	return "its address is not public, and callback.allowed-networks does not name it"
}

// dial connects like a net.Dialer, but only to addresses allowed by the rules. The dialer asks
// before each connection, after the lookup, so a name cannot change its meaning after the check.
func (g *Guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var permitted atomic.Bool
	var refusal atomic.Pointer[refusedError]
	d := net.Dialer{
		Timeout: dialTimeout, Resolver: g.resolver,
		Control: func(network, address string, raw syscall.RawConn) error { // several run at the same time
			if err := g.addresses.Safe(network, address, raw); err != nil {
				refusal.Store(&refusedError{err})
				return err
			}
			permitted.Store(true)
			return nil
		},
	}
	conn, err := d.DialContext(ctx, network, address)
	if refused := refusal.Load(); err != nil && refused != nil {
		if !permitted.Load() {
			return nil, refused
		}
		// A permitted address did not answer and may do so later: this is not the guard's verdict.
		return nil, errors.New("connecting: the permitted addresses of the name do not answer")
	}
	return conn, err
}
