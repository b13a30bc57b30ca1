package shards

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

const (
	// nearAhead is how far ahead the tasks leave the former home's line before the targets move.
	// The others have that time to follow.
	nearAhead = 15 * time.Second
	// nearLeast and nearFor are for targets with thousands of tasks due a second: those up to
	// nearLeast ahead leave in any case, and further ones for nearFor. The nearest come first, and
	// faster than they fall due.
	nearLeast = 3 * time.Second
	nearFor   = 500 * time.Millisecond
	// followPage is how many tasks are looked for at a time.
	followPage = 250
	// followRest is the time between two looks at what is under way in the former home.
	followRest = 100 * time.Millisecond
)

// ErrFormerAway: a former home does not answer, and may have tasks of targets that have left it.
var ErrFormerAway = errors.New("the former database of the targets does not answer, and may have this task")

func following(r shardmap.Rule) intake.Following { return intake.Following{N: r.N, Token: r.Token} }

func (s Shards) intake() intake.Moves { return intake.Moves{Intake: intake.New(s.h.Ref())} }

// takeOut takes tasks of the targets out of the former home's line, the nearest first. ahead bounds
// how far ahead they are due; 0: all. If they follow, each page is shipped. It returns how many
// tasks left the line, and how many it saw.
func (d Databases) takeOut(ctx context.Context, rule shardmap.Rule, ahead time.Duration) (taken, seen int, err error) {
	former, began := d[rule.Former], time.Now()
	f := look.ListFilter{Topic: rule.Literal(), Allowed: rule.Matches, Limit: 2 * followPage}
	now := time.Time{}
	if ahead > 0 {
		if now, err = former.h.Time(ctx); err != nil {
			return 0, 0, err
		}
		f.To = now.Add(ahead).UnixMilli()
	}
	err = d.shipping(ctx, rule, func(ctx context.Context, left func()) error {
		for {
			page, err := look.New(former.h.Ref()).List(ctx, f)
			if err != nil {
				return err
			}
			seqs := make([]int64, len(page.Tasks))
			for i, t := range page.Tasks {
				seqs[i] = t.Seq
			}
			seen += len(seqs)
			if len(seqs) > 0 {
				n, err := d.leaveTasks(ctx, rule, seqs)
				if taken += n; err != nil {
					return err
				}
			}
			left()
			f.After = page.More
			if f.After == nil || ahead > 0 && time.Since(began) > nearFor && f.After.Pos > now.Add(nearLeast).UnixMilli() {
				return nil
			}
		}
	})
	return taken, seen, err
}

