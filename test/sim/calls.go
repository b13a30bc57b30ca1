package sim

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/recordtest"
)

// Callbacks are asked for, received and judged here and in judgecalls.go, and not by the fault runs' checker.

const (
	callOrigins  = 2
	callAddress  = "localhost:80" // where all origins are
	callAttempts = 3
	callBackoff  = 500 * time.Millisecond
	callPause    = 2 * time.Second // what Retry-After asks for
	callLongest  = 25 * time.Second
	// callUnlucky is how long an origin that is well may be asked with requests that it fails all the same: a quarter of them, and
	// the pauses between them have grown to a minute.
	callUnlucky = 4 * time.Minute
)

// calls are the callbacks of a world: what was asked, and what came of it.
type calls struct {
	receiver *http.Server
	mu       sync.Mutex
	asking   sync.WaitGroup        // requests that are to be sent
	asked    map[string]*askedCall // by id
	arrivals map[string][]callArrival
}

// askedCall is a request for a callback.
type askedCall struct {
	n         int
	id        string
	origin    string
	method    string
	due       int64
	timeout   time.Duration
	backoff   time.Duration
	cancelled bool // a cancel was sent
}

// callArrival is a request at the receiver.
type callArrival struct {
	at      int64
	attempt int
	key     string
	answer  reply
}

// reply is how the receiver treats a request.
type reply int

const (
	answerOK reply = iota
	answerSlowly
	answerTooLate // behind the request's timeout
	answerFailure
	answerLater // with Retry-After
	answerNo
	answerElsewhere // a redirect
	answerNothing   // the connection is closed
)

// answerOf is drawn from the callback and the attempt, so each copy is answered alike.
func (w *world) answerOf(n, attempt int) reply {
	switch p := rand.New(rand.NewPCG(w.seed^uint64(attempt)<<32, uint64(n)+13)).IntN(100); {
	case p < 50:
		return answerOK
	case p < 58:
		return answerSlowly
	case p < 64:
		return answerTooLate
	case p < 76:
		return answerFailure
	case p < 84:
		return answerLater
	case p < 90:
		return answerNo
	case p < 93:
		return answerElsewhere
	case p < 96:
		return answerNothing
	default:
		return answerOK
	}
}

// receive begins to answer callbacks.
func (w *world) receive() error {
	w.calls.asked, w.calls.arrivals = map[string]*askedCall{}, map[string][]callArrival{}
	l, err := w.network.Listen("tcp", callAddress)
	if err != nil {
		return err
	}
	w.calls.receiver = &http.Server{Handler: http.HandlerFunc(w.called)}
	go func() { _ = w.calls.receiver.Serve(l) }()
	return nil
}

// called is the receiver of all origins.
func (w *world) called(to http.ResponseWriter, r *http.Request) {
	at := time.Now().UnixMilli()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // it was cut off on its way
	}
	id := r.Header.Get("Notyet-Id")
	attempt, _ := strconv.Atoi(r.Header.Get("Notyet-Attempt"))
	if w.calledApart(r, id, at) {
		return
	}
	w.calls.mu.Lock()
	q := w.calls.asked[id]
	if q == nil {
		w.calls.mu.Unlock()
		w.find("callbacks", "%s %s%s with the id %q is of nobody", r.Method, r.Host, r.URL, id)
		return
	}
	a := callArrival{at: at, attempt: attempt, key: r.Header.Get("Idempotency-Key"), answer: w.answerOf(q.n, attempt)}
	w.calls.arrivals[id] = append(w.calls.arrivals[id], a)
	w.calls.mu.Unlock()
	if got, want := fmt.Sprint(r.Method, " http://", r.Host, r.URL, " ", string(body), " ", r.Header["App"], r.Header.Get("Notyet-Due")), fmt.Sprint(q.method, " ", q.url(), " ", q.n, " [sim twice]", q.due); got != want {
		w.find("callbacks", "%s is not as it was asked for: %s, not %s", id, got, want)
	}
	switch a.answer {
	case answerOK:
	case answerSlowly:
		time.Sleep(q.timeout * 3 / 4)
	case answerTooLate:
		time.Sleep(2 * q.timeout)
	case answerFailure:
		to.WriteHeader(http.StatusServiceUnavailable)
	case answerLater:
		to.Header().Set("Retry-After", strconv.Itoa(int(callPause.Seconds())))
		to.WriteHeader(http.StatusTooManyRequests)
	case answerNo:
		to.WriteHeader(http.StatusNotFound)
	case answerElsewhere:
		to.Header().Set("Location", "/elsewhere")
		to.WriteHeader(http.StatusTemporaryRedirect)
	case answerNothing:
		panic(http.ErrAbortHandler)
	}
	_, _ = to.Write(make([]byte, 1+q.n%5000))
}

