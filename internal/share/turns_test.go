package share

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func turns(total, reserve int64) *Turns { return NewTurns(total, reserve, total+reserve) }

// fill takes places one by one until there are no more for the holder.
func (r *Turns) fill(h Account) (taken int, leave func()) {
	var all []func()
	for {
		one, ok := r.Try(h, 1)
		if !ok {
			return len(all), func() {
				for _, one := range all {
					one()
				}
			}
		}
		all = append(all, one)
	}
}

func of(tenant, token string) Account { return Account{Tenant: tenant, Token: token} }

// A lone token leaves room to the others of its tenant, and a lone tenant to other tenants.
func TestALoneTenantHasHalfTheRoom(t *testing.T) {
	r := turns(1000, 0)
	one, leave := r.fill(of("shop", "a"))
	require.InDelta(t, 1000/3, one, 1)
	another, leaveAnother := r.fill(of("shop", "b"))
	require.Greater(t, another, 30)
	all := one + another
	for i := range 100 {
		more, _ := r.fill(of("shop", fmt.Sprint(i)))
		all += more
	}
	require.InDelta(t, 500, all, 5, "whatever the number of its tokens")
	leave()
	leaveAnother()
}

// What each of several tenants holds for as long as it likes leaves room to the next one.
func TestTenantsLeaveRoomToOthers(t *testing.T) {
	r := turns(1000, 0)
	for i := range 10 {
		got := 0
		for token := range 30 {
			n, _ := r.fill(of(fmt.Sprint("tenant ", i), fmt.Sprint(token)))
			got += n
		}
		require.Greater(t, got, 20, i)
	}
	n, _ := r.fill(of("late", "a"))
	require.Equal(t, 10, n, "one token has half of what its tenant may have")
}

// A tenant whose places come back within a second has more of them than one whose places do not.
func TestQuickTenantsHaveMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := turns(1000, 0)
		_, err := r.Take(t.Context(), of("other", "a"), 1)
		require.NoError(t, err)
		slow, leave := r.fill(of("shop", "a"))
		require.Less(t, slow, 112)
		leave()
		_, err = r.Take(t.Context(), of("shop", "a"), 1)
		require.NoError(t, err)
		for range 1000 {
			leave, err := r.Take(t.Context(), of("shop", "a"), 1)
			require.NoError(t, err)
			leave()
		}
		quick, leave := r.fill(of("shop", "a"))
		require.InDelta(t, 1000/3, quick, 2)
		leave()
		time.Sleep(2 * time.Second)
		slow, _ = r.fill(of("shop", "a"))
		require.Less(t, slow, 112, "that was two seconds ago")
	})
}

// Whoever holds the room, those with the reserve have theirs at once, and cost nobody else more than that.
func TestTheReserveIsFreeAtAnyTime(t *testing.T) {
	r := turns(16, 2)
	admin := Account{"administrators", "root", true}
	for i := range 50 {
		r.fill(of(fmt.Sprint(i), "a"))
	}
	_, ok := r.Try(of("late", "a"), 1)
	require.False(t, ok)
	leave, ok := r.Try(admin, 1)
	require.True(t, ok)
	leave()

	r = turns(16, 2)
	r.Try(admin, 2)
	_, ok = r.Try(of("shop", "a"), 16)
	require.True(t, ok, "the reserve's places are taken first")
}

func TestTurnsGoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := turns(1, 0)
		first, err := r.Take(t.Context(), of("greedy", "a"), 1)
		require.NoError(t, err)
		served := []string{}
		ask := func(tenant, token string) {
			leave, err := r.Take(t.Context(), of(tenant, token), 1)
			assert.NoError(t, err)
			served = append(served, tenant+" "+token)
			time.Sleep(time.Millisecond)
			leave()
		}
		for range 100 {
			go ask("greedy", "a")
		}
		synctest.Wait()
		for range 3 {
			go ask("greedy", "b")
			go ask("another", "a")
		}
		synctest.Wait()
		first()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, served, 106, "nobody is forgotten")
		var ours, theirs int
		for i, who := range served {
			if i < 7 && who == "another a" {
				ours++
			}
			if i < 13 && who == "greedy b" {
				theirs++
			}
		}
		require.Equal(t, []int{3, 3}, []int{ours, theirs}, "%v", served[:13])
		require.Empty(t, r.tenants, "nothing is kept of tenants without requests")
	})
}

// A large one waits until there is room for it, and small ones that come later do not pass it.
func TestSmallOnesDoNotPassALargeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := turns(100, 0)
		leave, err := r.Take(t.Context(), of("shop", "a"), 40)
		require.NoError(t, err)
		had := time.Time{}
		go func() {
			_, err := r.Take(t.Context(), of("billing", "a"), 70)
			assert.NoError(t, err)
			had = time.Now()
		}()
		synctest.Wait()
		go func() {
			_, err := r.Take(t.Context(), of("third", "a"), 31)
			assert.ErrorIs(t, err, ErrTurn)
		}()
		synctest.Wait()
		began := time.Now()
		time.Sleep(time.Second)
		leave()
		synctest.Wait()
		require.Equal(t, time.Second, had.Sub(began))
		time.Sleep(Patience)
	})
}

func TestAWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := turns(1, 0), turns(1, 0)
		leave, err := first.Take(t.Context(), of("a", "a"), 1)
		require.NoError(t, err)
		leaveSecond, err := second.Take(t.Context(), of("a", "a"), 1)
		require.NoError(t, err)

		gone, end := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, end)
		_, err = first.Take(gone, of("b", "b"), 1)
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, first.tenants, 1)

		time.AfterFunc(3*time.Second, leave)
		began, ctx := time.Now(), Wait(t.Context())
		_, err = first.Take(ctx, of("c", "c"), 1)
		require.NoError(t, err)
		_, err = second.Take(ctx, of("c", "c"), 1)
		require.ErrorIs(t, err, ErrTurn)
		require.Equal(t, Patience, time.Since(began), "one wait is for all rooms of a request")
		leaveSecond()
		_, err = second.Take(ctx, of("c", "c"), 1)
		require.NoError(t, err, "a free place is had at any time")
	})
}

func TestATokenHasAtMostItsBound(t *testing.T) {
	n, _ := NewTurns(100, 0, 5).fill(of("a", "a"))
	require.Equal(t, 5, n)
}

// Large ones that wait for their own share hold nobody up, however many.
func TestLargeOnesBeyondAShareHoldNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := turns(128, 0)
		for token := range 50 {
			go func() {
				leave, err := r.Take(t.Context(), of("shop", fmt.Sprint(token)), 49)
				if err == nil {
					time.Sleep(time.Minute)
					leave()
				}
			}()
		}
		synctest.Wait()
		_, ok := r.Try(of("billing", "a"), 1)
		require.False(t, ok, "others wait")
		began := time.Now()
		_, err := r.Take(t.Context(), of("billing", "a"), 1)
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		time.Sleep(2 * time.Minute)
	})
}

func TestWithoutAnAccountThereAreNoShares(t *testing.T) {
	n, _ := turns(100, 10).fill(Account{})
	require.Equal(t, 110, n)
}
