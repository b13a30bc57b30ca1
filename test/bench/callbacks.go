package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// Callbacks schedules rate HTTP callbacks a second to a receiver of its own on loopback, each due 3 to 5 s later at a random millisecond,
// and measures when the receiver has the whole request. A second origin gets hanging callbacks a second, and answers none of them while
// that lasts.
func (b *Bench) Callbacks(ctx context.Context, rate, hanging int, warmUp, last time.Duration) (*Result, error) {
	good, err := receive(nil)
	if err != nil {
		return nil, err
	}
	defer good.close()
	answer := make(chan struct{})
	bad, err := receive(answer)
	if err != nil {
		return nil, err
	}
	defer bad.close()
	answerAll := sync.OnceFunc(func() { close(answer) })
	defer answerAll()

	begin := time.Now().Add(warmUp + longestDelay)
	end := begin.Add(last)
	watch := b.watch(ctx, begin, end)
	b.cfg.Say("sending %d callbacks a second, and %d to an origin that does not answer; measuring from %s for %s", rate, hanging, begin.Format(time.TimeOnly), last)
	l, hung := b.newLoad(Variant{}), b.newLoad(Variant{})
	l.requests.url, hung.requests.url = good.url, bad.url
	var sums []uint64
	due := func() int64 {
		return time.Now().Add(shortestDelay).UnixMilli() + rand.Int64N((longestDelay - shortestDelay).Milliseconds())
	}
	err = pace(ctx, rate, time.Until(end)-shortestDelay, func() {
		rec := l.requests.record(b.cfg.Intake, l.sent, due())
		sums = append(sums, sum(rec.Value))
		l.produce(ctx, rec)
		l.sent++
		if hanging > 0 && rand.IntN(rate) < hanging {
			hung.send(ctx, due())
		}
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(l.flush(ctx), hung.flush(ctx)); err != nil {
		return nil, err
	}
	if _, err := b.grow(ctx, len(sums), end.Add(longestDelay), pollEvery, good.count); err != nil {
		return nil, err
	}
	t := (&tally{from: begin.UnixMilli(), to: end.UnixMilli()}).expect(len(sums))
	r := newResult("callbacks", len(sums))
	r.load = l
	r.figure("asked_per_s", float64(rate))
	if hanging > 0 {
		r.Variant = "hanging"
		r.figure("hanging_per_s", float64(hanging))
	}
	r.note("lateness is by the receiver's clock, when it has read the whole request")
	other := good.into(t, sums)
	r.delivered(t)
	r.Clock = "receiver"
	r.figure("not_as_sent", float64(other))
	if other > 0 {
		r.Wrong = append(r.Wrong, fmt.Sprintf("%d bodies are not what was sent", other))
	}
	if err := watch.into(r, b, t.dueIn); err != nil {
		return nil, err
	}
	answerAll() // otherwise these would be tried again for an hour
	_, err = b.grow(ctx, int(hung.sent), time.Now(), pollEvery, bad.count)
	return r, err
}

func sum(value []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(value)
	return h.Sum64()
}

// receiver takes callbacks.
type receiver struct {
	url    string
	server *http.Server
	hang   <-chan struct{} // until it is closed nothing is answered but the first requests; nil: answered at once
	free   int             // of the first requests

	mu       sync.Mutex
	arrivals []arrival
}

type arrival struct {
	at  int64 // Unix ms
	i   uint64
	due int64 // Unix ms
	sum uint64
}

func receive(hang <-chan struct{}) (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + listener.Addr().String() + "/bench", hang: hang}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 30 * time.Second}
	go func() { _ = r.server.Serve(listener) }()
	return r, nil
}

func (r *receiver) close() { _ = r.server.Close() }

// ServeHTTP notes one request.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	if n, _ := r.count(); r.hang != nil && n >= r.free {
		select {
		case <-r.hang:
		case <-req.Context().Done():
			return
		}
	}
	a := arrival{at: time.Now().UnixMilli(), sum: sum(body)}
	if len(body) >= headBytes {
		a.i, a.due = binary.BigEndian.Uint64(body), int64(binary.BigEndian.Uint64(body[8:]))
	}
	r.mu.Lock()
	r.arrivals = append(r.arrivals, a)
	r.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (r *receiver) count() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.arrivals), nil
}

// into tallies what came, and counts the bodies that are not what was sent.
func (r *receiver) into(t *tally, sums []uint64) (other int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.arrivals {
		if a.i >= uint64(len(sums)) || a.sum != sums[a.i] {
			other++
			continue
		}
		t.arrived(int(a.i), a.due, a.at)
	}
	return other
}
