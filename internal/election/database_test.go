package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/election/roll"
	"github.com/notyet/notyet/internal/machine"
)

const (
	session = 4 * time.Second
	beatOf  = 10 * time.Millisecond // how often owners in these tests look
)

// notebook is a Roll in memory, which remembers what it was before.
type notebook struct {
	mu    sync.Mutex
	now   state
	past  []state
	lives int
	last  int64 // epoch that was allocated
	leap  int64
}

type state struct {
	at         time.Time
	seq, epoch int64
	data       []byte
	candidates []roll.Candidate
}

func (n *notebook) change(f func(s *state)) {
	next := n.now
	next.candidates = slices.Clone(n.now.candidates)
	f(&next)
	next.at = time.Now()
	n.past, n.now = append(n.past, n.now), next
}

// forget begins another life, without what was written in the last d.
func (n *notebook) forget(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lives++
	n.leap += 1000
	for len(n.past) > 0 && time.Since(n.now.at) < d {
		n.now, n.past = n.past[len(n.past)-1], n.past[:len(n.past)-1]
	}
}

// NextEpoch allocates as the store does: a life that has forgotten epochs leaves some out.
func (n *notebook) NextEpoch(context.Context) (int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last += 1 + n.leap
	n.leap = 0
	return n.last, nil
}

func (s *state) find(instance string) int {
	return slices.IndexFunc(s.candidates, func(c roll.Candidate) bool { return c.Instance == instance })
}

func (n *notebook) Join(_ context.Context, c roll.Candidate) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.change(func(s *state) {
		if i := s.find(c.Instance); i >= 0 {
			s.candidates[i].Beat, s.candidates[i].Data = c.Beat, c.Data
			return
		}
		s.seq++
		c.Seq = s.seq
		s.candidates = append(s.candidates, c)
	})
	return nil
}

func (n *notebook) Beat(_ context.Context, c roll.Candidate) (there bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.change(func(s *state) {
		if i := s.find(c.Instance); i >= 0 {
			s.candidates[i].Beat, s.candidates[i].Data, there = c.Beat, c.Data, true
		}
	})
	return there, nil
}

func (n *notebook) Remove(_ context.Context, c roll.Candidate) (there bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.change(func(s *state) {
		if i := s.find(c.Instance); i >= 0 && s.candidates[i].Beat == c.Beat {
			s.candidates, there = slices.Delete(s.candidates, i, i+1), true
		}
	})
	return there, nil
}

func (n *notebook) Leave(_ context.Context, c roll.Candidate) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.change(func(s *state) {
		if i := s.find(c.Instance); i >= 0 && s.candidates[i].Beat <= c.Beat {
			s.candidates = slices.Delete(s.candidates, i, i+1)
		}
	})
	return nil
}

func (n *notebook) Publish(_ context.Context, by roll.Candidate, before, epoch int64, data []byte) (won bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.change(func(s *state) {
		if won = s.epoch == before && s.find(by.Instance) >= 0; won {
			s.epoch, s.data = epoch, data
		}
	})
	return won, nil
}

func (n *notebook) Read(context.Context) (roll.Page, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return roll.Page{Life: fmt.Sprint("life ", n.lives), Epoch: n.now.epoch, Data: n.now.data, Candidates: slices.Clone(n.now.candidates)}, nil
}

// way is the way of one process to the notebook.
type way struct {
	*notebook
	mu      sync.Mutex
	r       *rand.Rand
	trouble trouble
	changed chan struct{} // closed and made anew with each trouble
}

type trouble int

const (
	none   trouble = iota
	refuse         // calls fail
	deaf           // calls reach the database, and answers get lost
	frozen         // nothing passes; what waits passes when the line is well
	slow           // calls take up to half a second each way
	paused         // the process is stopped
	killed
	readOnly // the database takes no writes
)

func (w *way) set(t trouble) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble = t
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *way) now() (trouble, chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trouble, w.changed
}

func (w *way) chance(most time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.r.Int64N(int64(most)))
}

