package election

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// demands is what is required of an ensemble's members, as their database has it.
type demands struct {
	words atomic.Pointer[[]string]
	away  atomic.Bool
	asked atomic.Int64
}

func (d *demands) require(words ...string) { d.words.Store(&words) }

// can is a member that can do what the words say, and looks what is required.
func (d *demands) can(words ...string) func(*Config) {
	return func(c *Config) {
		c.Can = words
		c.Required = func(context.Context) ([]string, error) {
			d.asked.Add(1)
			if d.away.Load() {
				return nil, errors.New("the database is away")
			}
			if w := d.words.Load(); w != nil {
				return *w, nil
			}
			return nil, nil
		}
	}
}

// older is a member of the release before: it says nothing of what it can do, and asks nothing.
func older(*Config) {}

// holds tells whether the members, trusted, have all slots, and the others, trusted too, none.
func (e *ensemble) holds(members, others []*member) bool {
	for _, m := range others {
		if !m.Trusted() || len(m.Current().Slots) > 0 || m.Current().Epoch != members[0].Current().Epoch {
			return false
		}
	}
	return e.shared(members...)
}

func (e *ensemble) order() (ids []string) {
	for _, c := range e.candidates() {
		ids = append(ids, c.ID)
	}
	return ids
}

func TestOnlyMembersThatCanDoWhatIsRequiredGetSlots(t *testing.T) {
	onAll(t, func(e *ensemble) {
		var d demands
		a := e.start("a", d.can("spread"), steady)
		e.settle(a)
		old := e.start("old", older, steady)
		e.settle(a, old)
		d.require("spread")
		eventually(e.t, "the older one loses its slots, and stays", func() bool { return e.holds([]*member{a}, []*member{old}) })
		require.True(e.t, a.Alive("old"), "it drains what it had")
		b := e.start("b", d.can("more", "spread"), steady)
		eventually(e.t, "another one gets some", func() bool { return e.holds([]*member{a, b}, []*member{old}) })
		late := e.start("late", older, steady)
		eventually(e.t, "it joins", func() bool { return late.Trusted() && len(e.candidates()) == 4 })
		require.Empty(e.t, late.Current().Slots)
		require.Equal(e.t, []string{"a", "old", "b", "late"}, e.order(), "nobody was removed")
		d.require()
		e.settle(a, b, old, late)
		e.nobodyLapsed(a, b, old, late)
	})
}

func TestTheOldestThatCanDoWhatIsRequiredLeads(t *testing.T) {
	onAll(t, func(e *ensemble) {
		var d demands
		first, second := e.start("first", older), e.start("second", older)
		e.settle(first, second)
		b := e.start("b", d.can("spread"), steady)
		e.settle(first, second, b)
		c := e.start("c", d.can("spread"), steady)
		e.settle(first, second, b, c)
		epoch := b.Current().Epoch
		d.require("spread")
		eventually(e.t, "both older ones join again behind", func() bool {
			order := e.order()
			return len(order) == 4 && slices.Equal(order[:2], []string{"b", "c"}) && e.holds([]*member{b, c}, []*member{first, second})
		})
		require.Greater(e.t, b.Current().Epoch, epoch)
		e.nobodyLapsed(b, c)

		b.leave()
		eventually(e.t, "the next one leads", func() bool { return e.holds([]*member{c}, []*member{first, second}) })
		c.leave()
		e.settle(first, second) // none can: somebody must own the slots
		d.require()
		back := e.start("back", d.can("spread"))
		e.settle(first, second, back)
		require.Equal(e.t, "back", e.order()[2], "while nothing is required, the oldest leads")
	})
}

