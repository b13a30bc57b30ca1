package dispatcher

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/test/lettertest"
)

// receiver answers callbacks and remembers them.
type receiver struct {
	*httptest.Server
	collected[received]
	answer atomic.Pointer[http.HandlerFunc] // of this moment
}

type received struct {
	id, attempt, key, method, path string
	body                           []byte
	header                         http.Header
	at                             time.Time
}

func (f *fixture) receive(answer http.HandlerFunc) *receiver {
	f.Helper()
	r := &receiver{}
	r.change(answer)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.add(received{q.Header.Get("Notyet-Id"), q.Header.Get("Notyet-Attempt"), q.Header.Get("Idempotency-Key"), q.Method, q.URL.String(), body, q.Header.Clone(), time.Now()})
		if answer := *r.answer.Load(); answer != nil {
			answer(w, q)
		}
	}))
	f.Cleanup(r.CloseClientConnections) // those that hang end first
	f.Cleanup(r.Close)
	return r
}

func (r *receiver) change(answer http.HandlerFunc) { r.answer.Store(&answer) }

// attempts counts the requests by id and attempt.
func (r *receiver) attempts() map[string]int {
	out := map[string]int{}
	for _, g := range r.all() {
		out[g.id+"/"+g.attempt]++
	}
	return out
}

func answering(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) }
}

// hang answers nothing until the caller gives up, or the server ends.
func hang(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }

// callsTo lets dispatchers make callbacks to this machine.
func (f *fixture) callsTo(cfg callback.Config) {
	f.Helper()
	cfg.URLRules = callback.URLRules{Enabled: true, AllowHTTP: true, AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	var err error
	f.calls, err = callback.New(cfg, zap.NewNop(), prometheus.NewRegistry())
	require.NoError(f, err)
	f.Cleanup(f.calls.Close)
}

// call makes a request for a callback; headers are pairs.
func call(url, id string, due time.Time, headers ...string) *kgo.Record {
	r := ask("", id, due, headers...)
	r.Headers = slices.DeleteFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == schemas.HeaderTopic })
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: schemas.HeaderURL, Value: []byte(url)})
	return r
}

func (f *fixture) state(topic, id string) string {
	v, err := look.New(f.store).Get(f.Context(), topic, id)
	if err != nil {
		return err.Error()
	}
	return v.State
}

func TestACallbackIsSent(t *testing.T) {
	f := newFixture(t, 2, "orders")
	web, orders, events := f.receive(nil), f.read("orders"), f.read(results)
	f.callsTo(callback.Config{})
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	due := time.Now().Add(500 * time.Millisecond)
	r := call(web.URL+"/hooks?x=1", "one", due, schemas.HeaderMethod, "PUT", schemas.HeaderEvents, "all", "content-type", "text/x")
	r.Value = []byte("\x00body\xff")
	f.schedule(r, ask("orders", "beside", due))
	f.eventually("both are delivered", func() bool { return web.count() == 1 && orders.count() == 1 })
	f.eventually("it is told", func() bool { return len(events.events(t, schemas.StateSucceeded)["one"]) == 1 })
	got := web.all()[0]
	require.False(t, got.at.Before(due.Truncate(time.Millisecond)), "never early")
	require.Equal(t, "PUT /hooks?x=1", got.method+" "+got.path)
	require.Equal(t, r.Value, got.body)
	require.Equal(t, "text/x", got.header.Get("Content-Type"))
	require.Equal(t, strconv.FormatInt(due.UnixMilli(), 10), got.header.Get("Notyet-Due"))
	require.Equal(t, "1", got.attempt)
	require.Equal(t, f.source.DeliveryKey(f.source.Next-2, 1), got.key)
	require.Equal(t, web.URL, events.events(t, schemas.StateDispatched)["one"][0].Topic)
	f.eventually("done passes it, and nothing is written for it", func() bool { return f.state(web.URL, "one") == "delivered" })
	f.eventually("both count", func() bool { return counted(d.metrics.Delivered) == 2 }) // Kafka's answer comes after the record is there
	require.NoError(t, d.end())
	require.Equal(t, 1, web.count())
}

