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
	room    *room
	metrics *metrics
	log     *zap.Logger
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
	s := &Sender{cfg: cfg, guard: guard, dial: guard.dial, room: newRoom(cfg.MaxInFlight, cfg.MaxInFlightTotal), log: log}
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
	s.metrics = newMetrics(reg, s.room)
	return s, nil
}

// Limit replaces MaxInFlight, MaxInFlightTotal and MaxTimeout. Requests under way continue by the
// previous limits, and count.
func (s *Sender) Limit(inFlight, total int, timeout time.Duration) {
	before := s.now.Load()
	if before != nil && before.inFlight == inFlight && before.total == total && before.timeout == timeout {
		return
	}
	s.room.limit(inFlight, total)
	s.now.Store(&limited{inFlight, total, timeout, newTransport(s.cfg.TLS, inFlight, total, s.dial)})
	if before != nil {
		before.transport.CloseIdleConnections() // also those that become idle
	}
}

// Close closes idle connections. Requests under way end by their own limits.
func (s *Sender) Close() { s.now.Load().transport.CloseIdleConnections() }

// Share sets this sender's part of MaxInFlight, from 0 to 1, but at least one request. Other
// senders have the rest. Without a call the part is 1.
func (s *Sender) Share(part float64) { s.room.share(part) }

// Seat is room for one request to an origin. Exactly one of Send and Leave gives it back.
type Seat struct {
	sender *Sender
	permit permit
}

// Absence says why there is no Seat.
type Absence struct {
	Wait time.Duration // for how long to put the request off; an answer may make room earlier
	Down bool          // the origin does not answer, and is asked by one request at a time
}

// Enter takes room for a request to the origin, on account of a tenant: tenants share the room of
// all origins first. Without room there is no Seat.
func (s *Sender) Enter(origin, tenant string) (*Seat, Absence) {
	p, why, wait := s.room.enter(origin, tenant, time.Now())
	if why != "" {
		s.metrics.notSent.WithLabelValues(why).Inc()
		return nil, Absence{Wait: wait, Down: why == whyCircuit}
	}
	return &Seat{sender: s, permit: p}, Absence{}
}

// Leave gives the room back unused.
func (p *Seat) Leave() { p.sender.room.leave(p.permit, Outcome{Verdict: NotSent}, time.Now()) }

// fairTimeout is how long a request must wait before its end says something about the origin: a
// caller may ask for a millisecond, and others call the same origin.
const fairTimeout = time.Second

// Send makes one attempt in the room taken by Enter, and returns the outcome. The request must be
// for the origin of the Seat. Send blocks for the time of the request, with a limit. Only the
// transport may send again, with the same idempotency key, when the receiver has closed a reused
// connection.
func (p *Seat) Send(ctx context.Context, r Request) Outcome {
	s, started := p.sender, time.Now()
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
	judged := o
	if failure == failedTimeout && r.Timeout > 0 && r.Timeout < fairTimeout {
		judged = Outcome{Verdict: NotSent, After: firstPause} // to the circuit, as if it had not been sent
	}
	did, down := s.room.leave(p.permit, judged, time.Now())
	switch o.Down = down; did {
	case opened:
		s.metrics.circuits.Inc()
		s.log.Warn("an origin does not answer: its callbacks are put off, and one at a time asks it", zap.String("origin", target.Origin), zap.Int("failures", failuresToOpen), zap.Int("status", o.Status), zap.String("failure", failure))
	case closed:
		s.log.Info("an origin answers again", zap.String("origin", target.Origin))
	}
	s.metrics.attempt(o, failure, p.permit.probe, time.Since(started))
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
