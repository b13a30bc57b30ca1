package election

import (
	"context"
	"net"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/zkfake"
)

// These need to break the server itself, or look inside a term.

// onFake runs a test against a fake server of its own.
func onFake(t *testing.T, cfg zkfake.Config) *ensemble {
	t.Parallel()
	return newEnsemble(t, startFake(t, cfg))
}

// openByHand opens a term that the test drives itself.
func (e *ensemble) openByHand(id string, change ...func(*Config)) *znodes {
	opened, err := e.member(id, change...).ground.open(context.Background(), 0)
	require.NoError(e.t, err)
	term := opened.seat.(*znodes)
	e.t.Cleanup(func() {
		term.m.view.distrust() // its timer would log after the test
		term.leave()
		term.end(errOver)
		term.cut()
		term.unwind()
		term.calls.Wait()
	})
	require.NoError(e.t, term.connected())
	return term
}

func (e *ensemble) joinByHand(id string) *znodes {
	term := e.openByHand(id)
	require.NoError(e.t, term.join())
	return term
}

// The library reads the last zxid that it was told while its receiving goroutine writes it, when it
// sets watches. It has nothing to write down if it is told none.
func TestClientIsToldNoZxid(t *testing.T) {
	onBoth(t, func(e *ensemble) {
		term := e.joinByHand("a")
		_, err := term.read()
		require.NoError(e.t, err)
		seen := reflect.ValueOf(term.conn).Elem().FieldByName("lastZxid")
		require.True(e.t, seen.IsValid(), "the library has no such field any more: look whether it still races")
		require.Zero(e.t, seen.Int())
	})
}

func TestTakenIDIsNotJoined(t *testing.T) {
	onBoth(t, func(e *ensemble) {
		first := e.joinByHand("same")
		require.ErrorIs(e.t, e.openByHand("same").join(), errTaken)
		require.Len(e.t, e.candidates(), 1)

		// Two that looked at the same moment have both joined: the older candidate has the id.
		own, err := first.readCandidates()
		require.NoError(e.t, err)
		other := candidate{name: "other", memberData: memberData{ID: "same", Instance: "other"}}
		_, err = first.place([]candidate{other, own[0]})
		require.ErrorIs(e.t, err, errTaken)
		place, err := first.place([]candidate{own[0], other})
		require.NoError(e.t, err)
		require.Zero(e.t, place)
	})
}

func TestPausedLeaderOverwritesNothing(t *testing.T) {
	onBoth(t, func(e *ensemble) {
		paused := e.joinByHand("a")
		l := newLeader(paused.term)
		l.slots, l.epoch = 10, 7
		s, err := paused.read()
		require.NoError(e.t, err)

		// …it is paused here, and another leader publishes.
		newer := []byte(`{"epoch":8,"members":["b"],"owners":[0]}`)
		_, err = e.admin.Set(e.paths.assignment, newer, -1)
		require.NoError(e.t, err)
		require.NoError(e.t, l.publish(s, []string{"a"}))
		require.EqualValues(e.t, 8, e.published().Epoch)

		// The epoch is judged too, if the pause comes before the read.
		l.epoch = 7
		s, err = paused.read()
		require.NoError(e.t, err)
		_, err = l.act(s)
		require.NoError(e.t, err)
		require.EqualValues(e.t, 8, e.published().Epoch)

		// And a leader whose candidate is gone is none, whatever version and epoch it holds.
		require.NoError(e.t, e.admin.Delete(e.paths.members+"/"+paused.own, -1))
		l.epoch = 9
		require.ErrorIs(e.t, l.publish(s, []string{"a"}), errEvicted)
		require.EqualValues(e.t, 8, e.published().Epoch)
	})
}

func TestDeletedCandidateEndsTrust(t *testing.T) {
	onBoth(t, func(e *ensemble) {
		z := e.member("a")
		ended := make(chan error, 1)
		var ending sync.WaitGroup
		go func() {
			_, err := z.serveTerm(context.Background(), 0, &ending)
			ended <- err
		}()
		eventually(e.t, "joined", z.Trusted)
		require.NoError(e.t, e.admin.Delete(e.paths.members+"/"+e.candidates()[0].name, -1))
		require.ErrorIs(e.t, <-ended, errEvicted)
		require.False(e.t, z.Trusted(), "no need to wait for the window")
		ending.Wait()
	})
}

func TestDeletedCandidateIsMadeAnew(t *testing.T) {
	onBoth(t, func(e *ensemble) {
		a := e.start("a")
		e.settle(a)
		old := e.candidates()[0]
		require.NoError(e.t, e.admin.Delete(e.paths.members+"/"+old.name, -1))
		eventually(e.t, "a new candidate of a new session", func() bool {
			cs := e.candidates()
			return len(cs) == 1 && cs[0].name != old.name && cs[0].owner != old.owner
		})
		e.settle(a)
	})
}

