package target

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/share"
)

func origins(each, all int) *Origins {
	os := NewOrigins()
	os.Limit(each, all, 1)
	return os
}

// fill takes as many seats for requests to the origin as there are.
func fill(os *Origins, origin string, now time.Time) (taken []*share.Seat) {
	for o := os.Keep(origin); os.Lacks(o, "", now) == ""; {
		taken = append(taken, os.Take(o, "", now))
	}
	return taken
}

// prove makes the origin one that answers.
func prove(os *Origins, origin string, now time.Time) {
	o := os.Keep(origin)
	os.Leave(o, os.Take(o, "", now), true, now)
}

// down returns an origin that has just failed once too often.
func down(t *testing.T, now time.Time) *Origin {
	t.Helper()
	o := origins(64, 1024).Keep("https://a")
	for i := range failuresToClose {
		require.True(t, o.Bar().IsOpen())
		require.Equal(t, i == failuresToClose-1, o.Failed(false, 0, now))
	}
	require.Equal(t, Down, o.Bar().Why())
	return o
}

func TestAnOriginIsDownAfterTenFailuresInARow(t *testing.T) {
	now := time.Now()
	require.Equal(t, time.Second, down(t, now).Bar().Wait(now))

	o := origins(64, 1024).Keep("https://a") // an answer in between begins anew
	for range 5 {
		for range failuresToClose - 1 {
			require.False(t, o.Failed(false, 0, now))
		}
		require.False(t, o.Responded())
		require.True(t, o.Bar().IsOpen())
	}
}

func TestAnOriginThatIsDownIsAskedByOneAtATime(t *testing.T) {
	now := time.Now()
	o := down(t, now)
	b := o.Bar()
	require.False(t, o.Failed(false, time.Minute, now), "sent before it was down")
	pause := time.Second
	for range 10 {
		require.Equal(t, pause, b.Wait(now))
		require.False(t, b.MayAsk(now.Add(pause-time.Nanosecond)))
		now = now.Add(pause)
		require.True(t, b.MayAsk(now))
		b.Ask(now)
		require.False(t, b.MayAsk(now.Add(time.Hour)), "one is under way")
		now = now.Add(time.Second)
		b.Asked()
		require.False(t, o.Failed(true, 0, now))
		pause = min(2*pause, time.Minute)
	}
	require.Equal(t, time.Minute, pause)

	b.Ask(now.Add(pause))
	b.Asked()
	require.True(t, o.Responded())
	require.True(t, b.IsOpen())
	require.Zero(t, o.of.Counts().Down)
	for range failuresToClose {
		o.Failed(false, 0, now)
	}
	require.Equal(t, time.Second, b.Wait(now), "the next outage begins with the first pause")
}

// Retry-After puts off the task that it answers for as long, and the others of its origin for a minute at most: the origin may be shared.
func TestAnOriginThatIsDownHeedsRetryAfterForAMinute(t *testing.T) {
	now := time.Now()
	o := down(t, now)
	for _, c := range []struct{ asks, rests time.Duration }{{20 * time.Second, 20 * time.Second}, {time.Hour, time.Minute}} {
		now = now.Add(o.Bar().Wait(now))
		o.Bar().Ask(now)
		o.Bar().Asked()
		o.Failed(true, c.asks, now)
		require.Equal(t, c.rests, o.Bar().Wait(now))
	}
}

// A request that was to ask, and says nothing about its origin, leaves the question to the next one. It does not make the pause longer.
func TestAQuestionThatSaysNothingIsAskedAgain(t *testing.T) {
	now := time.Now()
	b := down(t, now).Bar()
	for range 5 {
		now = now.Add(time.Second)
		require.True(t, b.MayAsk(now))
		b.Ask(now)
		b.Asked()
		b.Unasked(now)
		require.Equal(t, time.Second, b.Wait(now))
	}
	b.Open()
	b.Unasked(now)
	require.Equal(t, Bar{}, *b)
}

// An answer to a request from before the outage ends it as well.
func TestALateAnswerEndsTheOutage(t *testing.T) {
	now := time.Now()
	o := down(t, now)
	o.Bar().Ask(now.Add(time.Second))
	require.True(t, o.Responded())
	o.Bar().Asked()
	require.False(t, o.Failed(true, time.Minute, now), "its own answer is one failure of a healthy origin")
	require.Equal(t, Bar{}, o.bar)
}

