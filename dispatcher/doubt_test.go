package dispatcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/test/lettertest"
)

// What an earlier owner may have sent is not also told to have expired. What nobody can have sent is.
func TestTasksInDoubtDoNotExpire(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	past := time.Now().Add(-time.Minute)
	f.schedule(askMany(5, "orders", "doubt", past, schemas.HeaderMaxLateness, "1s")...)
	_, err := intake.New(f.store).Line().Acquire(t.Context(), f.slots, 4, "one")
	require.NoError(t, err)
	require.NoError(t, claimTo(t.Context(), f.store, f.slots, 4, nowMillis()))
	f.schedule(askMany(5, "orders", "late", past, schemas.HeaderMaxLateness, "1s")...)
	f.start(f.elect(5), t.TempDir(), Config{MemberID: "two"})
	f.eventually("all is settled", func() bool { return f.settledUpTo(past) })
	dead := func() map[string]string {
		letters, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{})
		require.NoError(t, err)
		out := map[string]string{}
		for _, l := range letters {
			out[l.TaskID] = l.Kind
		}
		return out
	}
	f.eventually("those that nobody has sent expire", func() bool { return len(dead()) == 5 })
	f.eventually("the others arrive", func() bool { return orders.count() == 5 })
	for id := range orders.copies() {
		require.Contains(t, id, "doubt")
	}
	for id, kind := range dead() {
		require.Contains(t, id, "late")
		require.Equal(t, schemas.KindExpired, kind)
	}
}

// A run that an earlier owner may have delivered is not made a second time, also once its dead letter is purged.
func TestARunInDoubtIsNotMadeAnew(t *testing.T) {
	f := newFixture(t, 1, "orders")
	f.refuse("orders", kerr.MessageTooLarge)
	set := ask("orders", "t", time.Now(), schemas.HeaderOp, "timer", schemas.HeaderCron, "0 0 29 2 *")
	set.Headers = set.Headers[:len(set.Headers)-1] // a timer has no notyet-at
	f.schedule(set)
	_, err := intake.New(f.store).Line().Acquire(t.Context(), f.slots, 4, "one")
	require.NoError(t, err)
	at := nowMillis()
	run := func() (made int) {
		asked, err := intake.New(f.store).AskRun(t.Context(), "orders", "t", at, nowMillis())
		require.NoError(t, err)
		return asked.Made
	}
	require.Equal(t, 1, run())
	require.NoError(t, claimTo(t.Context(), f.store, f.slots, 4, nowMillis()))
	f.start(f.elect(5), t.TempDir(), Config{MemberID: "two"})
	f.eventually("it dies, and the letter is purged", func() bool {
		n, _, err := letters.New(f.store).Purge(t.Context(), letters.Filter{Kind: schemas.KindUndeliverable})
		return err == nil && n == 1
	})
	require.Zero(t, run())
}
