package shards

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/shardmap"
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

// follower has the tasks of one rule's targets follow from their former home to the new one.
type follower struct {
	rule          shardmap.Rule
	before        []shardmap.Rule // those before it, where some of its targets may have left already; nil: none has
	following     intake.Following
	former, shard Shards // zero: the database does not answer
}

func (d Databases) follower(r shardmap.Rule, before []shardmap.Rule) follower {
	return follower{r, before, following(r), d[r.Former], d[r.Shard]}
}

// leaves tells whether a target leaves the former home by this rule. Others that match may have
// come there by a later rule.
func (f follower) leaves(target string) bool {
	before := shardmap.Map{Rules: f.before}
	return f.rule.Matches(target) && (f.before == nil || before.Home(target) == f.rule.Former)
}

// takeOut takes tasks of the targets out of the former home's line, the nearest first. ahead bounds
// how far ahead they are due; 0: all. If they follow, each page is shipped. It returns how many
// it saw.
func (f follower) takeOut(ctx context.Context, ahead time.Duration) (seen int, err error) {
	began := time.Now()
	tasks := look.ListFilter{Topic: f.rule.Literal(), Allowed: f.leaves, Limit: 2 * followPage}
	now := time.Time{}
	if ahead > 0 {
		if now, err = f.former.h.Time(ctx); err != nil {
			return 0, err
		}
		tasks.To = now.Add(ahead).UnixMilli()
	}
	err = f.shipping(ctx, func(ctx context.Context, left func()) error {
		for {
			page, err := look.New(f.former.h.Ref()).List(ctx, tasks)
			if err != nil {
				return err
			}
			seqs := make([]int64, len(page.Tasks))
			for i, t := range page.Tasks {
				seqs[i] = t.Seq
			}
			seen += len(seqs)
			if err := leave(ctx, f, intake.Moves.TakeOut, seqs); err != nil {
				return err
			}
			left()
			tasks.After = page.More
			if tasks.After == nil || ahead > 0 && time.Since(began) > nearFor && tasks.After.Pos > now.Add(nearLeast).UnixMilli() {
				return nil
			}
		}
	})
	return seen, err
}

