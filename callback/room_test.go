package callback

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fill lets in as many requests to the origin as there is room for.
func fill(r *room, origin string, now time.Time) (taken []permit) {
	for {
		p, why, _ := r.enter(origin, "", now)
		if why != "" {
			return taken
		}
		taken = append(taken, p)
	}
}

// prove makes the origin one that answers.
func prove(t *testing.T, r *room, origin string, now time.Time) {
	t.Helper()
	p, why, _ := r.enter(origin, "", now)
	require.Empty(t, why)
	r.leave(p, delivered, now)
}

func TestRoomBoundsAnOrigin(t *testing.T) {
	now := time.Now()
	r := newRoom(64, 1024)
	taken := fill(r, "https://a", now)
	require.Len(t, taken, 64)
	_, why, wait := r.enter("https://a", "", now)
	require.Equal(t, whyOrigin, why)
	require.Positive(t, wait)
	require.Positive(t, r.wait("https://a", now))
	require.Zero(t, r.wait("https://b", now))
	r.leave(taken[0], delivered, now)
	require.Zero(t, r.wait("https://a", now))
	require.Len(t, fill(r, "https://a", now), 1)
}

// However small its share is, a dispatcher sends one request at a time: the origin's tasks in its slots are nobody else's.
func TestAShareIsAtLeastOneRequest(t *testing.T) {
	r := newRoom(10, 100)
	for part, want := range map[float64]int{0: 1, 0.05: 1, 0.25: 2, 1: 10} {
		r.share(part)
		require.Equal(t, want, r.perOrigin, part)
	}
}

// Other numbers count from the next request on. Those in flight count among them, and the share is of the new number.
func TestOtherNumbersOfARoom(t *testing.T) {
	now := time.Now()
	r := newRoom(8, 1024)
	r.share(0.5)
	taken := fill(r, "https://a", now)
	require.Len(t, taken, 4)
	r.limit(4, 1024)
	for n, p := range taken {
		_, why, _ := r.enter("https://a", "", now)
		require.Equal(t, n < 3, why == whyOrigin, "%d have left", n)
		if why != "" {
			r.leave(p, delivered, now)
		}
	}
	r.limit(40, 1024)
	require.Len(t, fill(r, "https://a", now), 18, "half of 40 without the two in flight")
	r.limit(40, 20)
	_, why, _ := r.enter("https://b", "", now)
	require.Equal(t, whyFull, why)
	r.limit(40, 60)
	_, why, _ = r.enter("https://b", "", now)
	require.Empty(t, why)
}

// However many origins take what they get and give nothing back, those that answer keep room.
func TestRoomKeepsHalfForOriginsThatAnswer(t *testing.T) {
	now := time.Now()
	r := newRoom(64, 1024)
	prove(t, r, "https://good", now)
	for i := range 5000 {
		fill(r, fmt.Sprintf("https://%d.evil", i), now)
	}
	inFlight, _, _ := r.counts()
	require.Equal(t, 480, inFlight)
	_, why, _ := r.enter("https://new", "", now)
	require.Equal(t, whyFull, why)
	require.Len(t, fill(r, "https://good", now), 53, "a ninth of what is left to its tenant")

	// In time those that were let in have failed, and there is room for new ones.
	r = newRoom(64, 1024)
	var all []permit
	for i := range 100 {
		all = append(all, fill(r, fmt.Sprintf("https://%d.evil", i), now)...)
	}
	for _, p := range all {
		r.leave(p, noAnswer, now)
	}
	_, why, _ = r.enter("https://new", "", now)
	require.Empty(t, why)
}

