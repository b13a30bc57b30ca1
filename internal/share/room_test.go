package share

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fill takes as many seats as a place may have.
func fill(r *Room, tenant, place *Holder, now time.Time) (taken []*Seat) {
	for r.May(tenant, place, now) {
		taken = append(taken, r.Take(tenant, place, now))
	}
	return taken
}

// A tenant's places that answer, as often as they like, and then hang leave seats to another tenant, in each second, however many
// they are. So do other tenants' after them.
func TestSlowPlacesLeaveSeatsToOtherTenants(t *testing.T) {
	for _, c := range []struct{ total, tenants, quick, places int }{{1024, 1, 300, 300}, {2048, 1, 5000, 300}, {2048, 5, 5000, 300}, {2048, 20, 5000, 1}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			r, now, random := &Room{Total: c.total}, time.Now(), rand.New(rand.NewPCG(1, 2))
			other := &Holder{}
			r.Leave(r.Take(other, other, now), true, now)
			type attacker struct {
				Holder
				places []Holder
			}
			all := make([]attacker, c.tenants)
			for i := range all {
				all[i].places = make([]Holder, c.places)
				for n := range c.quick {
					p := &all[i].places[n%c.places]
					if r.May(&all[i].Holder, p, now) {
						r.Leave(r.Take(&all[i].Holder, p, now), true, now)
					}
				}
			}
			for second := range 60 {
				for range 5000 {
					a := &all[random.IntN(c.tenants)]
					if p := &a.places[random.IntN(c.places)]; r.May(&a.Holder, p, now) {
						r.Take(&a.Holder, p, now)
					}
				}
				fresh := &Holder{}
				require.True(t, r.May(other, fresh, now), "in second %d, with %d of %d seats taken", second, r.Held(), r.Total)
				now = now.Add(time.Second)
			}
			require.True(t, r.May(&Holder{}, &Holder{}, now), "a tenant that comes now")
		})
	}
}

// Who is alone has most of the room, and its slow places half of that. Others find some when they come, and more when it gives back.
func TestATenantThatIsAlone(t *testing.T) {
	r, now := &Room{Total: 2048}, time.Now()
	lone, good := &Holder{}, &Holder{}
	r.Leave(r.Take(lone, good, now), true, now)
	var taken []*Seat
	for range 5000 {
		taken = append(taken, fill(r, lone, &Holder{}, now)...)
	}
	require.Equal(t, 960, r.Held())
	require.False(t, r.May(lone, &Holder{}, now))
	require.True(t, r.May(lone, good, now), "it answers")

	other := &Holder{}
	few := fill(r, other, &Holder{}, now)
	require.Len(t, few, (2048-960)/9/9, "its first place has a share of its share")
	require.False(t, r.May(lone, good, now), "it is not alone now")
	for _, s := range taken {
		r.Leave(s, false, now)
	}
	require.True(t, r.May(lone, good, now))
	require.Len(t, few, r.Held())
}

// What comes back within a second is asked for again: an honest tenant reaches the seats that it uses.
func TestQuickHoldersHaveMore(t *testing.T) {
	r, now := &Room{Total: 2048}, time.Now()
	a, b, place := &Holder{}, &Holder{}, &Holder{}
	r.Leave(r.Take(b, b, now), true, now)
	for range 10 {
		for _, s := range fill(r, a, place, now) {
			r.Leave(s, true, now.Add(100*time.Millisecond))
		}
		now = now.Add(100 * time.Millisecond)
	}
	require.Greater(t, len(fill(r, a, place, now)), 150)
}

// A seat is slow once it is held for long, or from the start where it is not known whether its place answers.
func TestSlowSeats(t *testing.T) {
	r, now := &Room{Total: 100}, time.Now()
	tenant, place := &Holder{}, &Holder{}
	first := r.Take(tenant, place, now)
	require.Equal(t, 1, r.slow, "nobody knows it")
	r.Leave(first, true, now)
	second := r.Take(tenant, place, now)
	require.Zero(t, r.slow)
	require.True(t, place.proven(now))
	r.age(now.Add(slowAfter + 1))
	require.Equal(t, []int{1, 1, 1}, []int{r.slow, tenant.slow, place.slow})
	require.False(t, place.proven(now))
	r.Leave(second, true, now.Add(slowAfter+1))
	require.Equal(t, []int{0, 0, 0, 0}, []int{r.slow, r.held, tenant.slow, place.aged})
	require.Empty(t, fill(&Room{}, tenant, place, now), "no seats at all")
	require.Empty(t, r.young)
}

func TestRecent(t *testing.T) {
	var r Recent
	now := time.Now()
	for range 3 {
		r.One(time.Second, now)
	}
	require.Equal(t, 3, r.Within(time.Second, now.Add(1999*time.Millisecond)))
	require.Zero(t, r.Within(time.Second, now.Add(4*time.Second)))
}