// What becomes of a task by the answer.
func TestAnswersOfCallbacks(t *testing.T) {
	f := newFixture(t, 2)
	events := f.read(results)
	f.callsTo(callback.Config{})
	f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	var one sync.Mutex // of those who schedule
	once := func(answer http.HandlerFunc) http.HandlerFunc {
		var first sync.Once
		return func(w http.ResponseWriter, q *http.Request) { first.Do(func() { answer(w, q) }) }
	}
	for name, c := range map[string]struct {
		answer   http.HandlerFunc
		headers  []string
		state    string // in the end
		attempts int
		kind     string
		reason   string // contains the status
	}{
		"500 then 200":                      {once(answering(500)), nil, "delivered", 2, "", ""},
		"408 then 200":                      {once(answering(408)), nil, "delivered", 2, "", ""},
		"cut then 200":                      {once(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), nil, "delivered", 2, "", ""},
		"302":                               {func(w http.ResponseWriter, q *http.Request) { http.Redirect(w, q, "/other", http.StatusFound) }, nil, "dead", 1, schemas.KindCallback, "answered 302"},
		"404":                               {func(w http.ResponseWriter, q *http.Request) { http.Error(w, "no such hook", 404) }, nil, "dead", 1, schemas.KindCallback, "answered 404: no such hook"},
		"503 for ever":                      {answering(503), []string{schemas.HeaderMaxAttempts, "3"}, "dead", 3, schemas.KindDead, "attempts exhausted (3); the last: "},
		"503, too late for another attempt": {answering(503), []string{schemas.HeaderMaxLateness, "1m", schemas.HeaderBackoff, "fixed:1h"}, "dead", 1, schemas.KindExpired, "notyet-max-lateness 1m0s"},
		"503 then 200 in time":              {once(answering(503)), []string{schemas.HeaderMaxLateness, "1h"}, "delivered", 2, "", ""},
		"204 and report":                    {answering(204), []string{schemas.HeaderAck, "report", schemas.HeaderAckTimeout, "1h"}, "waiting_report", 1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			web := f.receive(c.answer)
			one.Lock()
			headers := append(c.headers, schemas.HeaderEvents, "all")
			if !slices.Contains(headers, schemas.HeaderBackoff) {
				headers = append(headers, schemas.HeaderBackoff, "fixed:20ms")
			}
			f.schedule(call(web.URL, name, time.Now(), headers...))
			one.Unlock()
			require.Eventually(t, func() bool { return f.state(web.URL, name) == c.state }, bound, tick)
			keys := map[string]bool{}
			for i, got := range web.all() {
				require.Equal(t, strconv.Itoa(i+1), got.attempt)
				keys[got.key] = true
			}
			require.Len(t, keys, c.attempts, "each attempt has its own")
			require.Eventually(t, func() bool { return len(events.events(t, schemas.StateRetrying)[name]) == c.attempts-1 }, bound, tick)
			if c.kind == "" {
				return
			}
			require.Eventually(t, func() bool { return len(events.events(t, schemas.StateDead)[name]) == 1 }, bound, tick)
			told := events.events(t, schemas.StateDead)[name][0]
			require.Equal(t, []any{c.kind, web.URL, c.attempts}, []any{told.Kind, told.Topic, told.Attempt})
			require.Contains(t, told.Reason, c.reason)
			dead, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{Topic: web.URL})
			require.NoError(t, err)
			require.Len(t, dead, 1)
			require.Equal(t, []any{c.kind, told.Reason, c.attempts}, []any{dead[0].Kind, dead[0].Reason, dead[0].Attempt})
			body, err := schemas.DecodeBody(dead[0].Body)
			require.NoError(t, err)
			require.Equal(t, web.URL, body.Settings.Callback.URL)
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	f := newFixture(t, 1)
	web := f.receive(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Notyet-Attempt") == "1" {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	f.callsTo(callback.Config{})
	f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	f.schedule(call(web.URL, "one", time.Now(), schemas.HeaderBackoff, "fixed:10ms"))
	f.eventually("it comes again", func() bool { return web.count() == 2 })
	got := web.all()
	require.GreaterOrEqual(t, got[1].at.Sub(got[0].at), 2*time.Second)
	_, h, err := look.New(f.store).GetHistory(t.Context(), web.URL, "one")
	require.NoError(t, err)
	i := slices.IndexFunc(h.Events, func(e schemas.Event) bool { return e.State == schemas.StateRetrying })
	require.NotEqual(t, -1, i, "the attempt that failed is remembered")
	require.Contains(t, h.Events[i].Reason, "429")
	require.GreaterOrEqual(t, h.Events[i].At, got[0].at.UnixMilli())
}

func TestARefusedCallbackIsADeadLetter(t *testing.T) {
	for name, c := range map[string]struct {
		calls  func(*fixture)
		reason string
	}{
		"none are made": {func(*fixture) {}, "set callback.enabled"},
		"by the guard":  {func(f *fixture) { f.callsTo(callback.Config{}) }, "callback.allowed-networks"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1)
			c.calls(f)
			f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
			f.schedule(call("http://10.1.2.3/", "one", time.Now()))
			f.eventually("it is dead", func() bool { return f.state("http://10.1.2.3", "one") == "dead" })
			dead, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{})
			require.NoError(t, err)
			require.Equal(t, schemas.KindCallback, dead[0].Kind)
			require.Contains(t, dead[0].Reason, c.reason)
			require.Zero(t, dead[0].Attempt, "nothing was sent")
		})
	}
}

