package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/schemas"
)

func callbackRules(c config.Callback) callback.URLRules {
	return callback.URLRules{Enabled: c.Enabled, AllowHTTP: c.AllowHTTP, AllowedHosts: c.AllowedHosts, AllowedNetworks: c.Networks(), AllowedPorts: c.Ports()}
}

// callbackConfig configures the dispatcher's sender of HTTP callbacks.
func callbackConfig(c config.Callback) (callback.Config, error) {
	out := callback.Config{
		URLRules: callbackRules(c), Secrets: c.Secrets, MaxInFlight: c.MaxInFlight, MaxInFlightTotal: c.MaxInFlightTotal,
		MaxTimeout: c.MaxTimeout, UserAgent: "notyet/" + command.Version(),
	}
	if c.CA == "" {
		return out, nil
	}
	pem, err := os.ReadFile(c.CA)
	if err != nil {
		return out, command.Usage("callback.ca: %v: name a PEM file that notyet can read", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return out, command.Usage("callback.ca %q: there is no certificate in PEM form in it: name the file of the authority's certificate", c.CA)
	}
	out.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	return out, nil
}

// addCallbacks makes what sends HTTP callbacks. Without callback.enabled it refuses each.
func (s *service) addCallbacks() (*callback.Sender, error) {
	cfg, err := callbackConfig(s.cfg.Callback)
	if err != nil {
		return nil, err
	}
	cfg.Now = s.kafka.Now
	sender, err := callback.New(cfg, s.log, s.reg)
	if err != nil {
		return nil, command.UsageError{Err: err}
	}
	s.onClose(sender.Close)
	s.take = append(s.take, func(cfg *config.Config) {
		sender.Limit(cfg.Callback.MaxInFlight, cfg.Callback.MaxInFlightTotal, cfg.Callback.MaxTimeout)
	})
	return sender, nil
}

// unguardedIntakes accept every URL. It is for reading again what scanners have read already: this
// process may lack their settings, and the dispatcher checks each URL again.
func unguardedIntakes(cfg *config.Config) []api.Intake {
	out := intakes(cfg)
	for i := range out {
		out[i].Limits.Callbacks = func(schemas.CallbackURL) *schemas.Rejection { return nil }
	}
	return out
}

// takeLimits has the limits of the intakes count from now on. They also say what URLs this installation calls. Commands do not know that:
// their settings need not be the services'.
func (s *service) takeLimits(cfg *config.Config) error {
	guard, err := callback.NewGuard(callbackRules(cfg.Callback))
	if err != nil {
		return command.UsageError{Err: err}
	}
	out := intakes(cfg)
	for i := range out {
		out[i].Limits.Callbacks, out[i].Now = guard.Check, s.kafka.Now
	}
	s.in.Store(&out)
	return nil
}
