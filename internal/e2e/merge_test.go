package e2e

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// TestMergeLosesNoUpdate sends many updates a second to a few ids, half of them summed and half appended. However many
// deliveries that makes, they add up to every update exactly once.
// NOTYET_CLUSTER_TASKS sets the number of updates; 300000 at 10000/s is the published form.
func TestMergeLosesNoUpdate(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		const ids, window = 20, 3 * time.Second
		updates := clusterTasks(t, 20_000)
		rate := 4000
		if updates >= 100_000 {
			rate = 10_000
		}
		target := s.name + ".merged"
		s.topics(4, target)
		s.scanner()
		s.dispatcher("one")
		begin := time.Now()
		for i := range updates {
			if i%100 == 0 {
				time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate))))
			}
			id := strconv.Itoa(i % ids)
			mode, value := "sum", `{"n":1,"in":{"bytes":`+strconv.Itoa(i)+`}}`
			if i%ids%2 == 1 {
				mode, value = "append", strconv.Itoa(i)
			}
			r := request(s.intake, target, schemas.HeaderID, id, schemas.HeaderDelay, "1s", schemas.HeaderIfExists, "merge", schemas.HeaderMerge, mode,
				schemas.HeaderMaxWait, window.String())
			s.client.Produce(t.Context(), keyed(r, id, value), nil)
		}
		require.NoError(t, s.client.Flush(t.Context()))
		span := time.Since(begin)

		var n, bytes int64
		appended := map[int]int{}
		deliveries := map[string]int{}
		complete := func() bool { return n == int64(updates/2) && len(appended) == updates/2 }
		s.read(s.reader([]string{target}), span+60*time.Second, func(r *kgo.Record) bool {
			id := header(r, schemas.HeaderID)
			deliveries[id]++
			number, err := strconv.Atoi(id)
			require.NoError(t, err)
			if number%2 == 1 {
				var list []int
				require.NoError(t, json.Unmarshal(r.Value, &list))
				for _, v := range list {
					appended[v]++
				}
			} else {
				var sum struct {
					N  int64
					In struct{ Bytes int64 }
				}
				require.NoError(t, json.Unmarshal(r.Value, &sum))
				n += sum.N
				bytes += sum.In.Bytes
			}
			return complete()
		})
		want := int64(0)
		for i := range updates {
			if i%ids%2 == 0 {
				want += int64(i)
			} else {
				require.Equal(t, 1, appended[i], "update %d", i)
			}
		}
		require.Equal(t, want, bytes)
		total := 0
		for _, d := range deliveries {
			total += d
		}
		// A window makes one delivery; where the machine is too slow to store the updates as they come, windows end sooner.
		require.Less(t, total, updates/20, "updates were hardly merged at all")
		t.Logf("%d updates in %v to %d ids: %d deliveries, sums and lists exact", updates, span.Round(time.Millisecond), ids, total)
	})
}
