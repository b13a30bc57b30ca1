package shards

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
)

// Databases are the copies of an installation, by the numbers of the databases. One that
// does not answer is left out.
type Databases map[int]Shards

const (
	// moveFor limits a move: meanwhile records of its targets are not decided, and the partitions
	// with such records stand.
	moveFor = 5 * time.Second
	// restFor limits how long none of the targets' tasks is delivered because of a move that fails.
	restFor = 2 * time.Second
	// movedBy is how long an announcement stands without a sign of its mover's life, and signEvery
	// the time between two signs.
	movedBy   = 3 * time.Second
	signEvery = 500 * time.Millisecond
	// moveLook is the time between two looks at how far a database has come.
	moveLook = 20 * time.Millisecond
)

// Maps reads the rules of all databases.
func (d Databases) Maps(ctx context.Context) (map[int]shardmap.Map, error) {
	out := map[int]shardmap.Map{}
	for n, s := range d {
		m, err := s.Map(ctx)
		if err != nil {
			return nil, wrap.Err(err, "asking database %d", n)
		}
		out[n] = m
	}
	return out, nil
}

// Latest returns the copy with the most rules in force, and the databases that answer. One that
// does not answer within a second is left out. nil: none answers.
func (d Databases) Latest(ctx context.Context) (latest *shardmap.Map, answer Databases) {
	maps, answer, _ := d.copies(ctx)
	for _, m := range maps {
		if latest == nil {
			latest = &m
		}
		latest = latest.Later(&m)
	}
	return latest, answer
}

// copies returns the rules of the databases that answer within a second, and why others do not.
func (d Databases) copies(ctx context.Context) (maps map[int]shardmap.Map, answer Databases, failed error) {
	type copied struct {
		n   int
		m   shardmap.Map
		err error
	}
	copies := make(chan copied, len(d))
	for n, s := range d {
		go func() {
			bound, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			m, err := s.Map(bound)
			copies <- copied{n, m, err}
		}()
	}
	maps, answer = map[int]shardmap.Map{}, Databases{}
	for range d {
		if c := <-copies; c.err != nil {
			failed = errors.Join(failed, wrap.Err(c.err, "asking database %d", c.n))
		} else {
			maps[c.n], answer[c.n] = c.m, d[c.n]
		}
	}
	return maps, answer, failed
}

// Forgotten tells whether a database, which has these rules, lacks one that others know it has had.
// Of an announced rule only the former home knows: it is asked last, and first told that the rule
// is taken back.
func (d Databases) Forgotten(ctx context.Context, n int, own shardmap.Map) bool {
	maps, _, _ := d.copies(ctx)
	for k, m := range maps {
		for _, r := range m.Rules {
			had := r.Held && (r.Shard == n || r.Former == n) || r.Shard == n && r.Former == k
			here := len(own.Rules) >= r.N && own.Rules[r.N-1].Token == r.Token
			if had && (!here || r.Held && !own.Rules[r.N-1].Held && r.Former == n) {
				return true
			}
		}
	}
	return false
}

// Moving fails with ErrMoving while a target may leave a database, or its tasks follow. topic is
// the only target that matters; "": all do. The database itself has to answer.
func (d Databases) Moving(ctx context.Context, n int, topic string) error {
	maps, _, err := d.copies(ctx)
	if _, there := maps[n]; !there && err != nil {
		return err
	}
	for _, m := range maps {
		if m.Moves(topic) {
			return ErrMoving
		}
	}
	return nil
}

// Move has the targets of a rule live in another database from now on: Pattern, Part, Parts, Former
// and Shard are the caller's. All databases must be there, and must have the same rules.
//
// The new home is asked first, and then the former one: none of them decides a record of the
// targets from then on. Once the former one has stored all that the new one has passed, and no
// delivery of the targets is under way, it lets the targets go, by one transaction that says from
// which offsets on. Before that, their next tasks leave its line, so that it claims none of them.
// The others follow: see Follow. The first database is asked first in each move, unless the targets
// leave it: so of two at once one goes on, but of two opposite ones perhaps none.
func (d Databases) Move(ctx context.Context, rule shardmap.Rule) (shardmap.Rule, error) {
	return d.MoveBehind(ctx, rule, nil)
}

// Ends returns up to where some partitions have records.
type Ends func(ctx context.Context) (map[shardmap.Partition]int64, error)

