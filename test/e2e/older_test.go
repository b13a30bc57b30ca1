package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/test/zkfake"
)

// besideOlder is a change of the number of slots with an older dispatcher that comes, or leads, in the middle of it.
type besideOlder struct {
	*stack
	due map[string]int64
}

func newBesideOlder(t *testing.T, form string) *besideOlder {
	s := newStackIn(t, false, form == "database", 8, usualSlots)
	if form == "zookeeper" {
		z, err := zkfake.Start(zkfake.Config{})
		require.NoError(t, err)
		t.Cleanup(z.Close)
		s.zk = []string{z.Addr()}
	}
	return &besideOlder{stack: s, due: map[string]int64{}}
}

// owned waits until one and two have so many slots, and each of them some.
func (b *besideOlder) owned(n int) {
	require.Eventually(b.t, func() bool {
		all, err := b.store.Slots(b.t.Context())
		require.NoError(b.t, err)
		owners := map[string]int{}
		for _, slot := range all {
			owners[slot.Owner]++
		}
		return owners["one"]+owners["two"] >= n && owners["one"] > 0 && owners["two"] > 0
	}, time.Minute, time.Millisecond)
}

// load has tasks fall due for five seconds, from then on.
func (b *besideOlder) load(begin time.Duration) {
	first := time.Now().Add(begin)
	b.judging(4, b.name+".orders")
	for i := range 500 {
		id := fmt.Sprintf("t%d", i)
		b.due[id] = first.Add(time.Duration(i) * 10 * time.Millisecond).UnixMilli()
		r := request(b.intake, b.name+".orders", schemas.HeaderAt, strconv.FormatInt(b.due[id], 10))
		r.Key, r.Value = []byte(id), []byte(id)
		b.client.Produce(b.t.Context(), r, func(_ *kgo.Record, err error) { require.NoError(b.t, err) })
	}
	require.NoError(b.t, b.client.Flush(b.t.Context()))
}

// change sets another number of slots. then follows at once.
func (b *besideOlder) change(then func()) {
	_, err := admin.New(b.store).SetSlots(b.t.Context(), 3*usualSlots)
	require.NoError(b.t, err)
	then()
	require.Eventually(b.t, func() bool {
		g, err := admin.New(b.store).Growth(b.t.Context())
		require.NoError(b.t, err)
		return g.Settled() && g.Base == 3*usualSlots
	}, time.Minute, time.Millisecond, "the change ends beside it")
}

// judge expects each task once, and none late.
func (b *besideOlder) judge() {
	copies, latest := map[string]int{}, int64(0)
	b.read(b.reader([]string{b.name + ".orders"}), time.Minute, func(r *kgo.Record) bool {
		late := r.Timestamp.UnixMilli() - b.due[string(r.Key)]
		require.GreaterOrEqual(b.t, late, int64(0), "early")
		latest = max(latest, late)
		copies[string(r.Key)]++
		return len(copies) == len(b.due)
	})
	for id, c := range copies {
		require.Equal(b.t, 1, c, id)
	}
	b.t.Logf("the latest of %d came %d ms late", len(b.due), latest)
	require.Less(b.t, latest, int64(5000), "a busy machine")
}

// An older dispatcher was paused while the number of slots began to change, and comes back in the middle, or leads again because the others
// start anew. It would never split a slot, or move one on, and all others would wait for that. So it gets none, and nothing stands.
func TestAnOlderDispatcherDuringAChangeOfSlots(t *testing.T) {
	for _, form := range []string{"database", "zookeeper"} {
		for _, leads := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, leads %v", form, leads), func(t *testing.T) {
				if form == "zookeeper" {
					onlyLong(t, "the form with the database's election runs always")
				}
				t.Parallel()
				b := newBesideOlder(t, form)
				b.scanner()
				m := b.member(election.Config{MemberID: "older"}) // it says nothing of what it can do, and serves nothing
				var older *process
				if leads {
					older = b.start(m.Run)
					require.Eventually(t, func() bool { return len(m.Current().Slots) == usualSlots }, time.Minute, time.Millisecond)
				}
				b.dispatcher("one")
				b.dispatcher("two")
				if leads {
					b.owned(2)
					b.load(6 * time.Second) // until then, what it owns stands
				} else {
					b.owned(usualSlots)
					b.load(time.Second)
				}
				b.change(func() {
					if !leads {
						older = b.start(m.Run)
					}
				})
				require.True(t, m.Trusted(), "it is there all the time")
				older.shutdown(t) // now it may have slots again
				b.judge()
			})
		}
	}
}

// The same with the program of the release before, which NOTYET_BEFORE names: it works, and gives away without a copy what it may not have.
func TestTheReleaseBeforeDuringAChangeOfSlots(t *testing.T) {
	before := os.Getenv("NOTYET_BEFORE")
	if before == "" {
		t.Skip("NOTYET_BEFORE is not set: a program of the release before (scripts/upgrade-test builds one)")
	}
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprintf("leads %v", leads), func(t *testing.T) {
			b := newBesideOlder(t, "zookeeper")
			c := &cluster{stack: b.stack, dir: t.TempDir(), binary: before, env: b.environ()}
			older := func() *proc { return c.spawn("older", "dispatcher") }
			has := func(n int) func() bool {
				return func() bool {
					all, err := b.store.Slots(t.Context())
					require.NoError(t, err)
					return len(slices.DeleteFunc(all, func(s store.Slot) bool { return !strings.HasPrefix(s.Owner, "older") })) >= n
				}
			}
			var p *proc
			b.scanner()
			if leads {
				p = older()
				require.Eventually(t, has(usualSlots), time.Minute, time.Millisecond)
			}
			b.dispatcher("one")
			b.dispatcher("two")
			if leads {
				b.owned(usualSlots / 2)
			} else {
				b.owned(usualSlots)
				p = older()
			}
			require.Eventually(t, has(usualSlots/4), time.Minute, time.Millisecond)
			if !leads {
				require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
				b.owned(usualSlots)
			}
			b.load(time.Second)
			_, err := b.open().Exec("DELETE FROM services") // as if it were silent for longer than a service counts as alive
			require.NoError(t, err)
			b.change(func() { require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT)) })
			require.False(t, has(1)())
			require.Eventually(t, has(usualSlots), time.Minute, 10*time.Millisecond, "afterwards it works")
			b.judge()
		})
	}
}
