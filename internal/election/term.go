package election

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/machine"
)

// A member reads at least three rounds per trust window, and one call may take a third of the
// window. After 2/3 of the window at the latest, a member leaves a server that stopped answering
// right after a round. The last 1/3 is for finding another server.
const roundsPerWindow = 3

// Where nothing wakes a member, a takeover waits for its rounds.
const (
	// hurryEvery is the longest pause while a new assignment is due, for hurryFor.
	hurryEvery = 100 * time.Millisecond
	hurryFor   = 2 * time.Second
	shortest   = 10 * time.Millisecond
)

var (
	errOver    = errors.New("the term is over")
	errEvicted = errors.New("own candidate is missing")
	errTaken   = errors.New("member id is held by another process")
	errOutrun  = errors.New("another leader has published first")
)

// term is the time of a member as one candidate. serve and its callees run on one goroutine.
type term struct {
	m     *Member
	seat  seat
	log   *zap.Logger
	ctx   context.Context // ends with the term, or with the connection
	end   context.CancelCauseFunc
	wake  chan struct{}  // something may have changed: read a round now
	calls sync.WaitGroup // running requests and database queries

	window   time.Duration // the trust window of this term; valid once the seat is connected
	restless time.Duration // the longest pause between rounds, where nothing wakes this term; 0: the pace
	ends     time.Duration // with restless: how long the next session lasts that ends
	changed  time.Time     // since when the assignment is of other members than the living ones; zero: it is of these
	own      string        // name of our candidate
	lead     *leader       // not nil while our candidate is the oldest
	heir     heir          // asks while it is not

	failing    bool      // as our candidate says
	othersWork time.Time // since when another member has been seen to work while this one fails; zero: none has
}

// seat is a term's access to the ground of the election.
type seat interface {
	// connected waits until requests can be made.
	connected() error
	// join makes our candidate, unless another process uses our id: errTaken.
	join() error
	// read shows that we live, and reads everything anew: the assignment first, then the
	// candidates, the oldest first.
	read() (snapshot, error)
	// publish writes a new distribution, unless our candidate is gone or s outdated: errOutrun.
	publish(s snapshot, next sharing) error
	// say changes the data of our candidate.
	say(data memberData) error
	// fails asks whether another process's candidate is gone or failing.
	fails(c candidate) (bool, error)
	// follow asks for news of the end of the candidate before ours.
	follow(before candidate) error
	// remove removes a candidate, unless its process has shown that it lives since it was read.
	remove(c candidate) error
	// leave removes our candidate. cut ends all connections without a word. unwind waits for calls.
	leave()
	cut()
	unwind()
}

// snapshot is the result of one round's reading.
type snapshot struct {
	sharing    sharing
	version    int64 // of the assignment
	candidates []candidate

	life    string        // of the database that was asked; "": the ground has none
	stale   bool          // sharing is of another life: what came after it may be forgotten
	hold    time.Duration // for how long nothing may be published yet
	ends    time.Duration // how long the next session lasts that ends, where nothing else says so
	doubted []string      // members that may live although they are no candidates
}

func (m *Member) newTerm(ctx context.Context, log *zap.Logger) *term {
	t := &term{m: m, log: log, wake: make(chan struct{}, 1), window: m.cfg.TrustWindow}
	t.heir = heir{t: t, answers: make(chan requirement, 1)}
	t.ctx, t.end = context.WithCancelCause(ctx)
	return t
}

// serveTerm returns whether the member had joined, and why the term ended.
func (m *Member) serveTerm(ctx context.Context, nth int, ending *sync.WaitGroup) (bool, error) {
	t, err := m.ground.open(ctx, nth)
	if err != nil {
		return false, err
	}
	err = t.serve()
	if ctx.Err() != nil || errors.Is(err, errEvicted) || errors.Is(err, errTaken) || errors.Is(err, errFailing) {
		m.view.distrust() // before our candidate disappears: others may act on that at once
		t.seat.leave()
	}
	t.end(errOver)
	t.seat.cut()
	ending.Go(func() {
		t.seat.unwind()
		t.calls.Wait()
	})
	return t.own != "", err
}