// MoveBehind is Move, but no task leaves before the former home has stored some partitions: those
// with the cancels of many, which hold for the tasks where they were listed. It asks for their ends
// once the move is announced, and nobody publishes such cancels from then on.
func (d Databases) MoveBehind(ctx context.Context, rule shardmap.Rule, cancels Ends) (shardmap.Rule, error) {
	if err := rule.Check(); err != nil {
		return rule, err
	}
	if d[rule.Former].h == nil || d[rule.Shard].h == nil || d[shardmap.Home].h == nil || rule.Former == rule.Shard {
		return rule, fmt.Errorf("no target can move from database %d to database %d", rule.Former, rule.Shard)
	}
	maps, err := d.Maps(ctx)
	if err != nil {
		return rule, err
	}
	for n, m := range maps {
		if len(m.Rules) != len(maps[rule.Former].Rules) || m.Announced() != nil {
			return rule, fmt.Errorf("%w: database %d has other rules", ErrMoving, n)
		}
		if r := m.Following(); r != nil {
			return rule, fmt.Errorf("%w: tasks of %s follow to database %d", ErrMoving, r.Pattern, r.Shard)
		}
	}
	rule.N, rule.Token = len(maps[rule.Former].Rules)+1, token()
	bound, cancel := context.WithTimeout(ctx, moveFor)
	defer cancel()
	by := d.mover(rule)
	defer by.showSigns(bound)()
	held, asked, err := by.move(bound, maps[rule.Former], cancels)
	if err != nil {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), moveFor)
		defer cancel()
		if !asked { // the former home may be away, and the new one need not wait for it
			return rule, errors.Join(err, by.retract(after))
		}
		if gone, undo := by.withdraw(after); undo != nil || gone {
			return rule, errors.Join(err, undo)
		}
		held, err = by.former.Leave(after, rule.Token) // it is in force nevertheless
	}
	if err != nil {
		return rule, err
	}
	learns := func(n int) error {
		return wrap.Err(d[n].Take(ctx, []shardmap.Rule{held}), "the targets have moved, and database %d will learn of it", n)
	}
	if err := learns(rule.Shard); err != nil { // first: its records of the targets wait
		return held, err
	}
	held.Followed = d.FollowSoon(ctx)
	for n := range d {
		if n != rule.Shard && n != rule.Former {
			err = errors.Join(err, learns(n))
		}
	}
	return held, err
}

func token() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return string(random[:])
}

// mover moves the targets of one rule.
type mover struct {
	follower
	all Databases
}

func (d Databases) mover(rule shardmap.Rule) mover { return mover{d.follower(rule, nil), d} }

// move is the move itself. known are the rules of the former home from before: while the new home
// is asked, somebody may take its announcement back, and asks the former one first. asked: the rule
// may be announced in the former home.
func (m mover) move(ctx context.Context, known shardmap.Map, cancels Ends) (held shardmap.Rule, asked bool, err error) {
	if m.rule.Former != shardmap.Home { // that one is asked below
		if _, err := m.all[shardmap.Home].Announce(ctx, m.rule, 0); err != nil {
			return m.rule, false, err
		}
	}
	passed, err := m.shard.Announce(ctx, m.rule, 0)
	if err != nil {
		return m.rule, false, err
	}
	if err := m.storedBy(ctx, passed); err != nil {
		return m.rule, false, err
	}
	if _, err := m.former.Announce(ctx, m.rule, known.Version); err != nil {
		return m.rule, true, err
	}
	if passed, err = m.shard.Announce(ctx, m.rule, 0); err != nil { // it may have forgotten, and passed more
		return m.rule, true, err
	}
	if err := m.storedBy(ctx, passed); err != nil {
		return m.rule, true, err
	}
	heard, err := m.policiesGo(ctx, known.Rules)
	if err != nil {
		return m.rule, true, err
	}
	if cancels != nil {
		ends, err := cancels(ctx)
		if err != nil {
			return m.rule, true, err
		}
		if err := m.storedBy(ctx, ends); err != nil {
			return m.rule, true, fmt.Errorf("%w: cancels of many are not decided: %w", ErrMoving, err)
		}
	}
	if err := loop.Rest(ctx, time.Until(heard)); err != nil {
		return m.rule, true, err
	}
	resting, cancel := context.WithTimeout(ctx, restFor)
	defer cancel()
	held, err = m.letGo(resting)
	return held, true, err
}

// heardWithin is how long after a pause or a limit was stored each dispatcher keeps to it.
const heardWithin = time.Second

// policiesGo has the policies of the targets that leave be in force in the new home, and returns
// from when on. known are the rules from before. Until the new home has the rule, nobody changes a
// policy there. The former home keeps them, for a new home that is set back.
func (m mover) policiesGo(ctx context.Context, known []shardmap.Rule) (heard time.Time, err error) {
	before := shardmap.Map{Rules: known}
	leave := func(target string) bool { return m.rule.Matches(target) && before.Home(target) == m.rule.Former }
	all, err := admin.New(m.former.h.Ref()).Policies(ctx)
	if err != nil {
		return heard, err
	}
	if slices.ContainsFunc(all, func(p admin.Policy) bool { return leave(p.Topic) && !p.Open() }) {
		heard = time.Now().Add(heardWithin)
	}
	return heard, admin.New(m.shard.h.Ref()).AdoptPolicies(ctx, all, leave)
}

// storedBy waits until the former home has stored partitions up to some offsets.
func (m mover) storedBy(ctx context.Context, passed map[shardmap.Partition]int64) error {
	for waits := error(nil); ; {
		stored, err := m.former.Stored(ctx)
		if err != nil {
			return errors.Join(waits, err)
		}
		part, behind := lags(stored, passed)
		if !behind {
			return nil
		}
		waits = fmt.Errorf("database %d has stored %s/%d up to offset %d, and %d is needed", m.rule.Former, part.Topic, part.Partition, stored[part], passed[part])
		if err := loop.Rest(ctx, moveLook); err != nil {
			return errors.Join(waits, err)
		}
	}
}