var errTrouble = errors.New("trouble")

// gate waits while the process is stopped. A killed one never comes back: its goroutines end with the test.
func (w *way) gate() error {
	for {
		switch now, changed := w.now(); now {
		case killed:
			return errTrouble
		case paused:
			<-changed
		default:
			return nil
		}
	}
}

func (w *way) reach() error {
	for {
		switch now, changed := w.now(); now {
		case refuse, readOnly:
			return errTrouble
		case slow:
			time.Sleep(w.chance(session / 8))
			return nil
		case frozen:
			<-changed
		case killed:
			return errTrouble
		default:
			return nil
		}
	}
}

func pass[T any](ctx context.Context, w *way, call func() (T, error)) (T, error) {
	var nothing T
	if err := w.gate(); err != nil {
		return nothing, err
	}
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		a := answer{err: w.reach()}
		if a.err == nil {
			a.value, a.err = call()
		}
		if now, _ := w.now(); a.err == nil && now == deaf {
			<-ctx.Done()
			a.err = ctx.Err()
		}
		if now, _ := w.now(); now == slow {
			time.Sleep(w.chance(session / 8))
		}
		answers <- a
	}()
	select {
	case a := <-answers:
		if err := w.gate(); err != nil {
			return nothing, err
		}
		return a.value, a.err
	case <-ctx.Done():
		if err := w.gate(); err != nil {
			return nothing, err
		}
		return nothing, ctx.Err()
	}
}

func (w *way) Join(ctx context.Context, c roll.Candidate) error {
	_, err := pass(ctx, w, func() (bool, error) { return true, w.notebook.Join(ctx, c) })
	return err
}

func (w *way) Beat(ctx context.Context, c roll.Candidate) (bool, error) {
	return pass(ctx, w, func() (bool, error) { return w.notebook.Beat(ctx, c) })
}

func (w *way) Remove(ctx context.Context, c roll.Candidate) (bool, error) {
	return pass(ctx, w, func() (bool, error) { return w.notebook.Remove(ctx, c) })
}

func (w *way) Leave(ctx context.Context, c roll.Candidate) error {
	_, err := pass(ctx, w, func() (bool, error) { return true, w.notebook.Leave(ctx, c) })
	return err
}

func (w *way) Publish(ctx context.Context, by roll.Candidate, before, epoch int64, data []byte) (bool, error) {
	return pass(ctx, w, func() (bool, error) { return w.notebook.Publish(ctx, by, before, epoch, data) })
}

func (w *way) Read(ctx context.Context) (roll.Page, error) {
	if now, _ := w.now(); now == readOnly {
		return w.notebook.Read(ctx)
	}
	return pass(ctx, w, func() (roll.Page, error) { return w.notebook.Read(ctx) })
}

// owner does with slots what a dispatcher does: it takes what is assigned to it and free, or whose owner is gone, and gives back what is
// assigned to others.
type owner struct {
	*Member
	*way
	hands *hands
	leave func()
	holds map[int]bool
}

// hands says in whose hands the slots are. It stands for the table slots.
type hands struct {
	mu     sync.Mutex
	slots  map[int]string
	owners []*owner
	broken []string // what must not be
	moves  int
	began  time.Time
}

func (h *hands) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.moves
}

func (h *hands) violations() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.broken)
}

func (h *hands) member(id string) *owner {
	i := slices.IndexFunc(h.owners, func(o *owner) bool { return o.MemberID() == id })
	if i < 0 {
		return nil
	}
	return h.owners[i]
}

// acts says that the owner may send something of a slot now. A process that is stopped or dead does nothing, and when it goes on it asks
// first whether it is trusted.
func (o *owner) acts(slot int) bool {
	now, _ := o.way.now()
	return now != killed && now != paused && o.Trusted() && o.holds[slot]
}

