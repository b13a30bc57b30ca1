package access

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// proxied returns the sign of a proxy that passes on somebody else's request. "": there is none.
//
// A proxy on this machine connects to a loopback address, and many set a loopback Host by default.
// Most add one of the forwarding headers. nginx adds none by default, and speaks HTTP/1.0 to
// upstreams before 1.29.7. Behind a proxy without such headers a browser's Origin still names the
// opened site.
func (g *Guard) proxied(r *http.Request) string {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded") || forwarding[name] {
			return "it has the header " + name
		}
	}
	if !r.ProtoAtLeast(1, 1) {
		return "it is HTTP/1.0"
	}
	if origin, err := url.Parse(r.Header.Get("Origin")); err != nil || origin.Host != "" && !g.hosted(origin.Host) {
		return "its Origin is another host"
	}
	return ""
}

// toLoopback reports whether the connection came to a loopback address: only this machine can.
func toLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}

func (g *Guard) hosted(host string) bool {
	host = strings.ToLower(host)
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.Trim(name, "[]"), ".")
	if addr, err := netip.ParseAddr(name); err == nil && addr.Unmap().IsLoopback() {
		return true
	}
	return name == "localhost" || slices.Contains(g.hosts, name) || slices.Contains(g.hosts, host)
}