// With one release nothing changes: nobody asks but the leader, and nobody is removed.
func TestMembersOfOneReleaseAskNothing(t *testing.T) {
	onAll(t, func(e *ensemble) {
		var d demands
		var asks [3]atomic.Int64
		counted := func(i int) func(*Config) {
			return func(c *Config) {
				d.can("spread")(c)
				ask := c.Required
				c.Required = func(ctx context.Context) ([]string, error) { asks[i].Add(1); return ask(ctx) }
			}
		}
		a := e.start("a", counted(0), steady)
		e.settle(a)
		b, c := e.start("b", counted(1), steady), e.start("c", counted(2), steady)
		e.settle(a, b, c)
		before, epoch := e.candidates(), a.Current().Epoch
		d.require("spread")
		at := asks[0].Load()
		eventually(e.t, "the leader asks again", func() bool { return asks[0].Load() > at+1 })
		require.Equal(e.t, epoch, c.Current().Epoch)
		for i, now := range e.candidates() {
			require.Equal(e.t, before[i].seq, now.seq)
		}
		require.Zero(e.t, asks[1].Load()+asks[2].Load())
		e.nobodyLapsed(a, b, c)
	})
}

// A member that cannot ask, or lacks a word itself, leaves the older ones alone.
func TestNobodyIsRemovedWithoutNeed(t *testing.T) {
	onAll(t, func(e *ensemble) {
		var d demands
		d.require("spread")
		d.away.Store(true)
		old := e.start("old", older)
		e.settle(old)
		a := e.start("a", d.can("spread"))
		e.settle(old, a)
		eventually(e.t, "it asks again", func() bool { return d.asked.Load() > 1 })
		require.Equal(e.t, []string{"old", "a"}, e.order())
		d.require("spread", "more")
		at := d.asked.Load()
		d.away.Store(false)
		eventually(e.t, "it asks", func() bool { return d.asked.Load() > at+1 })
		require.Equal(e.t, []string{"old", "a"}, e.order(), "nobody can do everything")
		e.settle(old, a)
		d.require("spread")
		eventually(e.t, "it leads", func() bool { return e.holds([]*member{a}, []*member{old}) })
	})
}

// An older leader that is paused, and removed meanwhile, overwrites nothing when it goes on. Neither
// does the removal harm it then, once it has joined again.
func TestALeaderThatWasRemovedOverwritesNothing(t *testing.T) {
	onAll(t, func(e *ensemble) {
		var d demands
		var ended []*term
		byHand := func(m *Member) (*term, snapshot) {
			opened, err := m.ground.open(context.Background(), 0)
			require.NoError(e.t, err)
			ended = append(ended, opened)
			require.NoError(e.t, opened.seat.connected())
			require.NoError(e.t, opened.seat.join())
			s, err := opened.seat.read()
			require.NoError(e.t, err)
			return opened, s
		}
		e.t.Cleanup(func() {
			for _, t := range ended {
				t.m.view.distrust()
				t.seat.leave()
				t.end(errOver)
				t.seat.cut()
				t.seat.unwind()
				t.calls.Wait()
			}
		})
		paused, before := byHand(e.member("old", older))
		l := newLeader(paused)
		l.slots, l.epoch = 10, 7
		d.require("spread")
		b, s := byHand(e.member("b", d.can("spread")))
		removed := false
		eventually(e.t, "the older candidate is removed", func() bool {
			var err error
			removed, err = b.heir.overtake(s.candidates[:1])
			require.NoError(e.t, err)
			return removed
		})
		require.Equal(e.t, []string{"b"}, e.order())
		next, err := b.seat.read()
		require.NoError(e.t, err)
		require.Greater(e.t, b.heir.returning(next.candidates), time.Duration(0), "it may not have noticed")

		err = l.publish(before, []string{"old"})
		if e.table == nil {
			require.ErrorIs(e.t, err, errEvicted)
		} else {
			require.NoError(e.t, err, "outrun, it reads again")
		}
		require.Zero(e.t, e.published().Epoch)
		_, err = paused.round()
		require.ErrorIs(e.t, err, errEvicted)

		stale := s.candidates[0]
		_, s = byHand(paused.m)
		require.Equal(e.t, []string{"b", "old"}, e.order())
		require.LessOrEqual(e.t, b.heir.returning(s.candidates), time.Duration(0), "it is back")
		require.NoError(e.t, b.seat.remove(stale))
		require.Equal(e.t, []string{"b", "old"}, e.order(), "a late removal is of what was read")
	})
}
