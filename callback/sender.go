package callback

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/notyet/notyet/schemas"
)

// Sender sends requests. Safe for concurrent use.
type Sender struct {
	cfg     Config
	guard   *Guard
	secrets *Secrets
	dial    dialFunc
	now     atomic.Pointer[limited]
	metrics *metrics
}

// limited are the limits in force, and connections bound by them.
type limited struct {
	inFlight, total int
	timeout         time.Duration
	transport       *http.Transport
}

// New checks the configuration, reads the secrets and connects to nothing.
func New(cfg Config, log *zap.Logger, reg prometheus.Registerer) (*Sender, error) {
	guard, err := NewGuard(cfg.URLRules)
	if err != nil {
		return nil, err
	}
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	s := &Sender{cfg: cfg, guard: guard, dial: guard.dial}
	if cfg.Dial != nil {
		s.dial = cfg.Dial
	}
	s.Limit(cfg.MaxInFlight, cfg.MaxInFlightTotal, cfg.MaxTimeout)
	if s.cfg.Now == nil {
		s.cfg.Now = time.Now
	}
	if cfg.Secrets != "" {
		if s.secrets, err = OpenSecrets(cfg.Secrets, log); err != nil {
			return nil, err
		}
	}
	s.metrics = newMetrics(reg)
	return s, nil
}

// Limit replaces MaxInFlight, MaxInFlightTotal and MaxTimeout. Requests under way continue by the
// previous limits, and count.
func (s *Sender) Limit(inFlight, total int, timeout time.Duration) {
	before := s.now.Load()
	if before != nil && before.inFlight == inFlight && before.total == total && before.timeout == timeout {
		return
	}
	s.now.Store(&limited{inFlight, total, timeout, newTransport(s.cfg.TLS, inFlight, total, s.dial)})
	if before != nil {
		before.transport.CloseIdleConnections() // also those that become idle
	}
}

// Limits returns MaxInFlight and MaxInFlightTotal. The caller of Send keeps to them.
func (s *Sender) Limits() (inFlight, total int) {
	now := s.now.Load()
	return now.inFlight, now.total
}

// Close closes idle connections. Requests under way end by their own limits.
func (s *Sender) Close() { s.now.Load().transport.CloseIdleConnections() }

// fairTimeout is how long a request must wait before its end says something about the origin: a
// caller may ask for a millisecond, and others call the same origin.
const fairTimeout = time.Second

// Send makes one attempt, and returns the outcome. It blocks for the time of the request, with a
// limit. Only the transport may send again, with the same idempotency key, when the receiver has
// closed a reused connection.
func (s *Sender) Send(ctx context.Context, r Request) Outcome {
	started := time.Now()
	target, rej := schemas.ParseCallbackURL([]byte(r.URL))
	if rej == nil {
		rej = s.guard.Check(target)
	}
	var o Outcome
	failure := "refused"
	if rej != nil {
		o = refusal(rej.Error())
	} else {
		o, failure = s.attempt(ctx, r, target)
	}
	o.Failure = failure
	o.Hasty = failure == failedTimeout && r.Timeout > 0 && r.Timeout < fairTimeout
	s.metrics.attempt(o, failure, r.Asks, time.Since(started))
	return o
}

// attempt sends the request and reads the answer. failure is the kind of a failure below HTTP.
func (s *Sender) attempt(ctx context.Context, r Request, target schemas.CallbackURL) (o Outcome, failure string) {
	limits := s.now.Load()
	timeout := min(r.Timeout, limits.timeout)
	if r.Timeout <= 0 {
		timeout = min(schemas.DefaultCallbackTimeout, limits.timeout)
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var connected atomic.Bool // the transport may still call it after it has returned
	traced := httptrace.WithClientTrace(bounded, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := httpRequest(withRequest(traced), r, target, s.secrets.of(target.Origin), s.cfg.UserAgent, s.cfg.Now())
	if err != nil {
		return refusal(target.Origin + ": " + err.Error()), failedOther
	}
	answer, err := limits.transport.RoundTrip(req)
	if err != nil {
		if ctx.Err() != nil {
			return Outcome{Verdict: Interrupted, Sent: connected.Load(), Reason: target.Origin + ": interrupted"}, ""
		}
		return failed(target.Origin, err, connected.Load(), timeout)
	}
	defer time.AfterFunc(answerTimeout, cancel).Stop()
	return s.read(target.Origin, answer), ""
}

const (
	// answerTimeout limits how long an answer's body is read, after its status.
	answerTimeout = 2 * time.Second

	// drainBytes is how much of an answer's body is read, to use the connection again.
	drainBytes = 64 << 10
)

func (s *Sender) read(origin string, answer *http.Response) Outcome {
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusSwitchingProtocols { // its body is the connection
		return judge(origin, answer.StatusCode, answer.Header, nil, s.cfg.Now())
	}
	start := make([]byte, reasonBytes)
	n, err := io.ReadFull(answer.Body, start)
	if err == nil {
		_, _ = io.CopyN(io.Discard, answer.Body, drainBytes) // what fails here closes the connection
	}
	return judge(origin, answer.StatusCode, answer.Header, start[:n], s.cfg.Now())
}