// An origin that hangs, with far more due than may be under way, delays neither another origin nor a topic, and holds up no line for
// long. All of its tasks are delivered once it answers.
func TestAHangingOriginDelaysOnlyItself(t *testing.T) {
	f := newFixture(t, 4, "orders")
	bad, good, orders := f.receive(hang), f.receive(nil), f.read("orders")
	f.callsTo(callback.Config{MaxInFlight: 4, MaxInFlightTotal: 40})
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", StageTasks: 100, UnresponsiveAfter: 200 * time.Millisecond})
	const n = 300
	var requests []*kgo.Record
	due := time.Now().Add(100 * time.Millisecond)
	for i := range n {
		requests = append(requests, call(bad.URL, fmt.Sprint("bad", i), due, schemas.HeaderAckTimeout, "2s", schemas.HeaderBackoff, "fixed:100ms", schemas.HeaderMaxAttempts, "1000"))
	}
	f.schedule(requests...)
	f.eventually("it is asked", func() bool { return bad.count() >= 2 })
	requests = nil
	for i := range n {
		requests = append(requests, call(good.URL, fmt.Sprint("good", i), time.Now()), ask("orders", fmt.Sprint("order", i), time.Now()))
	}
	f.schedule(requests...)
	f.eventually("the others are delivered", func() bool { return good.count() == n && orders.count() == n })
	f.eventually("what hangs leaves its line", func() bool { return d.inside(func(in flight.Figures) int { return in.Stuck }) > 0 })
	bad.change(nil)
	f.eventually("all are delivered in the end", func() bool {
		ids := map[string]bool{}
		for _, got := range bad.all() {
			ids[got.id] = true
		}
		return len(ids) == n
	})
	f.eventually("nothing is left", func() bool {
		tasks, err := look.New(f.store).List(t.Context(), look.ListFilter{Limit: 1})
		return err == nil && len(tasks.Tasks) == 0
	})
	for attempt, copies := range bad.attempts() {
		require.Equal(t, 1, copies, attempt)
	}
	f.eventually("the dispatcher knows, too", func() bool {
		return d.inside(func(in flight.Figures) int { return in.Stuck + in.Calls + in.SentTasks }) == 0
	})
}