func TestExpiredMemberStartsANewTerm(t *testing.T) {
	e := onFake(t, zkfake.Config{})
	a := e.start("a")
	e.settle(a)
	b := e.start("b")
	e.settle(a, b)
	require.True(t, e.fake.Expire(e.candidates()[0].owner))
	eventually(t, "a is back, behind b", func() bool {
		cs := e.candidates()
		return len(cs) == 2 && cs[0].ID == "b" && cs[1].ID == "a"
	})
	e.settle(a, b)
}

func TestServerRestartedEmpty(t *testing.T) {
	e := onFake(t, zkfake.Config{})
	a, b := e.start("a"), e.start("b")
	e.settle(a, b)
	epoch := a.Current().Epoch
	e.fake.Close()
	eventually(t, "nobody is trusted", func() bool { return !a.Trusted() && !b.Trusted() })
	startFake(t, zkfake.Config{Addr: e.server})
	eventually(t, "shared under a higher epoch", func() bool { return a.Current().Epoch > epoch && e.shared(a, b) })
}

func TestTrustShrinksWithTheGrantedTimeout(t *testing.T) {
	e := onFake(t, zkfake.Config{MaxSessionTimeout: sessionTimeout})
	line := startProxy(t, e.server)
	a := e.start("a", through(line), func(c *Config) { c.SessionTimeout = 100 * sessionTimeout })
	b := e.start("b")
	e.settle(a, b)
	before := a.lapsed()
	line.freeze(toServer | toMember)
	e.takenOver(a, before, func() bool { return e.shared(b) })
}

func TestSilentServerIsPassedOver(t *testing.T) {
	e := onFake(t, zkfake.Config{})
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody answers
	require.NoError(t, err)
	defer silent.Close()
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refusing.Close()
	a := e.start("a", func(c *Config) {
		c.Servers = []string{silent.Addr().String(), refusing.Addr().String(), e.server}
	})
	e.settle(a)
}

func TestLostServerIsReplacedWithinTrust(t *testing.T) {
	e := onFake(t, zkfake.Config{})
	one, two := startProxy(t, e.server), startProxy(t, e.server)
	a := e.start("a", func(c *Config) {
		c.Servers, c.SessionTimeout = []string{one.addr(), two.addr()}, 10*sessionTimeout
	})
	e.settle(a)
	session := e.candidates()[0].owner
	for _, p := range []*proxy{one, two} {
		p.mu.Lock()
		used := len(p.conns) > 0
		p.mu.Unlock()
		if used {
			p.freeze(toServer | toMember)
		}
	}
	eventually(t, "a new session by the other server", func() bool {
		cs := e.candidates()
		return len(cs) == 1 && cs[0].owner != session
	})
	require.True(t, a.Trusted())
	require.Zero(t, a.lapsed(), "a third of the window is left to change servers")
}

func TestRunEndsWithoutAnEnsemble(t *testing.T) {
	t.Parallel()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer nobody.Close()
	z, err := NewZooKeeper(Config{Servers: []string{nobody.Addr().String()}, SessionTimeout: sessionTimeout,
		Slots: func(context.Context) (int, error) { return 10, nil }}, &countingEpochs{}, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 3*sessionTimeout)
	defer cancel()
	require.NoError(t, z.Run(ctx))
	ended := time.Now()
	deadline, _ := ctx.Deadline()
	require.Less(t, ended.Sub(deadline), time.Minute, "the client takes up to a second or two to end")
	require.False(t, z.Trusted())
	require.Zero(t, z.Current())
	require.NotEmpty(t, z.MemberID())
	require.True(t, z.Alive("anybody"))
}

// slowSeat answers late. What a test of one round does not ask for is not there.
type slowSeat struct {
	seat
	takes time.Duration
	snapshot
}

func (s slowSeat) read() (snapshot, error) {
	time.Sleep(s.takes)
	return s.snapshot, nil
}

// A round's trust counts from when it asked. Where the whole process stands still behind it, as in a suspend, no timer ends the term: nothing
// but the count protects the slots.
func TestTrustOfARoundIsCountedFromItsQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(Config{MemberID: "a", TrustWindow: window}, nil, nil)
		term := m.newTerm(t.Context(), m.log)
		term.own = "own"
		term.seat = slowSeat{takes: window * 3 / 10, snapshot: snapshot{sharing: sharing{Epoch: 1}, candidates: []candidate{{name: "own", memberData: memberData{ID: "a"}}}}}
		_, err := term.round()
		require.NoError(t, err)
		time.Sleep(window*7/10 - 1)
		require.True(t, m.Trusted())
		time.Sleep(time.Nanosecond)
		require.False(t, m.Trusted())
		m.view.distrust()
	})
}
