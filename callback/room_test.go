package callback

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fill lets in as many requests to the origin as there is room for.
func fill(r *room, origin string, now time.Time) (taken []permit) {
	for {
		p, why, _ := r.enter(origin, now)
		if why != "" {
			return taken
		}
		taken = append(taken, p)
	}
}

// prove makes the origin one that answers.
func prove(t *testing.T, r *room, origin string, now time.Time) {
	t.Helper()
	p, why, _ := r.enter(origin, now)
	require.Empty(t, why)
	r.leave(p, delivered, now)
}

func TestRoomBoundsAnOrigin(t *testing.T) {
	now := time.Now()
	r := newRoom(64, 1024)
	taken := fill(r, "https://a", now)
	require.Len(t, taken, 64)
	_, why, wait := r.enter("https://a", now)
	require.Equal(t, whyOrigin, why)
	require.Positive(t, wait)
	require.Positive(t, r.wait("https://a", now))
	require.Zero(t, r.wait("https://b", now))
	r.leave(taken[0], delivered, now)
	require.Zero(t, r.wait("https://a", now))
	require.Len(t, fill(r, "https://a", now), 1)
}

// However many origins take what they get and give nothing back, those that answer keep room.
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
		_, why, _ := r.enter("https://a", now)
		require.Equal(t, n < 3, why == whyOrigin, "%d have left", n)
		if why != "" {
			r.leave(p, delivered, now)
		}
	}
	r.limit(40, 1024)
	require.Len(t, fill(r, "https://a", now), 18, "half of 40 without the two in flight")
	r.limit(40, 20)
	_, why, _ := r.enter("https://b", now)
	require.Equal(t, whyFull, why)
	r.limit(40, 60)
	_, why, _ = r.enter("https://b", now)
	require.Empty(t, why)
}

func TestRoomKeepsHalfForOriginsThatAnswer(t *testing.T) {
	now := time.Now()
	r := newRoom(64, 1024)
	prove(t, r, "https://good", now)
	for i := range 5000 {
		fill(r, fmt.Sprintf("https://%d.evil", i), now)
	}
	inFlight, _, _ := r.counts()
	require.Equal(t, 512, inFlight)
	_, why, _ := r.enter("https://new", now)
	require.Equal(t, whyFull, why)
	require.Len(t, fill(r, "https://good", now), 57, "an eighth of what is free afterwards")

	// In time those that were let in have failed, and there is room for new ones.
	r = newRoom(64, 1024)
	var all []permit
	for i := range 100 {
		all = append(all, fill(r, fmt.Sprintf("https://%d.evil", i), now)...)
	}
	for _, p := range all {
		r.leave(p, noAnswer, now)
	}
	_, why, _ = r.enter("https://new", now)
	require.Empty(t, why)
}

// Origins that answered once and then fall silent leave room to others, too.
func TestRoomOfOriginsThatFallSilent(t *testing.T) {
	now := time.Now()
	r := newRoom(64, 1024)
	for i := range 16 {
		prove(t, r, fmt.Sprintf("https://%d", i), now)
	}
	taken := map[int]int{}
	for i := range 16 {
		taken[i] = len(fill(r, fmt.Sprintf("https://%d", i), now))
	}
	inFlight, _, _ := r.counts()
	require.Less(t, inFlight, 1024-100, "%v", taken)
	require.Len(t, taken, 16)
	// Once silent, they get no more of the half that is kept.
	o := r.origins["https://0"]
	require.True(t, o.proven(now.Add(silentAfter-1)))
	require.False(t, o.proven(now.Add(silentAfter)))
}

func TestRoomIsBoundedInAll(t *testing.T) {
	now := time.Now()
	r := newRoom(64, 100)
	for i := range 1000 {
		prove(t, r, fmt.Sprintf("https://%d", i), now)
	}
	for i := range 1000 {
		fill(r, fmt.Sprintf("https://%d", i), now)
	}
	inFlight, _, _ := r.counts()
	require.Equal(t, 100, inFlight)
}

func TestRoomForgetsOrigins(t *testing.T) {
	now := time.Now()
	r := newRoom(64, 1024)
	busy, why, _ := r.enter("https://busy", now)
	require.Empty(t, why)
	for range failuresToOpen {
		p, why, _ := r.enter("https://broken", now)
		require.Empty(t, why)
		r.leave(p, noAnswer, now)
	}
	for i := range 3 * maxOrigins {
		now = now.Add(time.Millisecond)
		p, why, _ := r.enter(fmt.Sprintf("https://%d", i), now)
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
				p, why, _ := r.enter(fmt.Sprintf("https://%d", (i+n)%7), time.Now())
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
	require.Zero(t, r.unproven)
	require.Equal(t, 7, origins)
	want := 0
	for _, o := range r.origins {
		require.Zero(t, o.inFlight)
		if o.circuit.open {
			want++
		}
	}
	require.Equal(t, want, open)
}
