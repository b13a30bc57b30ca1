package election

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/election/roll"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/machine"
	"github.com/notyet/notyet/internal/wrap"
)

// Roll is the database's part of an election. Each call is one statement, or reads only. So a
// process stopped in between holds no lock.
type Roll interface {
	// Join adds a candidate. An existing one with the Instance gets the Beat and Data.
	Join(ctx context.Context, c roll.Candidate) error
	// Beat changes a candidate's Beat and Data, and tells whether the candidate is there.
	Beat(ctx context.Context, c roll.Candidate) (bool, error)
	// Read reads everything, the candidates in the order of Seq.
	Read(ctx context.Context) (roll.Page, error)
	// Remove removes a candidate with this Beat, and tells whether there was one.
	Remove(ctx context.Context, c roll.Candidate) (bool, error)
	// Leave removes a candidate unless its Beat is later: nobody who has joined anew.
	Leave(ctx context.Context, c roll.Candidate) error
	// Publish replaces the assignment of epoch before in a candidate's name; false: one is missing.
	Publish(ctx context.Context, by roll.Candidate, before, epoch int64, data []byte) (bool, error)
}

// lookEvery is the longest pause between rounds: no change of the database wakes a member.
const lookEvery = 500 * time.Millisecond

// NewDatabase validates cfg and prepares a member. Run is the first to ask the database.
func NewDatabase(cfg Config, r Roll, epochs Epochs, log *zap.Logger) (*Member, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	m := newMember(cfg, epochs, log)
	m.ground = &register{m: m, roll: r, watch: watch{session: cfg.SessionTimeout}}
	return m, nil
}

// register is the database, as the ground of an election, for one term at a time.
type register struct {
	m     *Member
	roll  Roll
	watch watch
	beat  int64 // never the same again in this process
}

func (g *register) open(ctx context.Context, _ int) (*term, error) {
	r := &row{term: g.m.newTerm(ctx, g.m.log), register: g}
	r.seat, r.restless = r, lookEvery
	return r.term, nil
}

// othersWork asks whether another member works. Without an answer, nobody can join either.
func (g *register) othersWork(ctx context.Context) bool {
	alive, err := beating(ctx, g.roll, g.m.cfg.SessionTimeout, 1, func(d memberData) bool { return d.ID != g.m.cfg.MemberID && !d.Failing })
	return err != nil || len(alive) > 0
}

// row is the seat of a term in the database.
type row struct {
	*term
	register *register
	said     memberData
}

var _ seat = (*row)(nil)

func (r *row) connected() error { return nil }

// join also looks whether an earlier process with our id has died: maybe nobody else looks.
func (r *row) join() error {
	s, err := r.look()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(s.candidates, r.stranger) {
		return errTaken
	}
	r.said = r.m.memberData()
	c, err := r.next()
	if err != nil {
		return err
	}
	ctx, cancel := r.bound()
	defer cancel()
	if err := r.register.roll.Join(ctx, c); err != nil {
		return err
	}
	r.own = c.Instance
	return nil
}

// next is our candidate with the next beat.
func (r *row) next() (roll.Candidate, error) {
	said := r.said
	said.Session = r.m.cfg.SessionTimeout.Milliseconds()
	data, err := json.Marshal(said)
	r.register.beat++
	return roll.Candidate{Instance: r.m.instance, ID: r.m.cfg.MemberID, Beat: r.register.beat, Data: data}, err
}

// bound limits one call. A database under load may be slow, and there is no other server to go to;
// a dead connection leaves the rest of the trust window for another one.
func (r *row) bound() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.ctx, 2*r.pace())
}

func (r *row) live() error {
	c, err := r.next()
	if err != nil {
		return fmt.Errorf("encoding the candidate: %w", err)
	}
	ctx, cancel := r.bound()
	defer cancel()
	there, err := r.register.roll.Beat(ctx, c)
	if err == nil && !there {
		err = errEvicted
	}
	return err
}

// read writes first: a member unable to write does not see others fall silent.
func (r *row) read() (snapshot, error) {
	if err := r.live(); err != nil {
		return snapshot{}, err
	}
	return r.look()
}

func (r *row) look() (s snapshot, err error) {
	ctx, cancel := r.bound()
	defer cancel()
	page, err := r.register.roll.Read(ctx)
	if err != nil {
		return s, err
	}
	if s.sharing, err = decodeSharing(page.Data); err != nil {
		r.log.Error("unreadable assignment is ignored, the leader writes a new one", zap.Error(err))
	}
	s.version, s.life = page.Epoch, page.Life
	w := &r.register.watch
	only := ""
	if r.own == "" { // who has not written yet may be unable to, as all the others are
		only = r.m.cfg.MemberID
	}
	silent := w.look(page, machine.Exact(), only)
	if s.stale = s.sharing.Epoch > 0 && s.sharing.Life != page.Life; s.stale {
		s.hold = w.longest - w.lived()
	}
	s.doubted, s.ends = w.doubted, w.left()
	for _, c := range page.Candidates {
		if slices.Contains(silent, c.Instance) && c.Instance != r.m.instance {
			gone, err := r.expire(c)
			if err != nil {
				return s, err
			}
			if gone {
				continue
			}
		}
		s.candidates = append(s.candidates, candidateOf(c))
	}
	return s, nil
}

// expire removes a silent candidate. The database refuses after a sign of life since the reading.
func (r *row) expire(c roll.Candidate) (bool, error) {
	ctx, cancel := r.bound()
	defer cancel()
	gone, err := r.register.roll.Remove(ctx, c)
	if gone {
		r.log.Info("removed a member that shows no sign of life", zap.String("silent", c.ID), zap.Duration("session", r.register.watch.sessionOf(c)))
	}
	return gone, err
}

