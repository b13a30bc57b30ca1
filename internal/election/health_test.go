package election

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var errCutOff = errors.New("the database does not answer this process")

// soon is for tests that wait for a member to leave.
func soon(c *Config) { c.FailingAfter = 300 * time.Millisecond }

// owns says whether the members share all slots, and these alone.
func (e *ensemble) owns(members ...*member) func() bool {
	return func() bool { return e.shared(members...) }
}

func TestAMemberThatCannotWorkLeavesItsSlotsToOthers(t *testing.T) {
	for name, sick := range map[string]int{"the leader": 0, "another": 1} {
		t.Run(name, func(t *testing.T) {
			onAll(t, func(e *ensemble) {
				var members []*member
				for _, id := range []string{"a", "b", "c"} {
					members = append(members, e.start(id, soon))
					e.settle(members...)
				}
				ill := members[sick]
				others := append(append([]*member{}, members[:sick]...), members[sick+1:]...)
				ill.Report(errCutOff)
				eventually(e.t, "the others have its slots", e.owns(others...))
				require.False(e.t, ill.Trusted(), "its trust has ended before")
				ill.Report(nil)
				e.settle(members...)
			})
		})
	}
}

func TestAServerThatIsAwayForAllMovesNothing(t *testing.T) {
	onAll(t, func(e *ensemble) {
		// A machine that stands still may delay b's word for seconds: a leaves later than that.
		late := func(c *Config) { c.FailingAfter = 4 * time.Second }
		a, b := e.start("a", steady, late), e.start("b", steady, late)
		e.settle(a, b)
		epoch := a.Current().Epoch
		a.Report(errCutOff)
		time.Sleep(e.failingAfter(a) / 8) // the members notice it at different moments
		b.Report(errCutOff)
		eventually(e.t, "both say so", func() bool {
			said := e.candidates()
			return len(said) == 2 && said[0].Failing && said[1].Failing
		})
		require.Never(e.t, func() bool { return !a.Trusted() || !b.Trusted() }, 3*e.failingAfter(a), 10*time.Millisecond)
		b.Report(nil)
		a.Report(nil)
		eventually(e.t, "both are well", func() bool {
			said := e.candidates()
			return len(said) == 2 && !said[0].Failing && !said[1].Failing
		})
		require.Equal(e.t, epoch, b.Current().Epoch)
	})
}

func (e *ensemble) failingAfter(m *member) time.Duration { return m.cfg.FailingAfter }

func TestAMemberThatIsAloneStays(t *testing.T) {
	onAll(t, func(e *ensemble) {
		a := e.start("a", soon, steady)
		e.settle(a)
		a.Report(errCutOff)
		eventually(e.t, "it says so", func() bool { said := e.candidates(); return len(said) == 1 && said[0].Failing })
		const round = 4 * time.Second // a steady member needs less
		require.Never(e.t, func() bool { return !a.Trusted() }, round+2*e.failingAfter(a), 10*time.Millisecond)
	})
}

// While a member rests, the last one that works may die.
func TestARestEndsWhenNobodyElseWorks(t *testing.T) {
	onAll(t, func(e *ensemble) {
		a, b := e.start("a", soon), e.start("b", soon)
		e.settle(a, b)
		require.True(e.t, a.ground.othersWork(e.t.Context()))
		a.rests, a.back = 100, time.Now()
		a.Report(errCutOff)
		eventually(e.t, "b has all", e.owns(b))
		b.leave()
		eventually(e.t, "a has all, though it would rest for minutes more", e.owns(a))
	})
}

// others is a ground on which another member works.
type others struct{ ground }

func (others) othersWork(context.Context) bool { return true }

// A member whose work fails again each time it is back stays away for longer each time.
func TestPausesOfAMemberThatFailsAgainGrow(t *testing.T) {
	z := &Member{cfg: Config{FailingAfter: time.Millisecond}, ground: others{}}
	for n, shortest := range []time.Duration{2 * time.Millisecond, 4 * time.Millisecond, 8 * time.Millisecond, 16 * time.Millisecond} {
		began := time.Now()
		z.rest(t.Context())
		require.GreaterOrEqual(t, time.Since(began), shortest)
		require.Equal(t, n+1, z.rests)
	}
	z.back = z.back.Add(-rested)
	z.rest(t.Context())
	require.Equal(t, 1, z.rests)
}