func (o *owner) look() {
	if now, _ := o.way.now(); now == killed || now == paused || !o.Trusted() {
		return
	}
	h := o.hands
	h.mu.Lock()
	defer h.mu.Unlock()
	mine := o.Current().Slots
	for slot := range o.holds {
		if h.slots[slot] != o.MemberID() {
			delete(o.holds, slot) // it was taken while nothing was trusted
		} else if !slices.Contains(mine, slot) {
			delete(o.holds, slot)
			h.slots[slot] = ""
		}
	}
	for _, slot := range mine {
		before := h.slots[slot]
		if o.holds[slot] || before != "" && before != o.MemberID() && o.Alive(before) {
			continue
		}
		if other := h.member(before); other != nil && other != o && other.acts(slot) {
			h.broken = append(h.broken, fmt.Sprintf("%v: %s takes slot %d of %s, which acts on it", time.Since(h.began), o.MemberID(), slot, before))
		}
		h.slots[slot], o.holds[slot] = o.MemberID(), true
		h.moves++
	}
}

// team runs members on a notebook, in virtual time.
type team struct {
	t     *testing.T
	book  *notebook
	hands *hands
	slots int
	quit  context.CancelFunc
	wait  sync.WaitGroup
}

func newTeam(t *testing.T, slots int) *team {
	ctx, cancel := context.WithCancel(context.Background())
	tm := &team{t: t, book: &notebook{}, hands: &hands{slots: map[int]string{}, began: time.Now()}, slots: slots, quit: cancel}
	tm.wait.Go(func() {
		for ctx.Err() == nil {
			tm.hands.mu.Lock()
			all := slices.Clone(tm.hands.owners)
			tm.hands.mu.Unlock()
			for _, o := range all {
				o.look()
			}
			time.Sleep(beatOf)
		}
	})
	return tm
}

func (tm *team) start(id string, seed uint64) *owner { return tm.startWith(id, seed, session) }

func (tm *team) startWith(id string, seed uint64, session time.Duration) *owner {
	return tm.startAs(Config{MemberID: id, SessionTimeout: session}, seed)
}

func (tm *team) startAs(cfg Config, seed uint64) *owner {
	w := &way{notebook: tm.book, r: rand.New(rand.NewPCG(seed, 1)), changed: make(chan struct{})}
	cfg.Slots = func(context.Context) (int, error) { return tm.slots, nil }
	m, err := NewDatabase(cfg, w, tm.book, zap.NewNop())
	require.NoError(tm.t, err)
	o := &owner{Member: m, way: w, hands: tm.hands, holds: map[int]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	o.leave = cancel
	tm.wait.Go(func() { _ = m.Run(ctx) })
	tm.hands.mu.Lock()
	defer tm.hands.mu.Unlock()
	tm.hands.owners = append(tm.hands.owners, o)
	return o
}

// end stops everything.
func (tm *team) end() {
	for _, o := range tm.hands.owners {
		if now, _ := o.way.now(); now != killed {
			o.way.set(none)
		}
		o.leave()
	}
	tm.quit()
	tm.wait.Wait()
	time.Sleep(session) // what nobody waits for any more
}

// owned says that these members have all slots in their hands, and nobody else any.
func (tm *team) owned(owners ...*owner) bool {
	tm.hands.mu.Lock()
	defer tm.hands.mu.Unlock()
	n := map[string]int{}
	for _, id := range tm.hands.slots {
		n[id]++
	}
	for _, o := range owners {
		if got := n[o.MemberID()]; !o.Trusted() || got < tm.slots/len(owners) || got > tm.slots/len(owners)+1 {
			return false
		}
	}
	return len(n) == len(owners) && len(tm.hands.slots) == tm.slots
}

// holds is how many slots a process works on.
func (tm *team) holds(o *owner) int {
	tm.hands.mu.Lock()
	defer tm.hands.mu.Unlock()
	return len(o.holds)
}

// until waits for a condition, and returns for how long.
func (tm *team) until(what string, most time.Duration, cond func() bool) time.Duration {
	tm.t.Helper()
	for began := time.Now(); ; time.Sleep(beatOf) {
		if cond() {
			return time.Since(began)
		}
		require.Less(tm.t, time.Since(began), most, what)
	}
}

// A leader that is killed, and all its slots, are taken over within a session and two seconds, and not before
// it has lost its trust.
func TestTakeoverThroughTheDatabaseTakesASessionAndTwoSeconds(t *testing.T) {
	for _, fate := range []trouble{killed, paused, refuse, frozen, deaf} {
		t.Run(fmt.Sprint(fate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tm := newTeam(t, 12)
				defer tm.end()
				a := tm.start("a", 1)
				tm.until("a has all", time.Minute, func() bool { return tm.owned(a) })
				b, c := tm.start("b", 2), tm.start("c", 3)
				tm.until("shared", time.Minute, func() bool { return tm.owned(a, b, c) })
				a.way.set(fate)
				took := tm.until("taken over", time.Minute, func() bool { return tm.owned(b, c) })
				require.LessOrEqual(t, took, session+2*time.Second)
				require.Greater(t, took, session*2/3)
				if fate != killed {
					a.way.set(none)
					tm.until("a is back", time.Minute, func() bool { return tm.owned(a, b, c) })
				}
				require.Empty(t, tm.hands.violations())
			})
		})
	}
}

