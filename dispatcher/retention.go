package dispatcher

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// retirer forgets what ended longer ago than its retention: tasks and their tags, dead letters, and
// entries of the audit log.
type retirer struct {
	*shared
	flight flight.Owned
	trust  *trust                                      // asked whether the owner of a slot that was given up is alive
	follow func(ctx context.Context, moved line.Moved) // tells the index, and owners, of tasks that have moved
	tasks  *taskRetirer
	swept  *line.TagPlace // where the sweep of the tags goes on
}

func newRetirer(c *changer) *retirer {
	r := &retirer{shared: c.shared, flight: c.flight.Owned, trust: c.trust, follow: c.follow}
	r.tasks = &taskRetirer{store: r.line, slots: r.slots, retired: r.metrics.retired, log: r.log, pause: afterBite, every: retireEvery(r.cfg.Retention)}
	return r
}

// slots returns the owned slots, ascending.
func (r *retirer) slots() []int { return slotsOf(r.flight.Views()) }

func (r *retirer) run(ctx context.Context) {
	if err := r.intake.ForgetUpTo(ctx, r.before(r.cfg.Retention)); err != nil && ctx.Err() == nil { // backfills want to know it
		r.log.Warn("noting up to when tasks are forgotten failed, trying again later", zap.Error(err))
	}
	loop.Every(ctx, r.tasks.every, func(ctx context.Context) {
		if err := r.round(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("retiring ended tasks failed, trying again later", zap.Error(err))
		}
	})
}

// round is left out while the database is behind: requests that are read again are decided beside
// what has ended.
func (r *retirer) round(ctx context.Context) (err error) {
	if r.trust.copies.Holds() {
		return nil
	}
	next := time.Now().Add(r.tasks.every)
	rows, err := r.store.Slots(ctx)
	if err != nil || len(rows) == 0 {
		return err
	}
	r.tasks.slotCount, r.tasks.givenUp = rows[0].Count(), nil
	for _, row := range rows {
		if row.GivenUp() && r.flight.OwnsFirst() {
			r.tasks.givenUp = append(r.tasks.givenUp, row.Slot)
		}
	}
	home := r.bringHome(ctx, next) // whatever comes of it, what has ended is forgotten
	return errors.Join(home, r.forgetAll(ctx))
}

// forgetAll forgets everything that ended longer ago than its retention.
func (r *retirer) forgetAll(ctx context.Context) error {
	before := r.before(r.cfg.Retention)
	if err := r.intake.ForgetUpTo(ctx, before); err != nil {
		return err
	}
	if err := r.tasks.round(ctx, before); err != nil {
		return err
	}
	if len(r.tasks.givenUp) > 0 {
		if _, err := r.admin.DropSlots(ctx, r.held); err != nil {
			return err
		}
	}
	if err := r.letters(ctx); err != nil {
		return err
	}
	if err := r.audit(ctx); err != nil {
		return err
	}
	return r.sweep(ctx)
}

// bringHome moves tasks out of given-up slots to their new ones, by turns of slots, until the next
// round is due.
func (r *retirer) bringHome(ctx context.Context, next time.Time) error {
	tasks, timers := 0, 0
	defer func() {
		if tasks+timers > 0 {
			r.log.Warn("moved tasks out of slots that were given up: a program of an older version is running, stop it", zap.Ints("slots", r.tasks.givenUp), zap.Int("tasks", tasks), zap.Int("slots_with_timers", timers))
		}
	}()
	for more := true; more; {
		more = false
		for _, slot := range r.tasks.givenUp {
			if ctx.Err() != nil || !time.Now().Before(next) {
				return nil
			}
			began := time.Now()
			bound, cancel := context.WithTimeout(ctx, answerWithin)
			moved, err := r.line.BringHome(bound, slot, r.held)
			cancel()
			if err != nil {
				return err
			}
			if len(moved.Added)+len(moved.Timers) == 0 {
				continue
			}
			more = true
			tasks, timers = tasks+len(moved.Added), timers+len(moved.Timers)
			r.follow(ctx, moved)
			r.tasks.pause(ctx, time.Since(began))
		}
	}
	return nil
}

// held tells whether the owner of a given-up slot is still to give it back. A dead owner never
// does.
func (r *retirer) held(s store.Slot) bool {
	if s.Owner == r.cfg.MemberID { // or was it, before it was started anew
		return slices.Contains(r.slots(), s.Slot)
	}
	return r.trust.members.Alive(s.Owner)
}

// before returns the instant a retention ago, Unix ms.
func (r *retirer) before(retention time.Duration) int64 {
	return r.clock.Now().Add(-retention).UnixMilli()
}

// letters forgets dead letters and measures the rest.
func (r *retirer) letters(ctx context.Context) error {
	if !r.flight.OwnsFirst() {
		r.metrics.letters.Set(0)
		r.metrics.letterBytes.Set(0)
		return nil
	}
	if err := r.forget(ctx, r.cfg.DeadRetention, letters.New(r.store).Retire); err != nil {
		return err
	}
	count, bytes, err := letters.New(r.store).Measure(ctx)
	if err == nil {
		r.metrics.letters.Set(float64(count))
		r.metrics.letterBytes.Set(float64(bytes))
	}
	return err
}

