package callback

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

// counted is a listener on loopback, on IPv6 too where the machine has it, that counts connections.
type counted struct {
	port     string
	accepted atomic.Int32
}

func listenCounted(t *testing.T) *counted {
	t.Helper()
	c := &counted{}
	first, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	c.port = fmt.Sprint(first.Addr().(*net.TCPAddr).Port)
	listeners := []net.Listener{first}
	for _, address := range []string{"127.0.0.2", "[::1]"} {
		if l, err := net.Listen("tcp", address+":"+c.port); err == nil {
			listeners = append(listeners, l)
		}
	}
	for _, l := range listeners {
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				c.accepted.Add(1)
				conn.Close()
			}
		}()
	}
	return c
}

// private are addresses that are refused: what a request could reach through us and not otherwise.
var private = []string{
	"127.0.0.1", "127.0.0.2", "127.255.255.254", // loopback
	"0.0.0.0", "0.1.2.3", // this host
	"10.0.0.1", "172.16.0.1", "172.31.255.254", "192.168.0.1", // RFC 1918
	"100.64.0.1", "100.127.255.254", // CGNAT
	"169.254.0.1", "169.254.169.254", // link-local, metadata
	"100.100.100.200", "192.0.0.192", "168.63.129.16", // other clouds' metadata
	"192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", // documentation, benchmarks
	"224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", // multicast, reserved, broadcast
	"::1", "::", "::7f00:1", // loopback, unspecified, IPv4-compatible loopback
	"::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", // IPv4-mapped, IPv4-translated
	"64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", // NAT64
	"2002:7f00:1::", "2002:a9fe:a9fe::", "2001:0:7f00:1::", // 6to4, Teredo
	"fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", // ULA, metadata, link-local, site-local, multicast
	"2001:db8::1", "3fff::1", "100::1", // documentation, discard
}

func TestGuardRefusesAddressesAtTheDial(t *testing.T) {
	g, err := NewGuard(URLRules{Enabled: true, AllowHTTP: true})
	require.NoError(t, err)
	for _, address := range append([]string{"fe80::1%lo"}, private...) {
		endpoint := net.JoinHostPort(address, "443")
		require.Error(t, g.addresses.Safe("tcp6", endpoint, nil), address)
		conn, err := g.dial(t.Context(), "tcp", endpoint)
		require.Nil(t, conn, address)
		if errors.Is(err, syscall.EAFNOSUPPORT) { // a machine without IPv6
			continue
		}
		var refused *refusedError
		require.ErrorAs(t, err, &refused, address)
		require.NotContains(t, err.Error(), address, "what names resolve to here is nobody's business")
	}
}

func TestGuardChecksAddressesAtTheIntake(t *testing.T) {
	g, err := NewGuard(URLRules{Enabled: true})
	require.NoError(t, err)
	url := func(address string) schemas.CallbackURL {
		if strings.Contains(address, ":") {
			address = "[" + address + "]"
		}
		c, rej := schemas.ParseCallbackURL([]byte("https://" + address + "/"))
		require.Nil(t, rej, address)
		return c
	}
	for _, address := range append([]string{"localhost", "a.localhost", "LOCALHOST"}, private...) {
		rej := g.Check(url(address))
		require.NotNil(t, rej, address)
		require.Equal(t, "has an address that is not public: ask the operator of this installation to allow it in callback.allowed-networks", rej.Problem+": "+rej.Fix)
	}
	for _, address := range []string{"shop.example", "localhost.example", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "2a00:1450:4001:800::200e"} {
		require.Nil(t, g.Check(url(address)), address)
	}
}

