package dispatcher

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// However slowly the database settles, what is delivered and not settled is what it settles in two seconds. The target's tasks wait for
// it, and another target's do not.
func TestUnsettledIsBoundedByWhatTheDatabaseSettles(t *testing.T) {
	for name, took := range map[string]time.Duration{"quick": 10 * time.Millisecond, "slow": 200 * time.Millisecond, "stands nearly": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const tasks, partitions = 6000, 6
				f, d := newSlowFixture(t, "SELECT seq, ident, slot", took)
				require.NoError(t, d.clock.Start(t.Context()))
				d.ownership.trust.members = f.elect(5)
				_, err := d.ownership.follow(t.Context())
				require.NoError(t, err)
				due := time.Now().Add(time.Second)
				f.schedule(askMany(tasks, "flood", "r", due, schemas.HeaderAck, "report", schemas.HeaderAckTimeout, "1h", schemas.HeaderEvents, "none")...)
				f.schedule(askMany(100, "calm", "p", due, schemas.HeaderEvents, "none")...)
				time.Sleep(time.Second)
				d.claimer.sweep(t.Context())
				_, err = d.claimer.claim(t.Context())
				require.NoError(t, err)
				for {
					batch, _ := d.flight.Bodies.Next()
					if batch == nil {
						break
					}
					d.fetcher.fetch(t.Context(), batch)
				}
				for n := range partitions { // the producer knows the topic's partitions
					_ = d.flight.Placement().ForTopic("flood").Partition(&kgo.Record{Topic: "flood", Key: []byte(fmt.Sprint(n))}, partitions)
				}
				stop := make(chan struct{})
				loop := make(chan struct{})
				go func() { // the settle loop
					defer close(loop)
					for {
						select {
						case <-stop:
							return
						case <-time.After(settleEvery):
							d.settler.note(t.Context())
							d.settler.settle(t.Context())
						}
					}
				}()
				most, oldest, calm, sent := 0, time.Duration(0), time.Duration(0), 0
				began := time.Now()
				for done := false; !done; time.Sleep(5 * time.Millisecond) {
					for _, one := range released(d) { // Kafka answers at once
						d.sender.answered(one.Task, one.Record, nil)
						if sent++; one.Task.Topic() == "calm" {
							calm = time.Since(began)
						}
					}
					in := d.flight.Figures()
					oldest = max(oldest, in.Unsettled)
					most = max(most, in.Undurable)
					done = in.Claimed == 0
				}
				require.Equal(t, tasks+100, sent)
				close(stop)
				<-loop
				t.Logf("at most %d unsettled, %v old; all settled in %v", most, oldest, time.Since(began))
				require.LessOrEqual(t, oldest, 2*time.Second+took)
				require.Less(t, calm, 200*time.Millisecond, "the other target waits for nobody")
				require.Zero(t, d.flight.Figures().Owed)
			})
		})
	}
}
