package service

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/schemas"
)

// What an intake says to a URL, by the settings of the installation.
func TestCallbacksAreRefusedAtTheIntake(t *testing.T) {
	on := []string{"callback.enabled=true"}
	with := func(more ...string) []string { return append(on[:1:1], more...) }
	for _, c := range []struct {
		settings []string
		url      string
		want     string // "": accepted
	}{
		{nil, "https://shop.example/", `notyet-url "https://shop.example" is an HTTP callback, and this installation makes none: name a topic in notyet-topic, or ask the operator to set callback.enabled`},
		{on, "https://shop.example/hook?x=1", ""},
		{on, "https://8.8.8.8/", ""},
		{on, "https://[2606:4700::1111]/", ""},
		{on, "http://shop.example/", "is not https: use https, or ask the operator of this installation to allow it in callback.allow-http"},
		{with("callback.allow-http=true"), "http://shop.example/", ""},
		{with("callback.allowed-hosts=*.shop.example"), "https://a.shop.example/", ""},
		{with("callback.allowed-hosts=*.shop.example"), "https://shop.example.evil.example/", "callback.allowed-hosts"},
		{with("callback.allowed-ports=443"), "https://shop.example:8443/", "callback.allowed-ports"},
		{with("callback.allowed-ports=443,8443"), "https://shop.example:8443/", ""},
		{on, "https://127.0.0.1/", "callback.allowed-networks"},
		{on, "https://localhost/", "callback.allowed-networks"},
		{on, "https://10.0.0.1/", "callback.allowed-networks"},
		{on, "https://172.16.0.1/", "callback.allowed-networks"},
		{on, "https://192.168.1.1/", "callback.allowed-networks"},
		{on, "https://100.64.0.1/", "callback.allowed-networks"},
		{on, "https://169.254.169.254/latest/meta-data/", "callback.allowed-networks"},
		{on, "https://0.0.0.0/", "callback.allowed-networks"},
		{on, "https://224.0.0.1/", "callback.allowed-networks"},
		{on, "https://240.0.0.1/", "callback.allowed-networks"},
		{on, "https://[::1]/", "callback.allowed-networks"},
		{on, "https://[::ffff:127.0.0.1]/", "callback.allowed-networks"},
		{on, "https://[64:ff9b::7f00:1]/", "callback.allowed-networks"},
		{on, "https://[2002:7f00:1::]/", "callback.allowed-networks"},
		{on, "https://[fd00::1]/", "callback.allowed-networks"},
		{on, "https://[fe80::1]/", "callback.allowed-networks"},
		{with("callback.allowed-networks=10.1.0.0/16,::1/128"), "https://10.1.2.3/", ""},
		{with("callback.allowed-networks=10.1.0.0/16,::1/128"), "https://[::1]/", ""},
		{with("callback.allowed-networks=10.1.0.0/16"), "https://10.2.0.1/", "callback.allowed-networks"},
		{on, "https://user:secret@shop.example/", "notyet-url has user info"},
		{on, "ftp://shop.example/", "is not an absolute http or https URL"},
		{on, "https://2130706433/", "has a number as its host"},
		{on, "https://0177.0.0.1/", "has a number as its host"},
		{with("intake.allowed-targets=orders"), "https://shop.example/", `notyet-url "https://shop.example" is not allowed on this intake topic`},
		{with("intake.allowed-targets=*,https://*.example"), "https://shop.example/", ""},
	} {
		flags := map[string]string{}
		for _, s := range c.settings {
			key, value, _ := strings.Cut(s, "=")
			flags[key] = value
		}
		cfg, err := config.Load(config.Sources{Environ: []string{"PATH=/bin"}, Flags: flags})
		require.NoError(t, err)
		s := &Service{cfg: cfg}
		require.NoError(t, s.takeLimits(cfg))
		limits := scannerConfig(cfg, *s.in.Load()).IntakeLimits[schemas.TopicIntake]
		header := func(name, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: name, Value: []byte(value)} }
		_, err = schemas.Decode(&kgo.Record{Topic: schemas.TopicIntake, Timestamp: time.Now(), Headers: []kgo.RecordHeader{header(schemas.HeaderURL, c.url), header(schemas.HeaderDelay, "1s")}}, limits)
		if c.want == "" {
			require.NoError(t, err, "%v %s", c.settings, c.url)
			continue
		}
		require.ErrorContains(t, err, c.want, "%v %s", c.settings, c.url)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestWrongCallbackSettings(t *testing.T) {
	for setting, want := range map[string]string{
		"callback.allowed-networks=10.1.0.0":          "callback.allowed-networks",
		"callback.allowed-networks=::ffff:10.0.0.0/8": "callback.allowed-networks",
		"callback.allowed-hosts=https://a":            "callback.allowed-hosts",
		"callback.allowed-hosts=[":                    "callback.allowed-hosts",
		"callback.allowed-ports=0":                    "callback.allowed-ports",
		"callback.max-in-flight=3000":                 "callback.max-in-flight",
		"callback.max-timeout=0s":                     "callback.max-timeout",
		"intake.allowed-targets=https://a/b":          "it has a path",
	} {
		key, value, _ := strings.Cut(setting, "=")
		_, err := config.Load(config.Sources{Environ: []string{"PATH=/bin"}, Flags: map[string]string{key: value}})
		require.ErrorContains(t, err, want, setting)
	}
	for _, c := range []config.Callback{{CA: "/does/not/exist", MaxInFlight: 1, MaxInFlightTotal: 1}, {Secrets: "/does/not/exist", MaxInFlight: 1, MaxInFlightTotal: 1}} {
		e := &Engine{cfg: &config.Config{Callback: c}, log: zap.NewNop()}
		_, err := e.addCallbacks()
		require.ErrorContains(t, err, "callback.")
	}
}
