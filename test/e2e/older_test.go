package e2e

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/test/zkfake"
)

// An older dispatcher was paused while the number of slots began to change, and comes back in the middle, or leads again because the others
// start anew. It would never split a slot, or move one on, and all others would wait for that. So it gets none, and nothing stands.
func TestAnOlderDispatcherDuringAChangeOfSlots(t *testing.T) {
	for _, form := range []string{"database", "zookeeper"} {
		for _, leads := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, leads %v", form, leads), func(t *testing.T) {
				t.Parallel()
				s := newStackIn(t, false, form == "database", 8, usualSlots)
				if !s.small {
					z, err := zkfake.Start(zkfake.Config{})
					require.NoError(t, err)
					t.Cleanup(z.Close)
					s.zk = []string{z.Addr()}
				}
				s.scanner()
				m := s.member(election.Config{MemberID: "older"}) // it says nothing of what it can do, and serves nothing
				var older *process
				if leads {
					older = s.start(m.Run)
					require.Eventually(t, func() bool { return len(m.Current().Slots) == usualSlots }, time.Minute, time.Millisecond)
				}
				s.dispatcher("one")
				s.dispatcher("two")
				owned := func(n int) {
					require.Eventually(t, func() bool {
						all, err := s.store.Slots(t.Context())
						require.NoError(t, err)
						owners := map[string]int{}
						for _, slot := range all {
							owners[slot.Owner]++
						}
						return owners["one"]+owners["two"] >= n && owners["one"] > 0 && owners["two"] > 0
					}, time.Minute, time.Millisecond)
				}
				begin := time.Second
				if leads {
					owned(2)
					begin = 6 * time.Second // until then, what it owns stands
				} else {
					owned(usualSlots)
				}
				const n, every = 500, 10 * time.Millisecond
				target, first := s.name+".orders", time.Now().Add(begin)
				s.judging(4, target)
				due := map[string]int64{}
				for i := range n {
					id := fmt.Sprintf("t%d", i)
					due[id] = first.Add(time.Duration(i) * every).UnixMilli()
					r := request(s.intake, target, schemas.HeaderAt, strconv.FormatInt(due[id], 10))
					r.Key, r.Value = []byte(id), []byte(id)
					s.client.Produce(t.Context(), r, func(_ *kgo.Record, err error) { require.NoError(t, err) })
				}
				require.NoError(t, s.client.Flush(t.Context()))

				_, err := admin.New(s.store).SetSlots(t.Context(), 3*usualSlots)
				require.NoError(t, err)
				if !leads {
					older = s.start(m.Run)
				}
				require.Eventually(t, func() bool {
					g, err := admin.New(s.store).Growth(t.Context())
					require.NoError(t, err)
					return g.Settled() && g.Base == 3*usualSlots
				}, time.Minute, time.Millisecond, "the change ends beside it")
				require.True(t, m.Trusted(), "it is there all the time")
				older.shutdown(t) // now it may have slots again
				copies, latest := map[string]int{}, int64(0)
				s.read(s.reader([]string{target}), time.Minute, func(r *kgo.Record) bool {
					late := r.Timestamp.UnixMilli() - due[string(r.Key)]
					require.GreaterOrEqual(t, late, int64(0), "early")
					latest = max(latest, late)
					copies[string(r.Key)]++
					return len(copies) == n
				})
				for id, c := range copies {
					require.Equal(t, 1, c, id)
				}
				t.Logf("the latest of %d came %d ms late", n, latest)
				require.Less(t, latest, int64(5000), "a busy machine")
			})
		}
	}
}