func TestSeatsOfAnOriginAreBounded(t *testing.T) {
	now := time.Now()
	os := origins(64, 1024)
	taken := fill(os, "https://a", now)
	require.Len(t, taken, 64)
	a := os.Keep("https://a")
	require.Equal(t, OriginFull, os.Lacks(a, "", now))
	require.Empty(t, os.Lacks(os.Known("https://b"), "", now))
	require.Equal(t, Counts{Held: 64, Slow: 64, Busy: 1, Known: 1}, os.Counts())
	os.Leave(a, taken[0], true, now)
	require.Empty(t, os.Lacks(a, "", now))
	require.Len(t, fill(os, "https://a", now), 1)
}

// However small its share is, a dispatcher sends one request at a time: the origin's tasks in its slots are nobody else's.
func TestAShareIsAtLeastOneRequest(t *testing.T) {
	for part, want := range map[float64]int{0: 1, 0.05: 1, 0.25: 2, 1: 10} {
		os := NewOrigins()
		os.Limit(10, 100, part)
		require.Len(t, fill(os, "https://a", time.Now()), want, part)
	}
}

// Other numbers count from the next request on. Those under way count among them, and the share is of the new number.
func TestOtherNumbersOfSeats(t *testing.T) {
	now := time.Now()
	os := NewOrigins()
	os.Limit(8, 1024, 0.5)
	a, b := os.Keep("https://a"), os.Known("https://b")
	taken := fill(os, "https://a", now)
	require.Len(t, taken, 4)
	os.Limit(4, 1024, 0.5)
	for n, s := range taken {
		lacks := os.Lacks(a, "", now)
		require.Equal(t, n < 3, lacks == OriginFull, "%d have left", n)
		if lacks != "" {
			os.Leave(a, s, true, now)
		}
	}
	os.Limit(40, 1024, 0.5)
	require.Len(t, fill(os, "https://a", now), 19, "half of 40 without the one under way")
	os.Limit(40, 20, 0.5)
	require.Equal(t, Full, os.Lacks(b, "", now))
	os.Limit(40, 60, 0.5)
	require.Empty(t, os.Lacks(b, "", now))
}

// However many origins take what they get and give nothing back, those that answer keep room.
func TestHalfOfTheSeatsIsForOriginsThatAnswer(t *testing.T) {
	now := time.Now()
	os := origins(64, 1024)
	prove(os, "https://good", now)
	for i := range 5000 {
		fill(os, fmt.Sprintf("https://%d.evil", i), now)
	}
	require.Equal(t, 480, os.Counts().Held)
	require.Equal(t, Full, os.Lacks(os.Known("https://new"), "", now))
	require.Len(t, fill(os, "https://good", now), 53, "a ninth of what is left to its tenant")

	// In time those that have seats have failed, and there is room for new ones.
	os = origins(64, 1024)
	for range 2 {
		all := map[string][]*share.Seat{}
		for i := range 100 {
			name := fmt.Sprintf("https://%d.evil", i)
			all[name] = fill(os, name, now)
		}
		require.Equal(t, 480, os.Counts().Held)
		for name, seats := range all {
			for _, s := range seats {
				os.Leave(os.Keep(name), s, false, now)
			}
		}
	}
	require.Empty(t, os.Lacks(os.Known("https://new"), "", now))
}

func TestIdleOriginsAreForgotten(t *testing.T) {
	now := time.Now()
	os := origins(64, 1024)
	busy := os.Keep("https://busy")
	seat := os.Take(busy, "", now)
	broken := os.Keep("https://broken")
	for range failuresToClose {
		broken.Failed(false, 0, now)
	}
	broken.Drop(now)
	for i := range 3 * mostOrigins {
		now = now.Add(time.Millisecond)
		o := os.Keep(fmt.Sprintf("https://%d", i))
		o.Failed(false, 0, now)
		o.Drop(now)
	}
	require.Equal(t, Counts{Held: 1, Slow: 1, Busy: 1, Known: mostOrigins, Down: 1}, os.Counts())
	require.Same(t, broken, os.Known("https://broken"), "one that does not answer is remembered before others")
	require.Same(t, busy, os.Known("https://busy"), "somebody knows it")
	os.Leave(busy, seat, true, now)

	// With tasks for more origins than that, all are remembered, and later no more than that.
	var many []*Origin
	for i := range 2 * mostOrigins {
		many = append(many, os.Keep(fmt.Sprintf("https://many-%d", i)))
	}
	require.Same(t, many[0], os.Known("https://many-0"))
	for _, o := range many {
		for range failuresToClose {
			o.Failed(false, 0, now)
		}
		o.Drop(now)
	}
	for i := range 2 * mostOrigins {
		os.Keep(fmt.Sprintf("https://next-%d", i%100)).Drop(now)
		os.Keep(fmt.Sprintf("https://after-%d", i)).Drop(now)
	}
	require.LessOrEqual(t, os.Counts().Known, mostOrigins)
	n := 0
	for _, o := range os.byName {
		if !o.bar.IsOpen() {
			n++
		}
	}
	require.Equal(t, n, os.Counts().Down)
}