// A process that was killed and begins again knows that its earlier start has ended, and has its slots at once, under the same id or another.
func TestASuccessorDoesNotWaitForASession(t *testing.T) {
	for _, id := range []string{"a", "d"} {
		t.Run(id, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tm := newTeam(t, 12)
				defer tm.end()
				a := tm.start("a", 1)
				tm.until("a has all", time.Minute, func() bool { return tm.owned(a) })
				b, c := tm.start("b", 2), tm.start("c", 3)
				tm.until("shared", time.Minute, func() bool { return tm.owned(a, b, c) })
				a.way.set(killed)
				moves := tm.hands.count()
				again := tm.startAs(Config{MemberID: id, SessionTimeout: session, Ended: []string{a.instance}}, 4)
				took := tm.until("taken over", time.Minute, func() bool { return tm.owned(again, b, c) && tm.holds(again) == 4 })
				require.Less(t, took, 2*lookEvery)
				require.Equal(t, moves+4, tm.hands.count(), "only the dead member's slots move")
				require.Empty(t, tm.hands.violations())
			})
		})
	}
}

// A broken connection proves no death: its process acts for as long as it trusts what it heard. Whoever took it for dead would take slots
// from it. docs/adr/0034 says more.
func TestAProcessThatOnlySeemsToHaveEndedStillActs(t *testing.T) {
	for fate, harm := range map[trouble]bool{killed: false, refuse: true, frozen: true} {
		t.Run(fmt.Sprint(fate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tm := newTeam(t, 12)
				defer tm.end()
				a, b := tm.start("a", 1), tm.start("b", 2)
				tm.until("shared", time.Minute, func() bool { return tm.owned(a, b) })
				a.way.set(fate)
				tm.startAs(Config{MemberID: "c", SessionTimeout: session, Ended: []string{a.instance}}, 3)
				time.Sleep(session)
				broken := tm.hands.violations()
				require.Equal(t, harm, len(broken) > 0, "%v", broken)
			})
		})
	}
}

func TestLeavingTheDatabaseIsSeenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := newTeam(t, 12)
		defer tm.end()
		a, b := tm.start("a", 1), tm.start("b", 2)
		tm.until("shared", time.Minute, func() bool { return tm.owned(a, b) })
		a.leave()
		require.LessOrEqual(t, tm.until("taken over", time.Minute, func() bool { return tm.owned(b) }), 2*lookEvery)
		require.Empty(t, tm.hands.violations())
	})
}

