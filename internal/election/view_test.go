package election

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/machine"
)

const window = time.Second

func signalled(v *view) bool {
	select {
	case <-v.watch:
		return true
	default:
		return false
	}
}

func inBubble(t *testing.T, test func(t *testing.T, v *view)) {
	synctest.Test(t, func(t *testing.T) { test(t, newView("a", "this", zap.NewNop())) })
}

func TestTrustIsCountedFromTheRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, v *view) {
		require.False(t, v.Trusted(), "nothing heard yet")
		sent := machine.Exact()
		time.Sleep(window * 8 / 10) // the reply takes its time
		v.apply(sent, window, sharing{}, []string{"a"})
		require.True(t, v.Trusted())
		require.True(t, signalled(v))
		time.Sleep(window*2/10 - 1)
		synctest.Wait()
		require.True(t, v.Trusted())
		require.False(t, signalled(v))
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.False(t, v.Trusted())
		require.True(t, signalled(v), "the loss is signalled when it happens")
	})
}

// The ensemble's time goes on while this machine is suspended, and CLOCK_MONOTONIC stands.
func TestTrustEndsInASuspend(t *testing.T) {
	inBubble(t, func(t *testing.T, v *view) {
		sent := machine.Exact()
		v.apply(sent, window, sharing{}, []string{"a"})
		require.True(t, v.Trusted())
		sent.Slept -= 2 * window // as if it had been before the suspend
		v.apply(sent, window, sharing{}, []string{"a"})
		require.False(t, v.Trusted())
	})
}

func TestReplyAfterTheWindowIsWorthNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, v *view) {
		sent := machine.Exact()
		time.Sleep(window)
		v.apply(sent, window, sharing{}, []string{"a"})
		require.False(t, v.Trusted())
	})
}

func TestEachRoundMovesTheWindow(t *testing.T) {
	inBubble(t, func(t *testing.T, v *view) {
		for range 5 {
			v.apply(machine.Exact(), window, sharing{}, []string{"a"})
			time.Sleep(window - 1)
			require.True(t, v.Trusted())
		}
		require.True(t, signalled(v), "the first")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.True(t, signalled(v), "the end")
		v.apply(machine.Exact(), window, sharing{}, []string{"a"})
		require.True(t, signalled(v), "trust is back")
	})
}

func TestDistrustIsImmediate(t *testing.T) {
	inBubble(t, func(t *testing.T, v *view) {
		v.apply(machine.Exact(), window, sharing{Epoch: 3, Members: []string{"a"}, Owners: []int{0}}, []string{"a"})
		require.True(t, signalled(v))
		v.distrust()
		require.False(t, v.Trusted())
		require.True(t, signalled(v))
		require.EqualValues(t, 3, v.Current().Epoch, "what is known stays known")
		time.Sleep(2 * window)
		synctest.Wait()
		v.distrust()
		require.False(t, signalled(v), "said once")
	})
}

func TestOnlyATrustedMemberCallsOthersDead(t *testing.T) {
	inBubble(t, func(t *testing.T, v *view) {
		require.True(t, v.Alive("b"), "unknown")
		v.apply(machine.Exact(), window, sharing{}, []string{"a", "b"})
		require.True(t, v.Alive("b"))
		require.True(t, signalled(v))
		v.apply(machine.Exact(), window, sharing{}, []string{"a"})
		require.False(t, v.Alive("b"))
		require.True(t, signalled(v))
		v.apply(machine.Exact(), window, sharing{}, []string{"a"})
		require.False(t, signalled(v), "nothing has changed")
		time.Sleep(window)
		require.True(t, v.Alive("b"), "stale")
	})
}

func TestAdoptedEpochNeverFalls(t *testing.T) {
	inBubble(t, func(t *testing.T, v *view) {
		both := []string{"a", "b"}
		v.apply(machine.Exact(), window, sharing{Epoch: 5, Members: both, Owners: []int{0, 1, 0}}, both)
		require.Equal(t, Assignment{Epoch: 5, Slots: []int{0, 2}, Members: both}, v.Current())
		v.apply(machine.Exact(), window, sharing{Epoch: 4, Members: both, Owners: []int{1, 1, 1}}, both)
		v.apply(machine.Exact(), window, sharing{}, both)
		require.Equal(t, []int{0, 2}, v.Current().Slots)
		v.apply(machine.Exact(), window, sharing{Epoch: 6, Members: both, Owners: []int{1, 1, 1}}, both)
		require.Equal(t, Assignment{Epoch: 6, Members: both}, v.Current())
		v.apply(machine.Exact(), window, sharing{Epoch: 7, Members: both, Owners: []int{0, 0, 1}, Instances: []string{"an earlier one", "b"}}, both)
		require.Equal(t, Assignment{Epoch: 7, Members: both}, v.Current(), "meant for another process of this id")
		v.apply(machine.Exact(), window, sharing{Epoch: 8, Members: both, Owners: []int{0, 0, 1}, Instances: []string{"this", "b"}}, both)
		require.Equal(t, Assignment{Epoch: 8, Slots: []int{0, 1}, Members: both}, v.Current())
	})
}
