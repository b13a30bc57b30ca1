package dispatcher

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
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
					batch, bytes, _ := d.fetcher.nextFetch()
					if len(batch) == 0 {
						break
					}
					d.fetcher.fetch(t.Context(), batch, bytes)
				}
				for n := range partitions { // the producer knows the topic's partitions
					_ = d.sender.outlets.where.ForTopic("flood").Partition(&kgo.Record{Topic: "flood", Key: []byte(fmt.Sprint(n))}, partitions)
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
							d.flight.mu.Lock()
							d.flight.leavePinned()
							d.flight.mu.Unlock()
							d.settler.settle(t.Context())
						}
					}
				}()
				most, oldest, calm, sent := 0, time.Duration(0), time.Duration(0), 0
				began := time.Now()
				for done := false; !done; time.Sleep(5 * time.Millisecond) {
					for _, one := range d.sender.takeDue() { // Kafka answers at once
						d.sender.answered(one.task, one.record, nil)
						if sent++; one.task.topic == "calm" {
							calm = time.Since(began)
						}
					}
					d.flight.mu.Lock()
					oldest = max(oldest, d.flight.unsettled.oldest())
					most = max(most, len(d.flight.unsettled.deliveries))
					done = d.flight.entries == 0
					d.flight.mu.Unlock()
				}
				require.Equal(t, tasks+100, sent)
				close(stop)
				<-loop
				t.Logf("at most %d unsettled, %v old; all settled in %v", most, oldest, time.Since(began))
				require.LessOrEqual(t, oldest, 2*time.Second+took)
				require.Less(t, calm, 200*time.Millisecond, "the other target waits for nobody")
				d.flight.mu.Lock()
				defer d.flight.mu.Unlock()
				require.Zero(t, d.flight.unsettled.owed)
				for _, g := range d.sender.outlets.byKey {
					require.Zero(t, g.owed, g.topic)
				}
			})
		})
	}
}

// Whatever comes of a task that is sent, it is not counted for ever.
func TestUnsettledIsCountedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		before func(s *sender, sent *claimedTask)
		err    error
		counts int
	}{
		"delivered":                       {func(*sender, *claimedTask) {}, nil, 1},
		"refused":                         {func(*sender, *claimedTask) {}, kerr.MessageTooLarge, 0},
		"given back":                      {func(*sender, *claimedTask) {}, kgo.ErrRecordTimeout, 0},
		"set aside, then delivered":       {func(s *sender, sent *claimedTask) { s.setAsideSent(sent) }, nil, 0},
		"its slot is lost, then it comes": {func(s *sender, sent *claimedTask) { s.flight.abandon(sent.slot, "a test") }, nil, 0},
		"its partition is known since": {func(s *sender, sent *claimedTask) {
			s.outlets.where.ForTopic("x").Partition(sent.record, 1)
			s.outlets.rehome(sent, sent.with)
		}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			fl := newInFlight(alone(t, Config{}))
			outs := newOutlets(fl)
			s := newSender(newParking(fl, outs), nil, nil, newCalls(nil), nil, kafka.Config{})
			l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
			fl.slots[0] = l
			settings := schemas.DefaultSettings()
			settings.Ack = schemas.AckReport
			sent := &claimedTask{slot: l, seq: 1, pos: 50, at: 50, status: sending, content: &content{topic: "x", due: 50, size: 10, settings: settings, record: &kgo.Record{Topic: "x", Key: []byte("k")}}}
			l.tasks = append(l.tasks, sent)
			g := outs.of(sent)
			outs.beginSending(g, sent)
			require.Equal(t, 1, fl.unsettled.owed)
			c.before(s, sent)
			s.answered(sent, sent.record, c.err)
			require.Equal(t, c.counts, fl.unsettled.owed)
			if c.counts > 0 {
				require.Equal(t, 1, sent.owes.owed)
			}
			require.Len(t, fl.unsettled.deliveries, c.counts)
			fl.unsettled.ends(sent)
			fl.unsettled.ends(sent)
			require.Zero(t, fl.unsettled.owed)
			for _, g := range outs.byKey {
				require.Zero(t, g.owed)
			}
		})
	}
}