func (q *askedCall) url() string { return q.origin + "/" + q.id }

// caller is a dispatcher's way to the receivers.
func (w *world) caller(p *process, reg prometheus.Registerer, log *zap.Logger) (*callback.Sender, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return w.network.DialContext(ctx, "tcp", callAddress)
	}
	return callback.New(callback.Config{URLRules: w.urlRules(), Dial: w.through(p, w.receivers, 10*time.Second, dial), MaxInFlight: 4, MaxInFlightTotal: 64}, log, reg)
}

func (w *world) urlRules() callback.URLRules {
	return callback.URLRules{Enabled: w.callbacks > 0, AllowHTTP: true}
}

// askCalls sends the requests for callbacks, each at its time.
func (w *world) askCalls(begin time.Time) {
	w.calls.mu.Lock()
	defer w.calls.mu.Unlock()
	r := rand.New(rand.NewPCG(w.seed, 11))
	more := rand.New(rand.NewPCG(w.seed, 47))
	burst := begin.UnixMilli() + 1000 + r.Int64N(w.load.Milliseconds())
	for n := range w.callbacks {
		at := begin.Add(time.Duration(r.Int64N(int64(w.load))))
		q := &askedCall{n: n, id: fmt.Sprintf("call-%d", n), origin: fmt.Sprintf("http://hook-%d.example", r.IntN(callOrigins)), method: pick(r, "POST", "PUT", "DELETE"), timeout: pick(r, 2*time.Second, 8*time.Second)}
		if n < 2 {
			q.timeout = callLongest // it is claimed again while its request is under way
		}
		if q.due = at.UnixMilli() + r.Int64N(w.longest); r.IntN(3) == 0 {
			q.due = max(burst, at.UnixMilli())
		}
		if q.backoff = callBackoff; w.truth != nil && w.deaf == 0 && more.IntN(2) == 0 {
			q.backoff = 2 * callPause // longer than what Retry-After asks for
		}
		cancel := time.Time{}
		if r.IntN(4) == 0 {
			q.cancelled, cancel = true, time.UnixMilli(around(r, at.UnixMilli(), q.due+r.Int64N(4000)))
		}
		w.calls.asked[q.id] = q
		w.calls.asking.Go(func() {
			time.Sleep(time.Until(at))
			w.askCall(q)
			if q.cancelled {
				time.Sleep(time.Until(cancel))
				w.client.Produce(context.Background(), &kgo.Record{Topic: schemas.TopicIntake, Key: []byte(q.id), Headers: recordtest.Headers(
					schemas.HeaderOp, "cancel", schemas.HeaderTopic, q.origin, schemas.HeaderID, q.id)}, nil)
			}
		})
	}
}

func (w *world) askCall(q *askedCall) {
	r := &kgo.Record{Topic: schemas.TopicIntake, Key: []byte(q.id), Value: []byte(strconv.Itoa(q.n)), Headers: recordtest.Headers(
		schemas.HeaderURL, q.url(), schemas.HeaderMethod, q.method, schemas.HeaderID, q.id, schemas.HeaderAt, strconv.FormatInt(q.due, 10),
		schemas.HeaderMaxAttempts, strconv.Itoa(callAttempts), schemas.HeaderBackoff, "fixed:"+q.backoff.String(), schemas.HeaderAckTimeout, q.timeout.String(),
		schemas.HeaderEvents, "all", "app", "sim", "app", "twice")}
	w.client.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
		if err != nil {
			w.find("sim", "Kafka did not take a request for a callback: %v", err)
		}
	})
}

func isOrigin(target string) bool { return strings.HasPrefix(target, "http://") }

// isCall tells whether a record is about a callback.
func isCall(r *kgo.Record) bool {
	if r.Topic == schemas.TopicResults {
		e, err := schemas.DecodeEvent(r)
		return err == nil && isOrigin(e.Topic)
	}
	return r.Topic == schemas.TopicIntake && slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool {
		return h.Key == schemas.HeaderURL || h.Key == schemas.HeaderTopic && isOrigin(string(h.Value))
	})
}

// callTrouble breaks the receivers, beside whatever else happens, and waits until they are well again. It is drawn on its own, and no
// fault of the history: it delays callbacks only.
func (w *world) callTrouble() {
	r := rand.New(rand.NewPCG(w.seed, 12))
	for range w.deaf {
		time.Sleep(time.Duration(r.Int64N(int64(w.load))))
		kind, c := drawCondition(r)
		w.note("the receivers: %s", kind)
		w.receivers.set(c)
		if c.refuse {
			w.cut(w.receivers)
		}
		time.Sleep(spans[r.IntN(len(spans))])
		w.receivers.set(condition{})
		w.note("the receivers are well")
	}
}