func TestGuardChecksTheRules(t *testing.T) {
	nets := func(s ...string) (out []netip.Prefix) {
		for _, n := range s {
			out = append(out, netip.MustParsePrefix(n))
		}
		return out
	}
	for _, c := range []struct {
		rules URLRules
		url   string
		want  string // "": allowed
	}{
		{URLRules{}, "https://shop.example/", "is an HTTP callback, and this installation makes none"},
		{URLRules{AllowHTTP: true, AllowedNetworks: nets("0.0.0.0/0")}, "https://8.8.8.8/", "is an HTTP callback, and this installation makes none"},
		{URLRules{Enabled: true}, "https://shop.example/", ""},
		{URLRules{Enabled: true}, "http://shop.example/", "is not https"},
		{URLRules{Enabled: true, AllowHTTP: true}, "http://shop.example/", ""},
		{URLRules{Enabled: true, AllowedHosts: []string{"*.Example.com", "shop.example"}}, "https://SHOP.example/", ""},
		{URLRules{Enabled: true, AllowedHosts: []string{"*.Example.com", "shop.example"}}, "https://a.b.example.com:8443/", ""},
		{URLRules{Enabled: true, AllowedHosts: []string{"*.example.com"}}, "https://example.com/", "has a host that is not allowed"},
		{URLRules{Enabled: true, AllowedHosts: []string{"*.example.com"}}, "https://a.example.com.evil.test/", "has a host that is not allowed"},
		{URLRules{Enabled: true, AllowedHosts: []string{"*"}}, "https://127.0.0.1/", "has an address that is not public"},
		{URLRules{Enabled: true, AllowedPorts: []uint16{443}}, "https://shop.example:8443/", "has a port that is not allowed"},
		{URLRules{Enabled: true, AllowedPorts: []uint16{443, 8443}}, "https://shop.example:8443/", ""},
		{URLRules{Enabled: true}, "https://shop.example:8443/", ""},
		{URLRules{Enabled: true, AllowedNetworks: nets("10.0.0.0/8")}, "https://10.1.2.3/", ""},
		{URLRules{Enabled: true, AllowedNetworks: nets("10.0.0.0/8")}, "https://192.168.0.1/", "has an address that is not public"},
		{URLRules{Enabled: true, AllowedNetworks: nets("10.0.0.0/8")}, "https://[::ffff:10.1.2.3]/", "has an address that is not public"},
		{URLRules{Enabled: true, AllowedNetworks: nets("fd00::/8")}, "https://[fd12::1]/", ""},
		{URLRules{Enabled: true, AllowedNetworks: nets("127.0.0.0/8")}, "https://localhost/", ""},
	} {
		g, err := NewGuard(c.rules)
		require.NoError(t, err)
		url, rej := schemas.ParseCallbackURL([]byte(c.url))
		require.Nil(t, rej)
		rej = g.Check(url)
		if c.want == "" {
			require.Nil(t, rej, "%v %s", c.rules, c.url)
			continue
		}
		require.NotNil(t, rej, "%v %s", c.rules, c.url)
		require.Equal(t, c.want, rej.Problem)
		require.NotEmpty(t, rej.Fix)
	}
}

func TestGuardRejectsPolicies(t *testing.T) {
	for want, p := range map[string]URLRules{
		`callback.allowed-hosts: "[" is not a pattern`:                           {AllowedHosts: []string{"["}},
		`callback.allowed-hosts: "" is not a pattern`:                            {AllowedHosts: []string{""}},
		`callback.allowed-hosts: "https://a" is not a pattern`:                   {AllowedHosts: []string{"https://a"}},
		`callback.allowed-networks: an entry is not a network`:                   {AllowedNetworks: []netip.Prefix{{}}},
		`callback.allowed-networks: ::ffff:10.0.0.0/104 is an IPv4 network in`:   {AllowedNetworks: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 104)}},
		`callback.allowed-ports: 0 is not a port: write 1 to 65535`:              {AllowedPorts: []uint16{443, 0}},
		`callback.allowed-hosts: "a:443" is not a pattern: write one such as ho`: {AllowedHosts: []string{"a:443"}},
	} {
		_, err := NewGuard(p)
		require.ErrorContains(t, err, want)
	}
}

// Whatever a URL looks like, nothing reaches a listener on this machine.
func TestNothingReachesTheListener(t *testing.T) {
	l := listenCounted(t)
	cfg := Config{URLRules: URLRules{Enabled: true, AllowHTTP: true}}
	s := newTestSender(t, cfg)
	s.guard.resolver = resolverOf(func(name string) []netip.Addr {
		switch name { // some resolvers read numbers like this, and names can mean anything
		case "rebound.test", "2130706433", "0177.0.0.1", "0x7f000001", "127.1":
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		case "rebound6.test":
			return []netip.Addr{netip.IPv6Loopback()}
		case "mapped.test":
			return []netip.Addr{netip.MustParseAddr("::ffff:127.0.0.1")}
		case "many.test":
			return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"), netip.IPv6Loopback()}
		}
		return nil
	})
	for _, host := range []string{
		"127.0.0.1", "127.0.0.2", "0.0.0.0", "localhost", "LOCALHOST", "a.localhost",
		"[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1%25lo]",
		"2130706433", "0177.0.0.1", "0x7f000001", "0x7f.0.0.1", "127.1", "127.0.0.01", "017700000001",
		"rebound.test", "rebound6.test", "mapped.test", "many.test",
		"user@127.0.0.1", "shop.example@127.0.0.1", "user:password@rebound.test", "127.0.0.1%2f@shop.example",
	} {
		for _, scheme := range []string{"http", "https", "HTTP", "ftp", "gopher", "file", "ws", "unix"} {
			o := s.Send(t.Context(), requestTo(scheme+"://"+host+":"+l.port+"/"))
			require.Equal(t, Dead, o.Verdict, "%s %s: %+v", scheme, host, o)
			require.Equal(t, schemas.KindCallback, o.Kind)
			require.NotEmpty(t, o.Reason)
			require.False(t, o.Sent)
		}
	}
	require.Zero(t, l.accepted.Load())

	// The same listener is reached when the operator allows it: the test above can fail.
	allowed := newTestSender(t, Config{URLRules: everyone})
	allowed.guard.resolver = s.guard.resolver
	for _, host := range []string{"127.0.0.1", "rebound.test"} {
		before := l.accepted.Load()
		require.Equal(t, Retry, allowed.Send(t.Context(), requestTo("http://"+host+":"+l.port+"/")).Verdict)
		require.Greater(t, l.accepted.Load(), before, host)
	}
}