// shipping has pages leave, each while the one before it is shipped. out says that one has left.
func (f follower) shipping(ctx context.Context, out func(ctx context.Context, left func()) error) error {
	g, ctx := errgroup.WithContext(ctx)
	pages := make(chan struct{})
	g.Go(func() error {
		for range pages {
			if err := f.shipLeft(ctx); err != nil {
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
func leave[K any](ctx context.Context, f follower, takeOut func(intake.Moves, context.Context, intake.Following, int64, []K) (int, error), keys []K) error {
	if len(keys) == 0 {
		return nil
	}
	if f.shard.h == nil {
		return fmt.Errorf("database %d, which the tasks follow to, does not answer", f.rule.Shard)
	}
	following, err := f.following, error(nil)
	if following.Life, err = f.former.intake().Life(ctx); err != nil {
		return err
	}
	_, arrived, err := f.shard.intake().Progress(ctx, following)
	if err == nil {
		_, err = takeOut(f.former.intake(), ctx, following, arrived, keys)
	}
	return err
}

// timersFollow has the timers of the targets follow, and returns how many it saw.
func (f follower) timersFollow(ctx context.Context) (seen int, err error) {
	timers := look.TimerFilter{Topic: f.rule.Literal(), Allowed: f.leaves, Limit: followPage, Deleted: true}
	for {
		page, err := look.New(f.former.h.Ref()).ListTimers(ctx, timers)
		if err != nil {
			return seen, err
		}
		keys := make([][16]byte, len(page.Timers))
		for i, t := range page.Timers {
			keys[i] = task.Ident(t.Topic, t.ID)
		}
		seen += len(keys)
		if len(keys) > 0 {
			if err := leave(ctx, f, intake.Moves.TakeOutTimers, keys); err != nil {
				return seen, err
			}
			if err := f.shipLeft(ctx); err != nil {
				return seen, err
			}
		}
		if timers.After = page.More; timers.After == nil {
			return seen, nil
		}
	}
}

// lettersFollow has the dead letters of the targets follow that can be replayed.
func (f follower) lettersFollow(ctx context.Context) error {
	return f.eachLetter(ctx, func(page []task.DeadLetter) error {
		var ids []int64
		for _, l := range page {
			if l.Kind != schemas.KindRejected {
				ids = append(ids, l.ID)
			}
		}
		if len(ids) == 0 {
			return nil
		}
		if err := leave(ctx, f, intake.Moves.TakeOutLetters, ids); err != nil {
			return err
		}
		return f.shipLeft(ctx)
	})
}

// eachLetter reads the dead letters in a former home that were not replayed, page by page.
func (f follower) eachLetter(ctx context.Context, see func(page []task.DeadLetter) error) error {
	ls := letters.New(f.former.h.Ref())
	pages := letters.Filter{Topic: f.rule.Literal(), Limit: followPage, Allowed: f.leaves}
	for {
		page, err := ls.Select(ctx, pages)
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
		pages.After = page.Next
	}
}

// shipLeft is ship, but goes nowhere while the rule is only announced, and where all has followed
// and is in the former home again, which was set back.
func (f follower) shipLeft(ctx context.Context) error {
	if !f.rule.Held || f.rule.Followed {
		return nil
	}
	return f.ship(ctx, math.MaxInt64)
}

// ship stores in the new home what has left the former one, up to a number.
func (f follower) ship(ctx context.Context, upTo int64) error {
	if f.former.h == nil || f.shard.h == nil {
		return ErrFormerAway
	}
	for adopted := false; ; adopted = true {
		_, arrived, err := f.shard.intake().Progress(ctx, f.following)
		if err != nil || arrived >= upTo {
			return err
		}
		page, err := f.former.intake().Leavers(ctx, f.following, arrived)
		if err == nil && len(page) == 0 && upTo != math.MaxInt64 { // all up to there had left
			err = intake.ErrForgotten
		}
		if err != nil || len(page) == 0 {
			return err
		}
		if !adopted {
			sources, err := f.former.intake().DeliverySources(ctx)
			if err != nil {
				return err
			}
			if err := f.shard.intake().AdoptSources(ctx, sources); err != nil {
				return err
			}
		}
		added, err := f.shard.intake().Arrive(ctx, f.following, page)
		if err != nil {
			return err
		}
		if f.shard.hint != nil {
			f.shard.hint(ctx, added)
		}
	}
}

// follow is Follow of one rule, as its new home has it. Where all have followed, and the former
// home was set back, the tasks that are there again leave its line and go nowhere. gone: all has
// left the former home, and the new one was set back. Other targets may live there by now. once: it
// waits for nothing that is under way. False: something is.
func (f follower) follow(ctx context.Context, gone, once bool) (bool, error) {
	if err := f.shipLeft(ctx); err != nil {
		return false, err
	}
	if gone {
		return true, f.shard.Followed(ctx, f.rule.Token)
	}
	last := int64(-1)
	for looked := false; ; {
		more, taken, err := f.lineFollows(ctx)
		switch {
		case err != nil:
			return false, err
		case !more && looked:
			return true, errors.Join(f.shard.Followed(ctx, f.rule.Token), f.former.Followed(ctx, f.rule.Token))
		case !more: // no letter and no ended task comes to be any more
			if err := errors.Join(f.lettersFollow(ctx), f.historyFollows(ctx)); errors.Is(err, intake.ErrUnderWay) && once {
				return false, nil
			} else if err != nil {
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
func (f follower) lineFollows(ctx context.Context) (more bool, taken int64, err error) {
	stored, err := f.former.passed(ctx) // first: it may have been set back, and reads requests again
	if err != nil {
		return false, 0, err
	}
	_, reads := lags(stored, f.rule.Cuts)
	if reads { // what has come back since would wait for this very rule
		m, err := f.former.Map(ctx)
		if err != nil {
			return false, 0, err
		}
		reads = !slices.ContainsFunc(m.Rules, func(r shardmap.Rule) bool {
			return r.Held && r.N > f.rule.N && r.Shard == f.rule.Former && !r.Removes() && r.Meets(f.rule)
		})
	}
	waiting, err := f.former.intake().WaitingFor(ctx, f.leaves) // before the tasks: it may become one
	if err != nil {
		return false, 0, err
	}
	if f.following.Nowhere { // the dispatchers wait a moment only, and some were cancelled since
		if _, err := f.takeOut(ctx, nearAhead); err != nil {
			return false, 0, err
		}
	}
	timers, err := f.timersFollow(ctx) // before the tasks: they make some
	if err != nil {
		return false, 0, err
	}
	seen, err := f.takeOut(ctx, 0)
	if err != nil {
		return false, 0, err
	}
	taken, _, err = f.former.intake().Progress(ctx, f.following)
	return reads || waiting != "" || timers > 0 || seen > 0, taken, err
}
