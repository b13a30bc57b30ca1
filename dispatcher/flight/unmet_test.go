package flight

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// toTopic is a task that is due, of a topic.
func toTopic(l *ownedSlot, seq int64, topic, tenant string) *Task {
	now := nowMillis()
	return &Task{slot: l, seq: seq, pos: now, at: now, content: &content{topic: topic, tenant: tenant, due: now, record: &kgo.Record{Topic: topic, Key: []byte("k")}, settings: schemas.DefaultSettings()}}
}

// A tenant's tasks for more topics than are looked up or missing at a time are put off unasked, one after the other, and no later than
// they may be delivered. Another tenant's go on. There is room again once a topic is met, or nothing is known of it.
func TestOneTopicTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, more = unmetMost, 3000
		fl := newFlight(t, Config{StageTasks: 8 * most, StageBytes: 64 << 20, UndeliverableAfter: time.Second})
		l := &ownedSlot{number: 0, epoch: 5, claimed: never, claimMost: never, callMost: never}
		fl.slots[0] = l
		sent := map[string]*Task{}
		release := func() {
			for more := true; more; {
				var send []Sendable
				send, more = fl.Due.Take()
				for _, one := range send {
					sent[one.Task.topic] = one.Task
				}
			}
		}
		for i := range int64(most + more) {
			one := toTopic(l, i, fmt.Sprint("shop", i), "shop")
			if i == most+more-1 {
				one.settings.MaxLateness = 500 * time.Millisecond
			}
			fl.due.push(one)
		}
		fl.due.push(toTopic(l, most+more, "new", "billing"))
		release()
		require.Len(t, sent, most+1)
		require.Contains(t, sent, "new")
		var later []int64
		for _, e := range fl.inbox.transitions {
			later = append(later, e.Pos-nowMillis())
		}
		slices.Sort(later)
		require.Len(t, later, more)
		require.Equal(t, []int64{501, 1000, 1000 + more/2 - 1}, []int64{later[0], later[1], later[more-1]})

		fl.outlets.where.ForTopic("shop0").Partition(&kgo.Record{Key: []byte("k")}, 3)
		fl.Due.Answered(sent["shop0"], Answer{})
		for i := range int64(most - 1) {
			fl.Due.Answered(sent[fmt.Sprint("shop", i+1)], Answer{Err: kerr.UnknownTopicOrPartition, Alone: true})
		}
		require.Equal(t, most-1, fl.outlets.unmet["shop"].topics)
		require.Equal(t, 10*time.Second, fl.outlets.byKey[outletKey{"shop1", -1}].refusal.Wait(time.Now().Add(topicSpreads)), "one of many asks more seldom")
		clear(sent)
		for i := range int64(2) {
			fl.due.push(toTopic(l, 6000+i, fmt.Sprint("one more ", i), "shop"))
		}
		fl.due.push(toTopic(l, 6002, "shop0", "shop"))
		release()
		require.Len(t, sent, 2, "there was room for one, and a topic that was met needs none")

		time.Sleep(3 * time.Minute)
		require.Len(t, fl.Outcomes.Check(), most-1)
		require.Equal(t, 1, fl.outlets.unmet["shop"].topics, "nothing is known any more of those that were missing")
	})
}

// Tenants take turns at having their bodies read, however many topics one of them names.
func TestTenantsTakeTurns(t *testing.T) {
	fl := newFlight(t, Config{})
	fl.cfg.Tenants.Learn(map[int]string{1: "shop", 2: "billing"})
	key := task.LaneKey{1, 2}
	var some []*Task
	for i := range int64(5000) {
		some = append(some, &Task{seq: task.Seq(1, i), lane: key.Lane(fmt.Sprint(i), task.ClassNormal)})
	}
	for i := range int64(60) {
		some = append(some, &Task{seq: task.Seq(2, i), lane: key.Lane("billing", task.ClassNormal)})
	}
	fl.backlog.push(some)
	for _, want := range []int{50, 10, 0} {
		batch, _ := fl.backlog.take(100, never)
		require.Len(t, batch, 100)
		n := 0
		for _, t := range batch {
			if source, _ := task.SplitSeq(t.seq); source == 2 {
				n++
			}
		}
		require.Equal(t, want, n)
	}
	require.Equal(t, 5060-300, fl.backlog.size())
}