// Whatever comes and goes, the counts are those of the origins.
func TestOriginsAreCounted(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	os, now := origins(4, 16), time.Now()
	seats := map[*Origin][]*share.Seat{}
	check := func() {
		want := Counts{Known: len(os.byName), Slow: os.seats.Slow()}
		for _, o := range os.byName {
			want.Held += o.holder.Held()
			if o.holder.Held() > 0 {
				want.Busy++
			}
			if !o.bar.IsOpen() {
				want.Down++
			}
		}
		require.Equal(t, want, os.Counts())
	}
	for range 10_000 {
		now = now.Add(time.Duration(random.IntN(200)) * time.Millisecond)
		o := os.Keep(fmt.Sprintf("https://%d", random.IntN(7)))
		switch of := seats[o]; {
		case random.IntN(2) == 0 && len(of) > 0:
			os.Leave(o, of[0], random.IntN(3) > 0, now)
			if seats[o] = of[1:]; random.IntN(8) > 0 {
				o.Failed(random.IntN(2) == 0, 0, now)
			} else {
				o.Responded()
			}
		case os.Lacks(o, "", now) == "":
			seats[o] = append(of, os.Take(o, "", now))
		}
		check()
	}
	for o, of := range seats {
		for _, s := range of {
			os.Leave(o, s, true, now)
		}
	}
	check()
	require.Zero(t, os.Counts().Held)
}

// 300 origins of a tenant answer once, and then take 280 seconds for each request, of which they get twelve each, again and again. The
// callbacks of another tenant go at once, whether their origins have been called before or not.
func TestSlowOriginsOfATenantDelayNoOtherTenant(t *testing.T) {
	const slowOnes, each = 300, 12
	type request struct {
		origin *Origin
		seat   *share.Seat
		until  time.Time
	}
	os, now := origins(64, 2048), time.Now()
	var underWay []request
	send := func(tenant, host string, takes time.Duration) bool {
		o := os.Keep(host)
		if !o.Bar().IsOpen() || os.Lacks(o, tenant, now) != "" {
			return false
		}
		underWay = append(underWay, request{o, os.Take(o, tenant, now), now.Add(takes)})
		return true
	}
	passes := func(d time.Duration) {
		now = now.Add(d)
		underWay = slices.DeleteFunc(underWay, func(r request) bool {
			if r.until.After(now) {
				return false
			}
			os.Leave(r.origin, r.seat, true, now)
			r.origin.Responded()
			return true
		})
	}
	var waiting []string // for seats
	for i := range slowOnes {
		host := fmt.Sprintf("slow%d.example", i)
		require.True(t, send("shop", host, 0))
		waiting = append(waiting, slices.Repeat([]string{host}, each)...)
		passes(0)
	}
	require.True(t, send("billing", "good.example", 0))
	passes(100 * time.Millisecond)
	type wish struct {
		host  string
		asked time.Time
	}
	var wishes []wish
	var late []time.Duration
	for n := range 6000 { // five minutes
		if n%10 == 0 {
			waiting = slices.DeleteFunc(waiting, func(host string) bool { return send("shop", host, 280*time.Second) })
			if len(waiting) < slowOnes {
				waiting = append(waiting, "slow0.example")
			}
		}
		host := "good.example"
		if n%100 == 0 {
			host = fmt.Sprintf("good%d.example", n)
		}
		wishes = slices.DeleteFunc(append(wishes, wish{host, now}), func(w wish) bool {
			sent := send("billing", w.host, 0)
			if sent {
				late = append(late, now.Sub(w.asked))
			}
			return sent
		})
		passes(50 * time.Millisecond)
	}
	slices.Sort(late)
	require.Len(t, late, 6000)
	require.Less(t, late[len(late)*99/100], time.Second)
	require.Less(t, late[len(late)-1], 5*time.Second)
	require.Greater(t, os.Counts().Slow, 100)
}
