package config

import (
	"net"
	"slices"
	"strings"
)

// Open returns the open points of the configuration: to writers, callbacks, and listeners on the
// network. None is a mistake.
func (c *Config) Open() (out []Problem) {
	open := func(yes bool, key, problem, fix string) {
		if yes {
			out = append(out, Problem{Key: key, Source: c.Origin(key), Problem: problem, Fix: fix})
		}
	}
	names := c.Unrestricted()
	open(len(names) > 0, "intake.allowed-targets", "is not set: who may write "+strings.Join(names, ", ")+" may deliver to, cancel and replace tasks of every target", "name patterns, or write * where every topic is meant")
	open(c.Callback.Enabled && len(c.Callback.AllowedHosts) == 0, "callback.allowed-hosts", "is not set: every public host is called", "name patterns, or write * where every host is meant")
	open(c.Callback.Enabled && len(c.Callback.AllowedPorts) == 0, "callback.allowed-ports", "is not set: every port is called", "name ports, or write * where every port is meant")
	jwt := c.HTTP.JWT
	open(jwt.Audience != "" && jwt.Audience == c.HTTP.SignIn.ClientID, "http.jwt.audience", "is http.sign-in.client-id too: an ID token of the console is a token of the API", "let the issuer give tokens of the API an audience of their own")

	const clear = " over the network in the clear"
	open(c.HTTP.Tokens != "" && remote(c.HTTP.Addr) && !c.HTTP.TLS.Enabled && !strings.HasPrefix(c.HTTP.PublicURL, "https:"),
		"http.tls.enabled", "is false: tokens and sessions go"+clear, "set http.tls, or http.public-url where a proxy speaks HTTPS")
	bearing := slices.Contains([]string{"PLAIN", oauthBearer}, c.Kafka.SASL.Mechanism)
	open(c.HTTP.Tokens != "" && remote(c.HTTP.Addr) && c.Ops.Addr == "" && !c.Metrics.NeedToken, "metrics.need-token", "is false: /metrics at http.addr names targets to anybody", "set it, or ops.addr")
	open(bearing && remote(c.Kafka.Brokers...) && !c.Kafka.TLS.Enabled, "kafka.tls.enabled", "is false: the password or token of kafka.sasl goes"+clear, "set it, or use SCRAM-SHA-512")
	signs := c.Index.Kind == KindRedis && (c.Redis.Password != "" || c.Redis.SentinelPassword != "")
	open(signs && remote(c.Redis.Addrs...) && !c.Redis.TLS.Enabled, "redis.tls.enabled", "is false: the password of Redis or of its sentinels goes"+clear, "set it")
	signs = c.Election.Kind == KindZooKeeper && c.ZooKeeper.Auth != ""
	open(signs && remote(c.ZooKeeper.Servers...) && !c.ZooKeeper.TLS.Enabled, "zookeeper.tls.enabled", "is false: zookeeper.auth goes"+clear, "set it")
	return out
}

// remote reports whether one of the addresses is not a loopback one.
func remote(addrs ...string) bool {
	return slices.ContainsFunc(addrs, func(a string) bool {
		host, _, err := net.SplitHostPort(a)
		if err != nil {
			host = a
		}
		return !loopback(strings.Trim(host, "[]"))
	})
}