func TestRoomForgetsOrigins(t *testing.T) {
	now := time.Now()
	r := newRoom(64, 1024)
	busy, why, _ := r.enter("https://busy", "", now)
	require.Empty(t, why)
	for range failuresToOpen {
		p, why, _ := r.enter("https://broken", "", now)
		require.Empty(t, why)
		r.leave(p, noAnswer, now)
	}
	for i := range 3 * maxOrigins {
		now = now.Add(time.Millisecond)
		p, why, _ := r.enter(fmt.Sprintf("https://%d", i), "", now)
		require.Empty(t, why)
		r.leave(p, noAnswer, now)
	}
	_, origins, open := r.counts()
	require.LessOrEqual(t, origins, maxOrigins)
	require.Equal(t, 1, open)
	require.Positive(t, r.wait("https://broken", now.Add(-time.Hour)), "one that does not answer is remembered before others")
	r.leave(busy, delivered, now) // it would panic if a busy one were forgotten
}

func TestRoomCountsUnderConcurrency(t *testing.T) {
	r := newRoom(4, 16)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for n := range 200 {
				p, why, _ := r.enter(fmt.Sprintf("https://%d", (i+n)%7), "", time.Now())
				if why != "" {
					continue
				}
				o := delivered
				if n%3 == 0 {
					o = noAnswer
				}
				r.leave(p, o, time.Now())
			}
		})
	}
	wg.Wait()
	inFlight, origins, open := r.counts()
	require.Zero(t, inFlight)
	require.Equal(t, 7, origins)
	want := 0
	for _, o := range r.origins {
		require.Zero(t, o.Held())
		if o.circuit.open {
			want++
		}
	}
	require.Equal(t, want, open)
}

// 300 origins of a tenant answer once, and then take 280 seconds for each request, of which they get twelve each, again and again. The
// callbacks of another tenant go at once, whether their origins have been called before or not.
func TestSlowOriginsOfATenantDelayNoOtherTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const origins, each = 300, 12
		var slow atomic.Bool
		s, stop := serveMemory(t, Config{}, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if slow.Load() && strings.HasPrefix(r.Host, "slow") {
				select {
				case <-time.After(280 * time.Second):
				case <-r.Context().Done():
				}
			}
		})
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		var under sync.WaitGroup
		defer under.Wait()
		defer cancel()
		// send makes an attempt for a tenant when there is room, and returns whether there is.
		send := func(tenant, host string, then func()) bool {
			seat, _ := s.Enter("http://"+host, tenant)
			if seat == nil {
				return false
			}
			request := requestTo("http://" + host + "/")
			request.Timeout = 5 * time.Minute
			under.Go(func() { seat.Send(ctx, request); then() })
			return true
		}
		var waiting []string // for seats
		for i := range origins {
			require.True(t, send("shop", fmt.Sprintf("slow%d.example", i), func() {}))
			waiting = append(waiting, slices.Repeat([]string{fmt.Sprintf("slow%d.example", i)}, each)...)
			synctest.Wait()
		}
		require.True(t, send("billing", "good.example", func() {}))
		time.Sleep(100 * time.Millisecond)
		slow.Store(true)
		var late collected
		for n := range 6000 { // five minutes
			if n%10 == 0 {
				waiting = slices.DeleteFunc(waiting, func(host string) bool { return send("shop", host, func() {}) })
				if len(waiting) < origins {
					waiting = append(waiting, "slow0.example")
				}
			}
			host, asked := "good.example", time.Now()
			if n%100 == 0 {
				host = fmt.Sprintf("good%d.example", n)
			}
			under.Go(func() {
				for !send("billing", host, func() { late.add(time.Since(asked)) }) && ctx.Err() == nil {
					time.Sleep(fullPause)
				}
			})
			time.Sleep(50 * time.Millisecond)
		}
		synctest.Wait()
		got := late.sorted()
		require.Len(t, got, 6000)
		require.Less(t, got[len(got)*99/100], time.Second)
		require.Less(t, got[len(got)-1], 5*time.Second)
	})
}

type collected struct {
	mu   sync.Mutex
	list []time.Duration
}

func (c *collected) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, d)
}

func (c *collected) sorted() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.list))
}
