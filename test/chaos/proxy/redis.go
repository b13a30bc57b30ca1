package proxy

import (
	"bufio"
	"net"
	"regexp"
)

// StartRedis is Start for the nodes of a Redis Cluster, or for sentinels and the servers that they watch. It rewrites the ports
// of the targets in answers to the proxy's, so that clients come through the proxy. All ports must have five digits, so that no
// length changes.
func StartRedis(targets ...string) (*Proxy, error) {
	return start(targets, func(p *Proxy) rewriter { return redis{p} })
}

// redis is one connection to a node.
type redis struct{ proxy *Proxy }

// fiveDigits is what can be a port. What notyet stores has more digits: times in milliseconds and numbers of records.
var fiveDigits = regexp.MustCompile(`\b[0-9]{5}\b`)

// forward passes answers on line by line: a number is never in two lines.
func (r redis) forward(d Direction, from, to net.Conn, gate func(int) bool) error {
	if d == ToServer {
		return plain{}.forward(d, from, to, gate)
	}
	for in := bufio.NewReader(from); ; {
		line, err := in.ReadBytes('\n')
		pass := gate(len(line))
		if err != nil {
			return err
		}
		if !pass {
			continue
		}
		if _, err := to.Write(fiveDigits.ReplaceAllFunc(line, r.through)); err != nil {
			return err
		}
	}
}

func (r redis) through(port []byte) []byte {
	addr := r.proxy.Via("127.0.0.1:" + string(port))
	if _, own, err := net.SplitHostPort(addr); err == nil && len(own) == len(port) {
		return []byte(own)
	}
	return port
}