// The database is away for everybody for longer than a session: nobody is trusted, and then everybody has what it had.
func TestDatabaseAwayForAllMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := newTeam(t, 12)
		defer tm.end()
		a, b, c := tm.start("a", 1), tm.start("b", 2), tm.start("c", 3)
		all := []*owner{a, b, c}
		tm.until("shared", time.Minute, func() bool { return tm.owned(all...) })
		for i := range 30 { // at each moment between two beats
			moves := tm.hands.count()
			time.Sleep(time.Duration(i) * lookEvery / 30)
			for _, o := range all {
				o.way.set([]trouble{refuse, frozen, readOnly}[i%3])
			}
			time.Sleep(3 * session)
			for _, o := range all {
				require.False(tm.t, o.Trusted())
				o.way.set(none)
			}
			time.Sleep(3 * session)
			require.True(tm.t, tm.owned(all...))
			require.Equal(tm.t, moves, tm.hands.count())
		}
	})
}

// The database comes back without its last second, in which one joined and slots moved.
func TestDatabaseThatForgetsHasNoTwoOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := newTeam(t, 12)
		defer tm.end()
		a, b := tm.start("a", 1), tm.start("b", 2)
		tm.until("shared", time.Minute, func() bool { return tm.owned(a, b) })
		before := time.Now()
		c := tm.start("c", 3)
		tm.until("c shares", time.Minute, func() bool { return tm.owned(a, b, c) })
		epoch := c.Current().Epoch
		tm.book.forget(time.Since(before) + time.Millisecond) // c has never joined
		tm.until("shared again", 3*session, func() bool { return tm.owned(a, b, c) && a.Current().Epoch > epoch })
		require.Greater(t, a.Current().Epoch, epoch+900, "what was forgotten is left out")
		require.Empty(t, tm.hands.violations())
	})
}

// The database has forgotten a member, and the member does not know that yet.
func TestAMemberThatTheDatabaseForgetsLivesAsLongAsItTrusts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := newTeam(t, 12)
		defer tm.end()
		a, b := tm.start("a", 1), tm.start("b", 2)
		tm.until("shared", time.Minute, func() bool { return tm.owned(a, b) })
		before := time.Now()
		c := tm.start("c", 3)
		tm.until("c shares", time.Minute, func() bool { return tm.owned(a, b, c) })
		tm.book.forget(time.Since(before) + time.Millisecond)
		c.way.set(frozen)
		for c.Trusted() {
			require.True(t, a.Alive("c") && b.Alive("c"))
			time.Sleep(beatOf)
		}
		tm.until("c is dead", 2*session, func() bool { return !a.Alive("c") && !b.Alive("c") && tm.owned(a, b) })
		require.Empty(t, tm.hands.violations())
	})
}

// A rolling restart changes the session. Nobody takes the slots of a member that trusts for longer than others wait.
func TestAMemberLivesForItsOwnSession(t *testing.T) {
	for _, fate := range []string{"cut off", "forgotten"} {
		t.Run(fate, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tm := newTeam(t, 12)
				defer tm.end()
				b := tm.start("b", 2)
				tm.until("b has all", time.Minute, func() bool { return tm.owned(b) })
				before := time.Now()
				a := tm.startWith("a", 1, 5*session)
				tm.until("shared", time.Minute, func() bool { return tm.owned(a, b) })
				a.way.set(frozen)
				if fate == "forgotten" {
					tm.book.forget(time.Since(before) + time.Millisecond)
				}
				trusted := time.Now()
				for a.Trusted() {
					require.True(t, b.Alive("a"))
					time.Sleep(beatOf)
				}
				require.Greater(t, time.Since(trusted), 2*session, "by its own session")
				tm.until("a is dead", 3*session, func() bool { return tm.owned(b) })
				require.Empty(t, tm.hands.violations())
			})
		})
	}
}

// The database has forgotten everybody, and one that starts then knows nobody.
func TestANewcomerWaitsForThoseThatTheDatabaseForgot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := newTeam(t, 12)
		defer tm.end()
		old := tm.start("old", 1)
		tm.until("it has all", time.Minute, func() bool { return tm.owned(old) })
		old.leave()
		time.Sleep(time.Second)
		before := time.Now()
		a := tm.start("a", 2)
		tm.until("a has all", time.Minute, func() bool { return tm.owned(a) })
		a.way.set(frozen)
		tm.book.forget(time.Since(before) + time.Millisecond)
		d := tm.start("d", 3)
		tm.until("d has all", time.Minute, func() bool { return tm.owned(d) })
		require.Empty(t, tm.hands.violations())
	})
}