// audit forgets entries of the audit log.
func (r *retirer) audit(ctx context.Context) error {
	if !r.flight.OwnsFirst() {
		return nil
	}
	return r.forget(ctx, r.cfg.AuditRetention, r.admin.RetireAudit)
}

// sweep forgets the tags of forgotten tasks. A round takes a tenth of its time for them, and the
// next one goes on.
func (r *retirer) sweep(ctx context.Context) error {
	for until := time.Now().Add(r.tasks.every / 10); r.flight.OwnsFirst() && ctx.Err() == nil; {
		began := time.Now()
		_, next, err := r.line.SweepTags(ctx, r.swept)
		if err != nil {
			return err
		}
		if r.swept = next; next == nil || time.Now().After(until) {
			return nil
		}
		afterBite(ctx, time.Since(began))
	}
	return nil
}

// forget takes bite after bite of everything older than the retention, 0 being for ever. It rests
// after each.
func (r *retirer) forget(ctx context.Context, retention time.Duration, bite func(ctx context.Context, before int64) (n int, more bool, err error)) error {
	for more := retention > 0; more && ctx.Err() == nil; {
		began := time.Now()
		var err error
		if _, more, err = bite(ctx, r.before(retention)); err != nil {
			return err
		}
		afterBite(ctx, time.Since(began))
	}
	return nil
}

// ended is the memory of ended tasks. Both calls are idempotent.
type ended interface {
	Retire(ctx context.Context, r line.Range) (n int, rest line.Range, err error)
	NextEnded(ctx context.Context, after int64) (pos int64, ok bool, err error)
}

// taskRetirer forgets ended tasks: each owner those of its slots, and its share of those that ended
// out of the line. Only the retirer's loop changes it, between two rounds.
type taskRetirer struct {
	store     ended
	slotCount int
	slots     func() []int // owned, ascending
	givenUp   []int        // slots that nobody owns any more, if they are for this owner
	retired   prometheus.Counter
	log       *zap.Logger
	pause     func(ctx context.Context, took time.Duration) // after a bite that took so long
	every     time.Duration                                 // between two rounds
}

// retireEvery is the pause between two rounds. With it, rows live at most a tenth longer than the
// retention, and the time of a round; beyond ten minutes of retention a round a minute keeps each
// of them short.
func retireEvery(retention time.Duration) time.Duration {
	return min(max(retention/10, time.Second), time.Minute)
}

// afterBite rests as long as the bite took: retiring takes at most half of its connections' time,
// and less the slower the database is. On an idle server a bite of 900 rows takes about 30 ms; on a
// full one, 150 ms. A round that lasts until the next goes on without rests: a table that grows for
// ever is worse than deliveries a little later.
func afterBite(ctx context.Context, took time.Duration) {
	loop.Rest(ctx, max(took, 10*time.Millisecond))
}

// round forgets everything of this owner that ended at or before the given time, Unix ms. Tasks
// that ended in their slot and those that ended out of it lie apart in the table, so both go at
// once.
func (r *taskRetirer) round(ctx context.Context, before int64) error {
	next := time.Now().Add(r.every)
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return r.inLine(ctx, before, next) })
	both.Go(func() error { return r.outOfLine(ctx, before, next) })
	return both.Wait()
}

func (r *taskRetirer) inLine(ctx context.Context, before int64, next time.Time) error {
	for _, slot := range slices.Concat(r.slots(), r.givenUp) {
		if err := r.retire(ctx, line.Range{Slot: slot, To: before}, next); err != nil {
			return err
		}
	}
	return nil
}

// retireWindow is the time, ms, by which owners share tasks that ended out of the line: no two of
// them delete the same rows, nor rows of the same page for long.
const retireWindow = 1000

// outOfLine goes through the windows of an owned slot in which something ended.
func (r *taskRetirer) outOfLine(ctx context.Context, before int64, next time.Time) error {
	slots := r.slots()
	for from := int64(0); len(slots) > 0 && from < before; {
		pos, ok, err := r.store.NextEnded(ctx, from)
		if err != nil || !ok || pos > before {
			return err
		}
		window := pos / retireWindow
		end := (window+1)*retireWindow - 1
		if _, mine := slices.BinarySearch(slots, int(window%int64(r.slotCount))); mine {
			if err := r.retire(ctx, line.Range{Slot: task.OutOfLine, From: pos - 1, To: min(end, before)}, next); err != nil {
				return err
			}
		}
		from = end
	}
	return nil
}

// retire forgets all of a piece, bite by bite. It rests after each until the next round is due.
func (r *taskRetirer) retire(ctx context.Context, piece line.Range, next time.Time) error {
	for piece.From < piece.To && ctx.Err() == nil {
		began := time.Now()
		n, rest, err := r.store.Retire(ctx, piece)
		if err != nil {
			return err
		}
		r.retired.Add(float64(n))
		if piece = rest; n > 0 && time.Now().Before(next) {
			r.pause(ctx, time.Since(began))
		}
	}
	return ctx.Err()
}
