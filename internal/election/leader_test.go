package election

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/machine"
	"github.com/notyet/notyet/test/zkfake"
)

func TestOnlyNewcomersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		published := sharing{Epoch: 1, Members: []string{"a", "b"}, Owners: []int{0, 1}}
		l := &leader{slots: 2}
		require.Equal(t, joinDelay, l.holdBack(published, []string{"a", "b", "c"}))
		time.Sleep(joinDelay / 2)
		require.Equal(t, joinDelay/2, l.holdBack(published, []string{"a", "b", "c", "d"}), "later ones do not add to it")
		require.Zero(t, l.holdBack(published, []string{"a", "c"}), "a departure does not wait")
		l.slots = 3
		require.Zero(t, l.holdBack(published, []string{"a", "b", "c"}), "neither do new slots")
		l.slots = 2
		time.Sleep(joinDelay / 2)
		require.Zero(t, l.holdBack(published, []string{"a", "b", "c", "d"}))
		require.Equal(t, joinDelay, (&leader{slots: 2}).holdBack(sharing{}, []string{"a"}), "a first start")
	})
}

func TestSharingAfterAWipeStartsFromMemory(t *testing.T) {
	onBoth(t, func(e *ensemble) {
		term := e.joinByHand("a")
		owners := []int{1, 0, 1, 0}
		term.m.view.apply(machine.Exact(), time.Minute, sharing{Epoch: 4, Members: []string{"a", "b"}, Owners: owners}, []string{"a", "b"})
		s, err := term.read()
		require.NoError(e.t, err)
		l := newLeader(term.term)
		l.slots, l.epoch = 4, 5
		require.NoError(e.t, l.publish(s, []string{"a", "b"}))
		require.Equal(e.t, sharing{Epoch: 5, Members: []string{"a", "b"}, Owners: owners, Instances: []string{term.m.instance, ""}}, e.published())
	})
}

func TestFailingDatabaseIsNotStormed(t *testing.T) {
	e := onFake(t, zkfake.Config{})
	term := e.joinByHand("a")
	l := newLeader(term.term)
	l.answers <- answer{err: errLost}
	l.asking = true
	l.collect()
	require.False(t, l.asking)
	require.Greater(t, l.ask(true), term.pace()/2)
	require.False(t, l.asking, "a round later")
}