// serve joins and then reads round after round until something ends the term.
func (t *term) serve() error {
	if err := t.seat.connected(); err != nil {
		return err
	}
	if err := t.seat.join(); err != nil {
		return err
	}
	for {
		pause, err := t.round()
		if err != nil {
			return err
		}
		if err := t.wait(pause); err != nil {
			return err
		}
	}
}

func (t *term) wait(pause time.Duration) error {
	select {
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	case <-t.wake:
	case <-time.After(pause):
	}
	return nil
}

// round reads everything again, applies it and acts on it. The result is how long the next round
// can wait without a wake-up.
func (t *term) round() (time.Duration, error) {
	began, sent := time.Now(), machine.Exact()
	s, err := t.seat.read()
	if err != nil {
		return 0, err
	}
	if s.candidates, err = t.dropEnded(s.candidates); err != nil {
		return 0, err
	}
	place, err := t.place(s.candidates)
	if err != nil {
		return 0, err
	}
	if err := t.checkHealth(s.candidates); err != nil {
		return 0, err
	}
	alive := append(memberIDs(s.candidates), s.doubted...)
	slices.Sort(alive)
	t.expect(s)
	t.m.view.apply(sent, t.window, s.sharing, slices.Compact(alive))
	if place > 0 {
		t.lead = nil
		if removed, err := t.heir.overtake(s.candidates[:place]); removed || err != nil {
			return 0, err
		}
		err = t.seat.follow(s.candidates[place-1])
		return t.between() - time.Since(began), err
	}
	if t.lead == nil {
		t.log.Info("leading the election")
		t.lead = newLeader(t)
		return 0, nil // read again: a leader watches the members
	}
	pause, err := t.lead.act(s)
	return min(pause, t.between()-time.Since(began)), err
}

// place returns our candidate's rank by age. Left-over candidates of this process, with sessions
// not yet expired, are removed. If another process with our id came first, place withdraws.
func (t *term) place(candidates []candidate) (int, error) {
	place := slices.IndexFunc(candidates, func(c candidate) bool { return c.name == t.own })
	if place < 0 {
		return 0, errEvicted
	}
	for i, c := range candidates {
		if t.stranger(c) && i < place {
			return 0, errTaken
		}
		if c.Instance == t.m.instance && c.name != t.own {
			if err := t.seat.remove(c); err != nil {
				return 0, err
			}
		}
	}
	return place, nil
}

// stranger reports whether a candidate has our id and belongs to another process.
func (t *term) stranger(c candidate) bool {
	return c.ID == t.m.cfg.MemberID && c.Instance != t.m.instance && !t.ended(c)
}

func (t *term) dropEnded(candidates []candidate) (living []candidate, err error) {
	for _, c := range candidates {
		if !t.ended(c) {
			living = append(living, c)
			continue
		}
		if err := t.seat.remove(c); err != nil {
			return nil, err
		}
		t.log.Info("removed the candidate of a process that has ended", zap.String("ended", c.ID))
	}
	return living, nil
}

func (t *term) ended(c candidate) bool {
	return c.Instance != "" && slices.Contains(t.m.cfg.Ended, c.Instance)
}

// pace is the time limit of one call.
func (t *term) pace() time.Duration { return t.window / roundsPerWindow }

// between is the pause from the beginning of a round to the next.
func (t *term) between() time.Duration {
	if t.restless == 0 {
		return t.pace()
	}
	longest := t.restless
	if !t.changed.IsZero() && time.Since(t.changed) < hurryFor {
		longest = hurryEvery
	}
	return min(max(min(longest, t.ends), shortest), t.pace())
}

// expect notes when the next round is due early: at the end of a session, or for a new assignment.
func (t *term) expect(s snapshot) {
	t.ends = s.ends
	alive := memberIDs(s.candidates)
	if slices.Equal(alive, s.sharing.Members) && slices.Equal(instancesOf(alive, s.candidates), s.sharing.Instances) {
		t.changed = time.Time{}
	} else if t.changed.IsZero() {
		t.changed = time.Now()
	}
}