// shipping has pages leave, each while the one before it is shipped. out says that one has left.
func (d Databases) shipping(ctx context.Context, rule shardmap.Rule, out func(ctx context.Context, left func()) error) error {
	g, ctx := errgroup.WithContext(ctx)
	pages := make(chan struct{})
	g.Go(func() error {
		for range pages {
			if err := d.shipLeft(ctx, rule); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error {
		defer close(pages)
		return out(ctx, func() {
			select {
			case pages <- struct{}{}:
			case <-ctx.Done():
			}
		})
	})
	return g.Wait()
}

// leave has something leave the former home: tasks, timers, or letters. The new home has to say how
// much has arrived.
func (d Databases) leave(ctx context.Context, rule shardmap.Rule, out func(in intake.Moves, arrived int64) (int, error)) (int, error) {
	shard, there := d[rule.Shard]
	if !there {
		return 0, fmt.Errorf("database %d, which the tasks follow to, does not answer", rule.Shard)
	}
	_, arrived, err := shard.intake().Progress(ctx, following(rule))
	if err != nil {
		return 0, err
	}
	return out(d[rule.Former].intake(), arrived)
}

// leaveTasks takes tasks out of the former home's line.
func (d Databases) leaveTasks(ctx context.Context, rule shardmap.Rule, seqs []int64) (int, error) {
	return d.leave(ctx, rule, func(in intake.Moves, arrived int64) (int, error) {
		return in.TakeOut(ctx, following(rule), arrived, seqs)
	})
}

func (d Databases) leaveTimers(ctx context.Context, rule shardmap.Rule, keys [][16]byte) (int, error) {
	return d.leave(ctx, rule, func(in intake.Moves, arrived int64) (int, error) {
		return in.TakeOutTimers(ctx, following(rule), arrived, keys)
	})
}

// timersFollow has the timers of the targets follow, and returns how many it saw.
func (d Databases) timersFollow(ctx context.Context, rule shardmap.Rule) (seen int, err error) {
	f := look.TimerFilter{Topic: rule.Literal(), Allowed: rule.Matches, Limit: followPage, Deleted: true}
	for {
		page, err := look.New(d[rule.Former].h.Ref()).ListTimers(ctx, f)
		if err != nil {
			return seen, err
		}
		keys := make([][16]byte, len(page.Timers))
		for i, t := range page.Timers {
			keys[i] = task.Ident(t.Topic, t.ID)
		}
		seen += len(keys)
		if len(keys) > 0 {
			if _, err := d.leaveTimers(ctx, rule, keys); err != nil {
				return seen, err
			}
			if err := d.shipLeft(ctx, rule); err != nil {
				return seen, err
			}
		}
		if f.After = page.More; f.After == nil {
			return seen, nil
		}
	}
}

// lettersFollow has the dead letters of the targets follow that can be replayed.
func (d Databases) lettersFollow(ctx context.Context, rule shardmap.Rule) error {
	return d.eachLetter(ctx, rule, func(page []task.DeadLetter) error {
		var ids []int64
		for _, l := range page {
			if l.Kind != schemas.KindRejected {
				ids = append(ids, l.ID)
			}
		}
		if len(ids) == 0 {
			return nil
		}
		_, err := d.leave(ctx, rule, func(in intake.Moves, arrived int64) (int, error) {
			return in.TakeOutLetters(ctx, following(rule), arrived, ids)
		})
		if err != nil {
			return err
		}
		return d.shipLeft(ctx, rule)
	})
}

// eachLetter reads the dead letters in a former home that were not replayed, page by page.
func (d Databases) eachLetter(ctx context.Context, rule shardmap.Rule, see func(page []task.DeadLetter) error) error {
	ls := letters.New(d[rule.Former].h.Ref())
	f := letters.Filter{Topic: rule.Literal(), Limit: followPage, Allowed: rule.Matches}
	for {
		page, err := ls.Select(ctx, f)
		if err != nil {
			return err
		}
		found, err := ls.Read(ctx, page.IDs, false)
		if err != nil {
			return err
		}
		if err := see(found); err != nil || page.Next == 0 {
			return err
		}
		f.After = page.Next
	}
}

// shipLeft is ship, but goes nowhere while the rule is only announced, and where all has followed
// and is in the former home again, which was set back.
func (d Databases) shipLeft(ctx context.Context, rule shardmap.Rule) error {
	if !rule.Held || rule.Followed {
		return nil
	}
	return d.ship(ctx, rule, math.MaxInt64)
}

// ship stores in the new home what has left the former one, up to a number.
func (d Databases) ship(ctx context.Context, rule shardmap.Rule, upTo int64) error {
	former, there := d[rule.Former]
	shard, alsoThere := d[rule.Shard]
	if !there || !alsoThere {
		return ErrFormerAway
	}
	for adopted := false; ; adopted = true {
		_, arrived, err := shard.intake().Progress(ctx, following(rule))
		if err != nil || arrived >= upTo {
			return err
		}
		page, err := former.intake().Leavers(ctx, following(rule), arrived)
		if err != nil || len(page) == 0 {
			return err
		}
		if !adopted {
			sources, err := former.intake().DeliverySources(ctx)
			if err != nil {
				return err
			}
			if err := shard.intake().AdoptSources(ctx, sources); err != nil {
				return err
			}
		}
		added, err := shard.intake().Arrive(ctx, following(rule), page)
		if err != nil {
			return err
		}
		if shard.hint != nil {
			shard.hint(ctx, added)
		}
	}
}

// Follow has the tasks of targets that have moved follow them, until none is left in the former
// home. Any process may do so, several beside each other, and again after one was killed.
func (d Databases) Follow(ctx context.Context) error { return d.followAll(ctx, false) }

// FollowAtRest has those tasks follow that are at rest. The dispatchers need not run.
func (d Databases) FollowAtRest(ctx context.Context) error { return d.followAll(ctx, true) }

func (d Databases) followAll(ctx context.Context, once bool) error {
	for some := false; ; some = true {
		maps, answer, err := d.copies(ctx)
		var rule *shardmap.Rule
		for n, m := range maps {
			if r := m.Following(); r != nil && (r.Shard == n || r.Former == n) {
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
		if done, err := answer.follow(ctx, *there, gone != nil && gone.Followed, once); err != nil || !done {
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

// follow is Follow of one rule, as its new home has it. Where all have followed, and the former
// home was set back, the tasks that are there again leave its line and go nowhere. gone: all has
// left the former home, and the new one was set back. Other targets may live there by now. once: it
// waits for nothing that is under way. False: something is.
func (d Databases) follow(ctx context.Context, rule shardmap.Rule, gone, once bool) (bool, error) {
	if err := d.shipLeft(ctx, rule); err != nil {
		return false, err
	}
	if gone {
		return true, d[rule.Shard].Followed(ctx, rule.Token)
	}
	last := int64(-1)
	for looked := false; ; {
		more, taken, err := d.lineFollows(ctx, rule)
		switch {
		case err != nil:
			return false, err
		case !more && looked:
			return true, errors.Join(d[rule.Shard].Followed(ctx, rule.Token), d[rule.Former].Followed(ctx, rule.Token))
		case !more: // no letter and no ended task comes to be any more
			if err := errors.Join(d.lettersFollow(ctx, rule), d.historyFollows(ctx, rule)); err != nil {
				return false, err
			}
			looked = true
			continue
		case once && taken == last:
			return false, nil
		}
		looked, last = false, taken
		if err := loop.Rest(ctx, followRest); err != nil {
			return false, err
		}
	}
}

// lineFollows has the timers and the tasks at rest follow, and returns the last number that has
// left. more: some were there, or may come to be.
func (d Databases) lineFollows(ctx context.Context, rule shardmap.Rule) (more bool, taken int64, err error) {
	former := d[rule.Former]
	stored, err := former.passed(ctx) // first: it may have been set back, and reads requests again
	if err != nil {
		return false, 0, err
	}
	_, reads := lags(stored, rule.Cuts)
	waiting, err := former.intake().WaitingFor(ctx, rule.Matches) // before the tasks: it may become one
	if err != nil {
		return false, 0, err
	}
	timers, err := d.timersFollow(ctx, rule) // before the tasks: they make some
	if err != nil {
		return false, 0, err
	}
	_, seen, err := d.takeOut(ctx, rule, 0)
	if err != nil {
		return false, 0, err
	}
	taken, _, err = former.intake().Progress(ctx, following(rule))
	return reads || waiting != "" || timers > 0 || seen > 0, taken, err
}

// Pull has the tasks of some identities follow at once, before a request about them is decided in
// the new home. False: a delivery is under way in the former home, or its outcome is not known yet.
func (d Databases) Pull(ctx context.Context, rule shardmap.Rule, idents [][16]byte) (bool, error) {
	former, there := d[rule.Former]
	shard := d[rule.Shard]
	if !there {
		return false, ErrFormerAway
	}
	var left intake.Remains
	for range 3 {
		var err error
		if left, err = former.intake().Remains(ctx, following(rule), idents, rule.Matches); err != nil {
			return false, err
		}
		if left.None() {
			break
		}
		if _, err := d.leaveTimers(ctx, rule, left.Timers); err != nil {
			return false, err
		}
		if _, err := d.leaveTasks(ctx, rule, left.Seqs); err != nil {
			return false, err
		}
		if len(left.Timers) == 0 { // it would make its ended runs again
			if err := d.leaveEnded(ctx, rule, left.Ended); err != nil {
				return false, err
			}
		}
	}
	if left.Wait || !left.None() {
		return false, nil
	}
	_, arrived, err := shard.intake().Progress(ctx, following(rule))
	if err == nil && arrived < left.Taken {
		err = d.ship(ctx, rule, left.Taken)
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
	out := &Progress{Rule: *rule}
	if s, there := d[rule.Shard]; there {
		_, arrived, err := s.intake().Progress(ctx, following(*rule))
		if err != nil && !errors.Is(err, intake.ErrNoMove) {
			return out, err
		}
		out.Done = arrived
	}
	out.Total = out.Done
	former, there := d[rule.Former]
	if !there {
		return out, nil
	}
	f := look.ListFilter{Topic: rule.Literal(), Allowed: rule.Matches, Limit: look.ListExamined}
	for looked := 0; looked < countedLeft; looked += look.ListExamined {
		page, err := look.New(former.h.Ref()).List(ctx, f)
		if err != nil {
			return out, err
		}
		out.Total += int64(len(page.Tasks))
		if f.After = page.More; f.After == nil {
			break
		}
	}
	looked := 0
	return out, d.eachEnded(ctx, *rule, func(page []int64, _ *look.ListPlace) (bool, error) {
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