// letGo has the former home let the targets go, once their next tasks have left its line and no
// delivery is under way.
func (m mover) letGo(ctx context.Context) (held shardmap.Rule, err error) {
	for waits := error(nil); ; {
		if _, err := m.takeOut(ctx, nearAhead); err != nil {
			return m.rule, errors.Join(waits, err)
		}
		if held, err = m.former.Leave(ctx, m.rule.Token); err == nil {
			return held, nil
		} else if !errors.Is(err, intake.ErrUnderWay) {
			return held, errors.Join(waits, err)
		}
		waits = err
		if err := loop.Rest(ctx, moveLook); err != nil {
			return m.rule, errors.Join(waits, err)
		}
	}
}

// lags returns a partition of which less is stored than was passed.
func lags(stored, passed map[shardmap.Partition]int64) (shardmap.Partition, bool) {
	for part, at := range passed {
		if stored[part] < at {
			return part, true
		}
	}
	return shardmap.Partition{}, false
}

// withdraw takes an announced rule back unless the rule is in force: at the former home first, so
// nobody brings the rule into force while the new home goes on without.
func (m mover) withdraw(ctx context.Context) (bool, error) {
	if m.former.h == nil {
		return false, fmt.Errorf("database %d, which knows whether its targets have left, does not answer", m.rule.Former)
	}
	if gone, err := m.former.Withdraw(ctx, m.rule.Token); err != nil || !gone {
		return false, err
	}
	err := m.retract(ctx)
	return err == nil, err
}

// retract takes the announcement of a rule back that never comes into force, where the former home
// has none. A database that does not answer is told later: see Tend.
func (m mover) retract(ctx context.Context) (failed error) {
	for _, n := range []int{m.rule.Shard, shardmap.Home} {
		if s, there := m.all[n]; there && n != m.rule.Former {
			_, err := s.Withdraw(ctx, m.rule.Token)
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// showSigns shows, where a rule is announced, that its mover lives, until the caller ends it.
func (m mover) showSigns(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	for _, n := range []int{shardmap.Home, m.rule.Shard, m.rule.Former} {
		if s, there := m.all[n]; there {
			work.Go(func() { loop.Every(ctx, signEvery, func(ctx context.Context) { _ = s.sign(ctx, m.rule.Token) }) }) // without one it is taken back
		}
	}
	return func() { cancel(); work.Wait() }
}

// Tend brings the copies together: each takes the rules of the others. An announcement without a
// sign of life is taken back: the mover may have died. Each service tends its databases again and
// again, and before its scanners begin.
func (d Databases) Tend(ctx context.Context) error {
	maps, err := d.Maps(ctx)
	if err != nil {
		return err
	}
	for n, to := range maps {
		for _, from := range maps {
			if lacking := lacks(from, to, n); len(lacking) > 0 {
				if err := d.bring(ctx, n, to, from.Rules, lacking); err != nil {
					return wrap.Err(err, "bringing database %d up to date", n)
				}
				return d.Tend(ctx)
			}
		}
	}
	for n, m := range maps {
		rule := m.Announced()
		if rule == nil {
			continue
		}
		if age, there, err := d[n].announcedFor(ctx, rule.Token); err != nil {
			return err
		} else if there && (age > movedBy.Milliseconds() || age < -moveFor.Milliseconds()) {
			if gone, err := d.mover(*rule).withdraw(ctx); err != nil || gone {
				return err
			}
			return d.Tend(ctx) // it is in force in the former home
		}
	}
	return nil
}

// bring gives a database the rules that it lacks, out of all. to are its own.
func (d Databases) bring(ctx context.Context, n int, to shardmap.Map, all, lacking []shardmap.Rule) error {
	announced := to.Announced()
	for _, r := range lacking {
		if announced != nil && announced.N == r.N && announced.Token != r.Token { // something may have left for it
			if _, err := d[n].Withdraw(ctx, announced.Token); err != nil {
				return err
			}
		}
	}
	var latest time.Time
	for _, r := range lacking {
		here := find(to.Rules, r.Token)
		if _, there := d[r.Former]; there && r.Shard == n && !r.Removes() && (here == nil || !here.Held) {
			heard, err := d.mover(r).policiesGo(ctx, all[:r.N-1])
			if err != nil {
				return err
			}
			if heard.After(latest) {
				latest = heard
			}
		}
	}
	if err := loop.Rest(ctx, time.Until(latest)); err != nil {
		return err
	}
	if err := d[n].Take(ctx, lacking); err != nil {
		return err
	}
	for _, r := range lacking {
		if shard, there := d[r.Shard]; there && r.Former == n && !r.Followed {
			_, arrived, err := shard.intake().Progress(ctx, following(r))
			if err == nil {
				err = d[n].resume(ctx, r.N, arrived)
			}
			if err != nil && !errors.Is(err, intake.ErrNoMove) {
				return err
			}
		}
	}
	return nil
}