// An origin that is down is asked by one request at a time; its other tasks are put off without an attempt, and stay cancellable.
func TestAnOriginThatIsDownIsAskedSeldom(t *testing.T) {
	f := newFixture(t, 2)
	web := f.receive(answering(503))
	f.callsTo(callback.Config{MaxInFlight: 2})
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	const n = 100
	var requests []*kgo.Record
	for i := range n {
		requests = append(requests, call(web.URL, fmt.Sprint(i), time.Now()))
	}
	f.schedule(requests...)
	f.eventually("it is known to be down", func() bool {
		return d.inside(func(in flight.Figures) int { return in.Outlets }) == 1 && counted(d.metrics.Postponed) > n/2
	})
	asked := web.count()
	require.Less(t, asked, 30)
	f.eventually("the others can be cancelled", func() bool {
		page, err := look.New(f.store).List(t.Context(), look.ListFilter{State: "pending"})
		return err == nil && len(page.Tasks) > n/2
	})
	web.change(nil)
	f.eventually("all are called back when it answers", func() bool {
		delivered := map[string]bool{}
		for _, got := range web.all()[asked:] {
			delivered[got.id] = true
		}
		return len(delivered) == n
	})
	require.Zero(t, d.inside(func(in flight.Figures) int { return in.Parked }))
}

// After a kill, the next owner sends what was in doubt again: the same attempt under the same key. What the send log proves delivered it
// does not send.
func TestCallbacksInDoubtAreSentAgain(t *testing.T) {
	f := newFixture(t, 2)
	web := f.receive(nil)
	f.callsTo(callback.Config{})
	dir, m := t.TempDir(), f.elect(5)
	d := f.start(m, dir, Config{MemberID: "one"})
	f.schedule(call(web.URL, "done", time.Now()))
	f.eventually("one is delivered", func() bool { return web.count() == 1 && counted(d.metrics.Delivered) == 1 })
	web.change(hang)
	f.schedule(call(web.URL, "hangs", time.Now()))
	f.eventually("another is under way", func() bool { return web.count() == 2 })
	d.crash(m)
	web.change(nil)
	f.start(f.elect(6), dir, Config{MemberID: "two"})
	f.eventually("it is sent again", func() bool { return web.attempts()["hangs/1"] == 2 })
	f.eventually("both are settled", func() bool {
		return f.state(web.URL, "done") == "delivered" && f.state(web.URL, "hangs") == "delivered"
	})
	require.Equal(t, map[string]int{"done/1": 1, "hangs/1": 2}, web.attempts())
	keys := map[string]bool{}
	for _, got := range web.all()[1:] {
		keys[got.key] = true
	}
	require.Len(t, slices.Collect(maps.Keys(keys)), 1)
}

// A stop ends requests that are under way: it does not wait for a receiver that hangs.
func TestAStopInterruptsCallbacks(t *testing.T) {
	f := newFixture(t, 1)
	web := f.receive(hang)
	f.callsTo(callback.Config{})
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", DrainTimeout: time.Second})
	f.schedule(call(web.URL, "one", time.Now(), schemas.HeaderAckTimeout, "5m"))
	f.eventually("it is under way", func() bool { return web.count() == 1 })
	require.NoError(t, d.end())
	web.change(nil)
	f.start(f.elect(6), t.TempDir(), Config{MemberID: "two"})
	f.eventually("the next owner sends it", func() bool { return web.count() == 2 })
	require.Equal(t, map[string]int{"one/1": 2}, web.attempts())
}

