package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/schemas"
)

// TestARestoredDatabaseFirstCatchesUp: tasks are cancelled and replaced after a backup, and fall due
// after it is restored. Nothing is delivered before a scanner has read that again. Each case waits for
// the due time, so the long tests alone have all.
func TestARestoredDatabaseFirstCatchesUp(t *testing.T) {
	for name, first := range map[string]string{"a dispatcher starts first": "dispatcher", "a scanner starts first": "scanner", "a dispatcher is at work": ""} {
		t.Run(name, func(t *testing.T) {
			if first != "dispatcher" {
				onlyLong(t, "it waits for half a minute")
			}
			t.Parallel()
			onStacks(t, func(t *testing.T, s *stack) {
				const each, ahead = 100, 25 * time.Second
				target := s.name + ".target"
				s.topics(4, target)
				due := time.Now().Add(ahead)
				all := func(prefix, value string, headers ...string) {
					var records []*kgo.Record
					for i := range each {
						id := fmt.Sprint(prefix, i)
						records = append(records, keyed(request(s.intake, target, append(headers, schemas.HeaderID, id)...), id, value))
					}
					s.publish(records...)
				}
				await := func(state schemas.State, n int) {
					s.read(s.reader([]string{s.results}), time.Minute, func(r *kgo.Record) bool {
						if e, err := schemas.DecodeEvent(r); err == nil && e.State == state {
							n--
						}
						return n <= 0
					})
				}
				at := []string{schemas.HeaderAt, fmt.Sprint(due.UnixMilli()), schemas.HeaderEvents, "all"}
				sc, d := s.scanner(), s.dispatcher("d")
				all("kept", "old", at...)
				all("replaced", "old", at...)
				all("cancelled", "old", at...)
				await(schemas.StateScheduled, 3*each)
				b := s.backUp()
				all("replaced", "new", at...)
				all("cancelled", "", schemas.HeaderOp, "cancel")
				await(schemas.StateCancelled, each)
				await(schemas.StateScheduled, 4*each)
				require.Less(t, time.Now(), due.Add(-5*time.Second), "this machine is too slow for the test")
				sc.shutdown(t)
				if first != "" {
					d.shutdown(t)
				}
				s.restore(b)
				if first == "scanner" { // requests wait for slots, as where a server was started on a backup
					_, err := s.open().Exec("UPDATE slots SET life = 'before'")
					require.NoError(t, err)
					s.scanner()
				}
				time.Sleep(time.Until(due))
				if first == "dispatcher" {
					s.dispatcher("d")
				}
				if first != "scanner" {
					require.Empty(t, s.seen(target, 5*time.Second), "a scanner comes later")
					s.scanner()
				} else {
					s.dispatcher("d")
				}
				s.await(target, 2*each)
				for id, copies := range s.seen(target, 3*time.Second) {
					value := "old"
					if id[0] == 'r' {
						value = "new"
					}
					require.NotEqual(t, byte('c'), id[0], "%s was cancelled", id)
					require.Equal(t, []string{"1:" + value}, copies, id)
				}
			})
		})
	}
}

// TestNoHoldWithoutARestore: scanners come, go and share partitions under load, and no dispatcher ever
// takes the database for an older one. An offset that somebody has set too high holds dispatchers,
// and comes down by itself.
func TestNoHoldWithoutARestore(t *testing.T) {
	onlyLong(t, "scanners come and go for half a minute")
	onStacks(t, func(t *testing.T, s *stack) {
		core, lines := observer.New(zap.WarnLevel)
		s.log = zap.New(core)
		held := func() int { return lines.FilterMessageSnippet("is older than what its scanners have committed").Len() }
		target := s.name + ".target"
		s.topics(4, target)
		s.dispatcher("d")
		sent := 0
		send := func() {
			for range 5 {
				s.publish(keyed(request(s.intake, target, schemas.HeaderID, fmt.Sprint("t", sent), schemas.HeaderAt, inMillis(time.Second), schemas.HeaderEvents, "none"), fmt.Sprint(sent), "v"))
				sent++
			}
			time.Sleep(100 * time.Millisecond)
		}
		scanners := []*process{s.scanner(), s.scanner()}
		for i := range 4 {
			for range 15 {
				send()
			}
			scanners[i%2].shutdown(t)
			for range 5 {
				send()
			}
			scanners[i%2] = s.scanner()
		}
		s.await(target, sent)
		require.Zero(t, held())

		for _, sc := range scanners {
			sc.shutdown(t)
		}
		admin := kadm.NewClient(s.client)
		offsets, err := admin.FetchOffsets(t.Context(), s.name)
		require.NoError(t, err)
		higher := kadm.Offsets{}
		for _, o := range offsets.Sorted() {
			higher.AddOffset(o.Topic, o.Partition, o.At+1000, -1)
		}
		require.NoError(t, admin.CommitAllOffsets(t.Context(), s.name, higher))
		require.Eventually(t, func() bool { return held() > 0 }, time.Minute, 10*time.Millisecond)
		send()
		s.scanner()
		s.await(target, sent)
	})
}