// One outlet has a part of the room, so that others have theirs; and one task of each goes, as long as there is any.
func TestUnsettledIsShared(t *testing.T) {
	fl := newInFlight(alone(t, Config{}))
	outs := newOutlets(fl)
	newParking(fl, outs)
	fl.unsettled.pace = 1000 // so there is room for 1500
	settings := schemas.DefaultSettings()
	settings.Ack = schemas.AckReport
	fill := func(topic string) (n int) {
		g := &outlet{outletKey: outletKey{topic, 0}}
		outs.byKey[g.outletKey] = g
		for ; ; n++ {
			one := &claimedTask{content: &content{topic: topic, settings: settings}}
			if !outs.hasRoom(g, one) {
				return n
			}
			outs.beginSending(g, one)
		}
	}
	first, second := fill("a"), fill("b")
	require.InDelta(t, 1500/9, first, 2)
	require.InDelta(t, first*8/9, second, 2)
	for n := range 2000 {
		fill(fmt.Sprint(n))
	}
	require.Equal(t, 1500, fl.unsettled.owed, "however many targets there are")
	require.True(t, outs.hasRoom(&outlet{}, &claimedTask{content: &content{topic: "plain"}}), "a task that simply ends waits for none of them")
}

// The room follows what the database does, and never quite ends.
func TestPaceOfSettling(t *testing.T) {
	u := unsettled{pace: firstPace}
	for range 30 {
		u.settledIn(1000, 100*time.Millisecond)
	}
	require.InDelta(t, 10_000, u.pace, 50)
	for range 30 {
		u.settledIn(1, 5*time.Millisecond)
	}
	require.InDelta(t, 20_000, u.pace, 50, "little to do says little: a hundred would have taken no longer")
	for range 60 {
		u.settledIn(1000, time.Hour)
	}
	require.InDelta(t, slowestPace, u.pace, 1)
	require.Equal(t, 150, u.room())
}

// Delivered tasks leave a slot in which another holds them up. Those that go with done, or have not waited for long, stay. The database's
// clock may be set back meanwhile: it is not asked.
func TestPinnedDeliveriesLeaveTheirSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fl := newInFlight(alone(t, Config{}))
		content := func() *content { return &content{topic: "x", settings: schemas.DefaultSettings()} }
		blocked := &ownedSlot{number: 0, epoch: 5, claimed: 100}
		free := &ownedSlot{number: 1, epoch: 5, claimed: 100}
		fl.slots[0], fl.slots[1] = blocked, free
		add := func(l *ownedSlot, pos int64, st status) *claimedTask {
			one := &claimedTask{slot: l, seq: pos + int64(l.number)*1000, pos: pos, status: st, content: content()}
			l.tasks = append(l.tasks, one)
			if st >= announcing {
				fl.unsettled.delivered(one)
			}
			return one
		}
		before := add(blocked, 10, settled)
		add(blocked, 20, staged)
		pinned := add(blocked, 30, settled)
		told := add(blocked, 40, announcing)
		time.Sleep(time.Second)
		goes := add(free, 50, settled)
		time.Sleep(time.Second)
		fresh := add(blocked, 60, settled)
		time.Sleep(pinnedFor - 1)
		fl.leavePinned()
		require.Equal(t, leaving, pinned.status)
		for _, one := range []*claimedTask{before, goes, fresh} {
			require.Equal(t, settled, one.status)
		}
		require.Equal(t, announcing, told.status)
		require.Len(t, fl.inbox.transitions, 1)
		require.Equal(t, task.StateSucceeded, fl.inbox.transitions[0].State)
		require.Equal(t, 1, fl.inbox.transitions[0].Attempt)
		require.Equal(t, 3*time.Second-1, fl.unsettled.oldest())

		for n := range 3 * pinnedMost {
			add(blocked, 70+int64(n), settled)
		}
		time.Sleep(time.Minute)
		fl.leavePinned()
		require.Len(t, fl.inbox.transitions, 1+pinnedMost, "a round takes so many")

		fl.abandon(blocked, "a test")
		free.done = 100
		require.Zero(t, fl.unsettled.oldest())
		require.Empty(t, fl.unsettled.deliveries)
	})
}
