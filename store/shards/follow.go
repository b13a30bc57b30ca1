package shards

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
)

// ErrFormerAway: a former home does not answer, and may have tasks of targets that have left it.
var ErrFormerAway = errors.New("the former database of the targets does not answer, and may have this task")

func following(r shardmap.Rule) intake.Following {
	return intake.Following{N: r.N, Token: r.Token, Nowhere: r.Followed}
}

func (s Shards) intake() intake.Moves { return intake.Moves{Intake: intake.New(s.h.Ref())} }

// Follow has the tasks of targets that have moved follow them, until none is left in the former
// home. Any process may do so, several beside each other, and again after one was killed.
func (d Databases) Follow(ctx context.Context) error { return d.followAll(ctx, false) }

// FollowAtRest has those tasks follow that are at rest. The dispatchers need not run.
func (d Databases) FollowAtRest(ctx context.Context) error { return d.followAll(ctx, true) }

func (d Databases) followAll(ctx context.Context, once bool) error {
	for some := false; ; some = true {
		maps, answer, err := d.copies(ctx)
		var rule *shardmap.Rule
		for n, m := range maps { // the earliest one: it may be about the same targets as a later one
			if r := m.Following(); r != nil && (r.Shard == n || r.Former == n) && (rule == nil || r.N < rule.N) {
				rule = r
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case rule == nil && some: // the others had nothing to do with it
			return nil
		case rule == nil:
			return err
		case answer[rule.Former].h == nil || answer[rule.Shard].h == nil:
			return errors.Join(fmt.Errorf("%w: numbers %d and %d", ErrFormerAway, rule.Former, rule.Shard), err)
		}
		there := find(maps[rule.Shard].Rules, rule.Token)
		if there == nil || !there.Held {
			return answer.Tend(ctx) // it takes the rule
		}
		gone := find(maps[rule.Former].Rules, rule.Token)
		if done, err := answer.follower(*there, maps[rule.Shard].Rules[:rule.N-1]).follow(ctx, gone != nil && gone.Followed, once); err != nil || !done {
			return wrap.Err(err, "having the tasks of %s follow to database %d", rule.Pattern, rule.Shard)
		}
		if err := answer.Tend(ctx); err != nil {
			return err
		}
	}
}

// soon is how long a move itself has tasks follow. The services go on, and tell of failures.
const soon = time.Second

// FollowSoon is Follow for a moment, which is enough for a few tasks. False: some may be left.
func (d Databases) FollowSoon(ctx context.Context) bool {
	bound, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	return d.Follow(bound) == nil
}

// TakeUp is Follow, unless somebody else has tasks follow already.
func (d Databases) TakeUp(ctx context.Context) error {
	before, err := d.taken(ctx)
	if err != nil || before == "" {
		return err
	}
	if err := loop.Rest(ctx, takeUpLook+rand.N(takeUpLook)); err != nil {
		return err
	}
	if now, err := d.taken(ctx); err != nil || now != before {
		return err
	}
	return d.Follow(ctx)
}

// takeUpLook is longer than a page of tasks takes to follow.
const takeUpLook = 200 * time.Millisecond

// taken tells how much has left a former home, and "" if nothing is on the way.
func (d Databases) taken(ctx context.Context) (string, error) {
	maps, _, _ := d.copies(ctx)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	for n, m := range maps {
		if r := m.Following(); r != nil && r.Former == n {
			taken, _, err := d[n].intake().Progress(ctx, following(*r))
			if err != nil {
				return "", err
			}
			at, err := d[n].historyAt(ctx, r.Token)
			return fmt.Sprint(taken, at), err
		}
	}
	for n, m := range maps {
		if r := m.Following(); r != nil && r.Shard == n {
			return "not known", nil
		}
	}
	return "", nil
}

// Pull has the tasks of some identities follow at once, before a request about them is decided in
// the new home. False: a delivery is under way in the former home, or its outcome is not known yet.
func (d Databases) Pull(ctx context.Context, rule shardmap.Rule, idents [][16]byte) (bool, error) {
	f := d.follower(rule, nil)
	if f.former.h == nil {
		return false, ErrFormerAway
	}
	var left intake.Remains
	for range 3 {
		var err error
		if left, err = f.former.intake().Remains(ctx, f.following, idents, rule.Matches); err != nil {
			return false, err
		}
		if left.None() {
			break
		}
		if err := leave(ctx, f, intake.Moves.TakeOutTimers, left.Timers); err != nil {
			return false, err
		}
		if err := leave(ctx, f, intake.Moves.TakeOut, left.Seqs); err != nil {
			return false, err
		}
		if len(left.Timers) == 0 { // it would make its ended runs again
			if err := leave(ctx, f, intake.Moves.TakeOutEnded, left.Ended); err != nil {
				return false, err
			}
		}
	}
	if left.Wait || !left.None() {
		return false, nil
	}
	_, arrived, err := f.shard.intake().Progress(ctx, f.following)
	if err == nil && arrived < left.Taken {
		err = f.ship(ctx, left.Taken)
	}
	return err == nil, err
}

// Progress is how far tasks have followed their targets.
type Progress struct {
	Rule  shardmap.Rule
	Done  int64 // have arrived
	Total int64 // with those that are left, which are counted up to countedLeft
}

// countedLeft is up to how many tasks are counted in a former home.
const countedLeft = 20 * look.ListExamined

// Progress returns how far tasks have followed their targets; nil: none is on the way. A database
// that does not answer counts for nothing.
func (d Databases) Progress(ctx context.Context, m shardmap.Map) (*Progress, error) {
	rule := m.Following()
	if rule == nil {
		return nil, nil
	}
	out, f := &Progress{Rule: *rule}, d.follower(*rule, m.Rules[:rule.N-1])
	if f.shard.h != nil {
		_, arrived, err := f.shard.intake().Progress(ctx, f.following)
		if err != nil && !errors.Is(err, intake.ErrNoMove) {
			return out, err
		}
		out.Done = arrived
	}
	out.Total = out.Done
	if f.former.h == nil {
		return out, nil
	}
	tasks := look.ListFilter{Topic: rule.Literal(), Allowed: f.leaves, Limit: look.ListExamined}
	for looked := 0; looked < countedLeft; looked += look.ListExamined {
		page, err := look.New(f.former.h.Ref()).List(ctx, tasks)
		if err != nil {
			return out, err
		}
		out.Total += int64(len(page.Tasks))
		if tasks.After = page.More; tasks.After == nil {
			break
		}
	}
	looked := 0
	return out, f.eachEnded(ctx, func(page []int64, _ *look.ListPlace) (bool, error) {
		out.Total += int64(len(page))
		looked += 2 * followPage
		return looked < countedLeft, nil
	})
}

// Forget deletes what left a database longer ago than that, and has arrived. Until then another
// database that is set back gets it again.
func (d Databases) Forget(ctx context.Context, after time.Duration) error {
	for _, s := range d {
		now, err := s.h.Time(ctx)
		if err != nil {
			return err
		}
		for n := 1; n > 0; {
			if n, err = s.intake().RetireLeft(ctx, now.Add(-after).UnixMilli()); err != nil {
				return err
			}
		}
	}
	return nil
}