// A name is checked by the address that is connected to, each time.
func TestANameThatChangesItsMind(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }))
	defer server.Close()
	port := server.URL[strings.LastIndex(server.URL, ":")+1:]
	l, err := net.Listen("tcp", "127.0.0.2:"+port)
	require.NoError(t, err)
	defer l.Close()
	var reached atomic.Int32
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			conn.Close()
		}
	}()
	// 127.0.0.1 stands for a public address, 127.0.0.2 for a private one.
	s := newTestSender(t, Config{URLRules: URLRules{Enabled: true, AllowHTTP: true, AllowedNetworks: loopback}})
	var now atomic.Pointer[[]netip.Addr]
	s.guard.resolver = resolverOf(func(string) []netip.Addr { return *now.Load() })
	public, private := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	for _, c := range []struct {
		addrs []netip.Addr
		want  Verdict
	}{
		{[]netip.Addr{public}, Delivered},
		{[]netip.Addr{private}, Dead},
		{[]netip.Addr{private, private}, Dead},
		{[]netip.Addr{private, public}, Delivered}, // the private one is passed over
		{[]netip.Addr{public}, Delivered},
	} {
		now.Store(&c.addrs)
		o := s.Send(t.Context(), requestTo("http://changing.test:"+port+"/"))
		require.Equal(t, c.want, o.Verdict, "%v %+v", c.addrs, o)
		require.NotContains(t, o.Reason, "127.0.0.2")
	}
	require.Zero(t, reached.Load())

	// A permitted address that does not answer may do so later, whatever stands beside it.
	server.Close()
	both := []netip.Addr{private, public}
	now.Store(&both)
	require.Equal(t, Retry, s.Send(t.Context(), requestTo("http://changing.test:"+port+"/")).Verdict)
	require.Zero(t, reached.Load())
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	l := listenCounted(t)
	var to atomic.Pointer[string]
	var status atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", *to.Load())
		w.WriteHeader(int(status.Load()))
	}))
	defer server.Close()
	s := newTestSender(t, Config{URLRules: everyone}) // even to what is allowed
	for _, host := range []string{"127.0.0.1", "[::1]", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0177.0.0.1", "u:p@127.0.0.1", "169.254.169.254", "10.0.0.1"} {
		for _, code := range []int32{301, 302, 303, 307, 308, 300, 304} {
			location := "http://" + host + ":" + l.port + "/"
			to.Store(&location)
			status.Store(code)
			o := s.Send(t.Context(), requestTo(server.URL))
			require.Equal(t, Dead, o.Verdict)
			require.Equal(t, schemas.KindCallback, o.Kind)
			require.Equal(t, int(code), o.Status)
		}
	}
	require.Zero(t, l.accepted.Load())
}

// A proxy would connect in our place, and so around the guard.
func TestNoProxyFromTheEnvironment(t *testing.T) {
	l := listenCounted(t)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, "http://127.0.0.1:"+l.port)
	}
	t.Setenv("NO_PROXY", "")
	s := newTestSender(t, Config{URLRules: everyone}) // the proxy's own address is allowed
	for _, url := range []string{"http://192.0.2.1/", "https://192.0.2.1/", "http://nowhere.invalid/"} {
		s.guard.resolver = resolverOf(func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("192.0.2.1")} })
		require.Equal(t, Dead, s.Send(t.Context(), requestTo(url)).Verdict)
	}
	require.Zero(t, l.accepted.Load())
	require.Nil(t, s.now.Load().transport.Proxy) // the environment is read once a process, perhaps before this test
}

func TestPortsOutsideTheList(t *testing.T) {
	l := listenCounted(t)
	rules := everyone
	rules.AllowedPorts = []uint16{80, 443}
	s := newTestSender(t, Config{URLRules: rules})
	o := s.Send(t.Context(), requestTo("http://127.0.0.1:"+l.port+"/"))
	require.Equal(t, Dead, o.Verdict)
	require.Contains(t, o.Reason, "has a port that is not allowed")
	conn, err := s.guard.dial(t.Context(), "tcp", "127.0.0.1:"+l.port) // at the dial as well
	require.Nil(t, conn)
	require.Error(t, err)
	require.Zero(t, l.accepted.Load())
}