func candidateOf(c roll.Candidate) candidate {
	out := candidate{name: c.Instance, seq: int32(c.Seq), beat: c.Beat} // seq wraps, as ZooKeeper's does
	if json.Unmarshal(c.Data, &out.memberData) != nil {
		out.memberData = memberData{} // it still is a member
	}
	out.ID, out.Instance = c.ID, c.Instance
	return out
}

func (r *row) publish(s snapshot, next sharing) error {
	data, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("encoding the assignment: %w", err)
	}
	ctx, cancel := r.bound()
	defer cancel()
	won, err := r.register.roll.Publish(ctx, roll.Candidate{Instance: r.own, ID: r.m.cfg.MemberID}, s.version, next.Epoch, data)
	if err == nil && !won { // or our candidate is gone, which the next round sees
		err = errOutrun
	}
	return err
}

func (r *row) say(data memberData) error {
	r.said = data
	return r.live()
}

func (r *row) fails(c candidate) (bool, error) { return c.Failing, nil }
func (r *row) follow(candidate) error          { return nil }
func (r *row) remove(c candidate) error {
	ctx, cancel := r.bound()
	defer cancel()
	return r.register.roll.Leave(ctx, roll.Candidate{Instance: c.Instance, Beat: c.beat})
}

func (r *row) leave() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), time.Second)
	defer cancel()
	if err := r.register.roll.Leave(ctx, roll.Candidate{Instance: r.m.instance, Beat: r.register.beat}); err != nil {
		r.log.Warn("leaving the election without a word: the database does not answer", zap.Error(err))
	}
}

func (r *row) cut()    {}
func (r *row) unwind() {}

// watch notices candidates without a sign of life for their session, by this machine's oscillator
// alone. A silence counts from after the reading of a beat, and the beat was written earlier.
//
// Between two looks a quarter of the session counts at most. After an outage of the database, the
// first member to come back therefore leaves the others time for a sign of life.
//
// A database in another life may have forgotten beats, and whole candidates. Their processes still
// trust earlier answers. So everybody's session begins anew.
type watch struct {
	session time.Duration   // of this member, and of candidates that do not say theirs
	life    string          // of the database, as read last
	since   machine.Instant // when that life was first seen
	longest time.Duration   // session among those who may trust what the life before told them
	last    machine.Instant // of the last look
	silent  map[string]silence
	doubted []string // members of the life before, for the longest session
}

type silence struct {
	id      string
	beat    int64
	session time.Duration
	lasted  time.Duration
}

// look returns the candidates that were silent for their session; now is after the reading. Only
// the silence of only counts, and everybody's if only is "".
func (w *watch) look(page roll.Page, now machine.Instant, only string) (instances []string) {
	passed := now.Least(w.last)
	before := w.silent
	w.last = now
	if before == nil || page.Life != w.life {
		w.life, w.since, w.longest, w.doubted = page.Life, now, w.session, nil
		for _, s := range before {
			w.doubted = append(w.doubted, s.id)
			w.longest = max(w.longest, s.session)
		}
		before = nil
	}
	if w.lived() >= w.longest {
		w.doubted = nil
	}
	w.silent = make(map[string]silence, len(page.Candidates))
	for _, c := range page.Candidates {
		s := silence{id: c.ID, beat: c.Beat, session: w.sessionOf(c)}
		counts := only == "" || only == c.ID
		if was, known := before[c.Instance]; known && was.beat == c.Beat {
			s.lasted = was.lasted
			if counts {
				s.lasted += min(passed, s.session/4)
			}
		}
		w.silent[c.Instance] = s
		if counts && s.lasted >= s.session {
			instances = append(instances, c.Instance)
		}
	}
	return instances
}

// left is how long the next session to end lasts.
func (w *watch) left() time.Duration {
	least := w.session
	for _, s := range w.silent {
		if left := s.session - s.lasted; left > 0 {
			least = min(least, left)
		}
	}
	return least
}

// sessionOf is the candidate's own session: trust lasts for two thirds of it.
func (w *watch) sessionOf(c roll.Candidate) time.Duration {
	if own := time.Duration(candidateOf(c).Session) * time.Millisecond; own > 0 {
		return own
	}
	return w.session
}

// lived is for how long the life of the database has been known at the last look.
func (w *watch) lived() time.Duration { return w.last.Least(w.since) }

// Beating returns the ids of the living members, for a caller from outside. The call takes up to a
// session: a killed member leaves its row behind.
func Beating(ctx context.Context, r Roll, session time.Duration) ([]string, error) {
	ids, err := beating(ctx, r, session, -1, func(memberData) bool { return true })
	return ids, wrap.Err(err, "asking the database which dispatchers are alive")
}

// beating waits for signs of life of enough wanted members, or of all, or until a session's end.
func beating(ctx context.Context, r Roll, session time.Duration, enough int, wanted func(memberData) bool) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, session+time.Second)
	defer cancel()
	first, alive := map[string]int64{}, map[string]bool{}
	for began := machine.Exact(); ; loop.Rest(ctx, lookEvery/2) {
		page, err := r.Read(ctx)
		if err != nil {
			return nil, err
		}
		undecided := 0
		for _, c := range page.Candidates {
			if !wanted(candidateOf(c).memberData) {
				continue
			}
			if beat, known := first[c.Instance]; known && beat != c.Beat {
				alive[c.ID] = true
				continue
			}
			first[c.Instance] = c.Beat
			undecided++
		}
		if undecided == 0 || len(alive) == enough || machine.Exact().Least(began) >= session {
			return slices.Sorted(maps.Keys(alive)), nil
		}
	}
}
