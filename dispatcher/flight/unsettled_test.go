package flight

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// Whatever comes of a task that is sent, it is not counted for ever.
func TestUnsettledIsCountedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		before func(s *Flight, sent *Task)
		err    error
		counts int
	}{
		"delivered":                       {func(*Flight, *Task) {}, nil, 1},
		"refused":                         {func(*Flight, *Task) {}, kerr.MessageTooLarge, 0},
		"given back":                      {func(*Flight, *Task) {}, kgo.ErrRecordTimeout, 0},
		"set aside, then delivered":       {func(s *Flight, sent *Task) { s.setAsideSent(sent) }, nil, 0},
		"its slot is lost, then it comes": {func(s *Flight, sent *Task) { s.abandon(sent.slot, "a test") }, nil, 0},
		"its partition is known since": {func(s *Flight, sent *Task) {
			s.outlets.where.ForTopic("x").Partition(sent.record, 1)
			s.outlets.rehome(sent, sent.with)
		}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			fl := newFlight(t, Config{})
			outs := fl.outlets
			l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
			fl.slots[0] = l
			settings := schemas.DefaultSettings()
			settings.Ack = schemas.AckReport
			sent := &Task{slot: l, seq: 1, pos: 50, at: 50, status: sending, content: &content{topic: "x", due: 50, size: 10, settings: settings, record: &kgo.Record{Topic: "x", Key: []byte("k")}}}
			l.tasks = append(l.tasks, sent)
			g := outs.of(sent)
			outs.beginSending(g, sent)
			require.Equal(t, 1, fl.unsettled.owed)
			c.before(fl, sent)
			fl.Due.Answered(sent, Answer{Err: c.err})
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
	fl := newFlight(t, Config{})
	outs := fl.outlets
	fl.unsettled.pace = 1000 // so there is room for 1500
	settings := schemas.DefaultSettings()
	settings.Ack = schemas.AckReport
	fill := func(topic string) (n int) {
		g := &Outlet{outletKey: outletKey{topic, 0}}
		outs.byKey[g.outletKey] = g
		for ; ; n++ {
			one := &Task{content: &content{topic: topic, settings: settings}}
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
	require.True(t, outs.hasRoom(&Outlet{}, &Task{content: &content{topic: "plain"}}), "a task that simply ends waits for none of them")
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
		fl := newFlight(t, Config{})
		content := func() *content { return &content{topic: "x", settings: schemas.DefaultSettings()} }
		blocked := &ownedSlot{number: 0, epoch: 5, claimed: 100}
		free := &ownedSlot{number: 1, epoch: 5, claimed: 100}
		fl.slots[0], fl.slots[1] = blocked, free
		add := func(l *ownedSlot, pos int64, st status) *Task {
			one := &Task{slot: l, seq: pos + int64(l.number)*1000, pos: pos, status: st, content: content()}
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
		fl.Settling.leavePinned()
		require.Equal(t, leaving, pinned.status)
		for _, one := range []*Task{before, goes, fresh} {
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
		fl.Settling.leavePinned()
		require.Len(t, fl.inbox.transitions, 1+pinnedMost, "a round takes so many")

		fl.abandon(blocked, "a test")
		free.done = 100
		require.Zero(t, fl.unsettled.oldest())
		require.Empty(t, fl.unsettled.deliveries)
	})
}
