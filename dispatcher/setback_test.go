package dispatcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The database forgets its last commits while a dispatcher runs: the slot is taken anew, and what is stored from then on is found, though
// no wake and no index tells of it.
func TestDatabaseThatForgot(t *testing.T) {
	for name, also := range map[string]string{
		"a claim":                 ", claimed = %d",
		"a settlement":            "",
		"that the slot was taken": ", claimed = %d, epoch = 4, owner = ''",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "orders")
			orders := f.read("orders")
			d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
			f.eventually("it owns its slot", func() bool { return d.owned() == 1 })
			before := f.slot(0)
			d.told(f.schedule(ask("orders", "first", time.Now().Add(time.Second))).Added)
			f.eventually("it arrives", func() bool { return orders.count() == 1 })
			f.eventually("it is settled", func() bool { s := f.slot(0); return s.Done == s.Claimed && s.Done > before.Done })
			f.sql(fmt.Sprintf("UPDATE slots SET done = %d", before.Done) + strings.ReplaceAll(also, "%d", fmt.Sprint(before.Claimed)))
			var more []*kgo.Record
			for i := range 20 {
				more = append(more, ask("orders", fmt.Sprint("later", i), time.Now().Add(time.Duration(i)*100*time.Millisecond)))
			}
			f.schedule(more...)
			f.eventually("all arrive", func() bool { return len(orders.copies()) == 21 })
			f.eventually("all is settled", func() bool { s := f.slot(0); return s.Done == s.Claimed && s.Owner == "one" && s.Epoch == 5 })
		})
	}
}

// What the database calls claimed beyond what is known here was claimed here: the reply was lost. It is sent, though nothing is claimed
// any more.
func TestSweepFindsAClaimWithoutAReply(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	f.eventually("it owns its slot", func() bool { return d.owned() == 1 })
	due := time.Now().Add(2 * time.Second)
	f.schedule(ask("orders", "t", due))
	require.NoError(t, claimTo(t.Context(), f.store, f.slots, 5, due.UnixMilli()+5))
	f.eventually("it arrives", func() bool { return orders.count() == 1 })
	f.eventually("it is settled", func() bool { return f.settledUpTo(due) })
	require.Zero(t, counted(d.metrics.abandoned))
}