// Everything at once, at random: whoever takes a slot takes it from nobody who acts on it, and when all is
// well again, so are the members.
func TestNobodyTakesASlotFromOneThatActs(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { storm(t, uint64(seed)) })
		})
	}
}

func storm(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	tm := newTeam(t, 6+r.IntN(20))
	defer tm.end()
	var live []*owner
	begin := func() { live = append(live, tm.start(fmt.Sprint("m", len(tm.hands.owners)), r.Uint64())) }
	for range 2 + r.IntN(3) {
		begin()
	}
	for range 20 {
		time.Sleep(time.Duration(r.Int64N(int64(3 * time.Second))))
		i := r.IntN(len(live))
		switch n := r.IntN(10); {
		case n == 0:
			tm.book.forget(time.Duration(r.Int64N(int64(2 * time.Second))))
		case n == 1 && len(live) > 1:
			live[i].way.set(killed)
			live[i].leave()
			live = slices.Delete(live, i, i+1)
			begin()
		case n == 2 && len(live) > 1:
			live[i].way.set(none)
			live[i].leave()
			live = slices.Delete(live, i, i+1)
		case n == 3 && len(live) < 5:
			begin()
		case n == 4: // the whole database
			now := trouble(1 + r.IntN(4))
			for _, o := range live {
				o.way.set(now)
			}
		case n < 7:
			live[i].way.set(none)
		default:
			live[i].way.set(trouble(1 + r.IntN(5)))
		}
	}
	for _, o := range live {
		o.way.set(none)
	}
	tm.until("well again", 10*session, func() bool { return tm.owned(live...) })
	require.Empty(t, tm.hands.violations(), "seed %d", seed)
	tm.until("everybody knows", session, func() bool { return len(live[0].Current().Members) == len(live) })
}

func TestSilenceIsCountedFromTheReadingOfABeat(t *testing.T) {
	w := &watch{session: session}
	start := machine.Exact()
	at := func(d time.Duration) machine.Instant {
		return machine.Instant{Time: start.Time.Add(d), Slewed: start.Slewed, Slept: start.Slept}
	}
	page := func(life string, beats ...int64) (p roll.Page) {
		p.Life = life
		for i, beat := range beats {
			p.Candidates = append(p.Candidates, roll.Candidate{Instance: fmt.Sprint(i), ID: fmt.Sprint(i), Beat: beat})
		}
		return p
	}
	step := session / 8
	for i := range 8 {
		require.Empty(t, w.look(page("", 1, int64(i)), at(time.Duration(i)*step), ""))
	}
	require.Equal(t, []string{"0"}, w.look(page("", 1, 8), at(session), ""), "a session after it was read")
	require.Equal(t, []string{"0"}, w.look(page("", 1, 7), at(session+step), ""), "another beat is a sign of life, whichever it is")

	w = &watch{session: session}
	require.Empty(t, w.look(page("", 1, 1), at(0), ""))
	require.Empty(t, w.look(page("", 1, 1), at(100*session), ""), "who has not looked for long has not seen silence")
	require.Empty(t, w.look(page("", 1, 2), at(100*session+session/2), ""))
	require.Empty(t, w.look(page("", 1, 2), at(101*session), ""), "a quarter, a quarter and a quarter")
	require.Equal(t, []string{"0"}, w.look(page("", 1, 2), at(102*session), ""))

	require.Empty(t, w.look(page("another", 1), at(102*session+step), ""), "what the database has forgotten is not known")
	require.ElementsMatch(t, []string{"0", "1"}, w.doubted)
	require.Empty(t, w.look(page("another", 1), at(103*session), ""))
	require.NotEmpty(t, w.doubted)
	for i := range 4 {
		w.look(page("another", 1), at(103*session+time.Duration(i+1)*session/4), "")
	}
	require.Empty(t, w.doubted, "after a session nobody trusts what was told before")
}