// An origin's bound holds for all dispatchers together, and follows the slots where they go.
func TestDispatchersShareAnOriginsRoom(t *testing.T) {
	f := newFixture(t, 4)
	const bound, each = 8, 60
	var now, most atomic.Int64
	full := make(chan struct{}) // closed once as many requests are under way as may be
	fill := sync.OnceFunc(func() { close(full) })
	web := f.receive(func(w http.ResponseWriter, q *http.Request) {
		n := now.Add(1)
		for before := most.Load(); n > before && !most.CompareAndSwap(before, n); before = most.Load() {
		}
		if n >= bound {
			fill()
		}
		select {
		case <-full:
		case <-q.Context().Done():
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-q.Context().Done():
		}
		now.Add(-1)
	})
	var ds []*running
	for i, id := range []string{"one", "two"} {
		f.callsTo(callback.Config{MaxInFlight: bound}) // a process of its own
		m := f.elect(5)
		m.current.Slots = f.slots[2*i : 2*i+2]
		d := f.start(m, t.TempDir(), Config{MemberID: id})
		f.eventually("it has its share", func() bool { return d.owned() == 2 })
		ds = append(ds, d)
	}
	due := time.Now().Add(time.Second)
	for i := range 2 * each {
		r := call(web.URL, fmt.Sprint(i), due)
		r.Key = []byte(fmt.Sprint(i))
		f.schedule(r)
	}
	f.eventually("all are delivered", func() bool { return web.count() >= 2*each })
	require.EqualValues(t, bound, most.Load(), "both have sent")
	_, err := admin.New(f.store).SetSlots(t.Context(), 8)
	require.NoError(t, err)
	f.eventually("a part of more slots is less", func() bool {
		return ds[0].inside(func(in flight.Figures) int { return int(100 * in.Part) }) == 25
	})
}

// A tenant's origins answer once and then take for ever. Another tenant's callbacks go at once all the same, also to an origin that nobody
// has called before.
func TestSlowOriginsOfATenantDelayNobodyElse(t *testing.T) {
	f := newFixture(t, 4)
	shop := &fixture{T: f.T, store: f.store}
	var err error
	shop.source, err = intake.New(f.store).Source(t.Context(), "intake.shop", [16]byte{8}, 0, 0)
	require.NoError(t, err)
	slow, good := f.receive(nil), f.receive(nil)
	f.callsTo(callback.Config{MaxInFlight: 64, MaxInFlightTotal: 128, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		server := slow.Listener.Addr().String()
		if strings.HasPrefix(address, "good") {
			server = good.Listener.Addr().String()
		}
		return new(net.Dialer).DialContext(ctx, network, server)
	}})
	f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	const origins, each = 60, 6
	ask := func(round, n int) (requests []*kgo.Record) {
		for i := range origins * n {
			requests = append(requests, call(fmt.Sprintf("http://slow%d.example", i%origins), fmt.Sprintf("%d-%d", round, i), time.Now(), schemas.HeaderAckTimeout, "4m"))
		}
		return requests
	}
	f.schedule(call("http://good.example", "first", time.Now()))
	shop.schedule(ask(0, 1)...)
	f.eventually("each origin answers", func() bool { return slow.count() == origins && good.count() == 1 })
	slow.change(hang)
	shop.schedule(ask(1, each)...)
	f.eventually("the slow ones have what they get", func() bool { return slow.count() >= origins+128/9 })
	f.passes(time.Now().Add(1500 * time.Millisecond))
	due := time.Now()
	for i := range 10 {
		f.schedule(call("http://good.example", fmt.Sprint("good", i), due), call(fmt.Sprintf("http://good%d.example", i), fmt.Sprint("new", i), due))
	}
	f.eventually("the others' callbacks arrive long before a slow one gives up its seat", func() bool { return good.count() == 21 })
	for _, got := range good.all()[1:] {
		if late := got.at.Sub(due); late > 10*time.Second { // how fast this machine is
			t.Logf("%s was called back %v late, beyond the goal of 10 s", got.id, late)
		}
	}
}
