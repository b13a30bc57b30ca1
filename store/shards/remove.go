package shards

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// shardRemoved is the name in table meta of a note: the database was part of an installation, and
// never is again.
const shardRemoved = "shard.removed"

var (
	// ErrRemoved: the database was removed from its installation.
	ErrRemoved = errors.New("the database was removed from the installation")
	// ErrStays: the database cannot be removed.
	ErrStays = errors.New("the database cannot be removed")
)

func stays(why string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrStays, fmt.Errorf(why, args...))
}

// Remove removes the last database from its installation, for good. All databases must be there,
// and know their numbers. It may be called again. It fails with ErrStays while the database has
// targets or something unfinished. forget: also while it has history.
//
// A removal is a rule (shardmap.Removal), and comes into force as that of a move does: by one
// transaction of the database itself. In it the database notes that it was removed. The others
// learn of the rule by Tend. Then a home that is left alone forgets that there were others.
func (d Databases) Remove(ctx context.Context, n int, forget bool) error {
	if d[n].h == nil || d[shardmap.Home].h == nil || n == shardmap.Home {
		return fmt.Errorf("database %d cannot be removed", n)
	}
	_, _, err := d[n].Number(ctx)
	if err == nil {
		if err := d.Tend(ctx); err != nil {
			return err
		}
		err = d.removeOnce(ctx, n, forget)
	}
	if err != nil && !errors.Is(err, ErrRemoved) {
		return err
	}
	if err = d.Tend(ctx); err == nil && n == shardmap.Home+1 {
		if err = d.passed(ctx, n); err == nil {
			err = d[shardmap.Home].alone(ctx)
		}
	}
	return wrap.Err(err, "database %d was removed, and the others do not know all of it yet: remove it again", n)
}

func (d Databases) removeOnce(ctx context.Context, n int, forget bool) error {
	m, err := d.targetless(ctx, n)
	if err != nil {
		return err
	}
	if err := d.finished(ctx, n, forget); err != nil {
		return err
	}
	if err := d.forgettable(ctx, n); err != nil {
		return err
	}
	rule := shardmap.Removal(n)
	rule.N, rule.Token = len(m.Rules)+1, token()
	bound, cancel := context.WithTimeout(ctx, moveFor)
	defer cancel()
	by := d.mover(rule)
	defer by.showSigns(bound)()
	if err = d.comeToRemoval(bound, rule, m.Version); err != nil {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), moveFor)
		defer cancel()
		if gone, undo := by.withdraw(after); undo != nil || gone {
			return errors.Join(err, undo)
		}
	}
	return nil
}

// comeToRemoval announces the rule, and brings it into force. known is the version of the rules in
// the database when it had no targets.
func (d Databases) comeToRemoval(ctx context.Context, rule shardmap.Rule, known int64) error {
	home := d[shardmap.Home]
	if _, err := home.Announce(ctx, rule, 0); err != nil {
		return err
	}
	if _, err := d[rule.Former].Announce(ctx, rule, known); err != nil {
		return err
	}
	err := home.h.Transact(ctx, func(tx *sql.Tx) error { // before: a removal without an author is worse than the reverse
		_, err := home.h.Audit(ctx, tx, 1)
		return err
	})
	if err != nil {
		return err
	}
	_, err = d[rule.Former].Leave(ctx, rule.Token)
	return err
}

// targetless returns the rules of database n. It fails if a target may live there, or a move is
// under way.
func (d Databases) targetless(ctx context.Context, n int) (m shardmap.Map, err error) {
	maps, err := d.Maps(ctx)
	if err != nil {
		return m, err
	}
	m = maps[n]
	for k, other := range maps {
		if len(other.Rules) != len(m.Rules) || other.Announced() != nil || other.Following() != nil {
			return m, fmt.Errorf("%w: database %d has other rules, or a move under way", ErrMoving, k)
		}
	}
	for i, r := range m.Rules {
		switch {
		case r.Shard > n && !m.Gone(i):
			return m, stays("database %d is behind it, and the numbers are places in mysql.shards: remove that one first", r.Shard)
		case r.Shard == n && !r.Removes() && !m.Left(i):
			return m, stays("targets %s live there: run notyet shards drain %d --wait", r.Pattern, n)
		}
	}
	return m, nil
}

// finished fails while a database without targets has something that is not done, or history that
// is still wanted.
func (d Databases) finished(ctx context.Context, n int, forget bool) error {
	if err := d.used(ctx, n); err != nil {
		return err
	}
	tasks, err := look.New(d[n].h.Ref()).Unfinished(ctx, 1)
	if err == nil && tasks.N > 0 {
		err = stays("it has tasks that have not ended: run notyet shards drain %d --wait", n)
	}
	if err != nil {
		return err
	}
	const history = "%s: they go after their retention, or at once with --forget-history"
	for _, of := range []struct {
		in      int
		history bool
		what    string
		rows    string
	}{
		{n, false, "it has requests that wait for a task: let the services run until they are decided", "waiting"},
		{n, false, "it has events that are not published: let the services run until they are", "outbox"},
		{shardmap.Home, false, "an operation is running: wait until it has ended, or stop it", "operations WHERE state = ?"},
		{n, true, "it has ended tasks", "tasks"},
		{n, true, "it has dead letters", "dead_letters"},
		{n, true, "it has tasks that have left, which a restored database would get again", "leaving"},
	} {
		some, err := exists(ctx, d[of.in].h.DB, of.rows, []byte(admin.OperationRuns))
		switch {
		case err != nil:
			return wrap.Err(err, "asking what database %d has", of.in)
		case some && !of.history:
			return stays("%s", of.what)
		case some && !forget:
			return stays(history, of.what)
		}
	}
	return nil
}

// used fails with ErrStays while a database has something that its targets did not take along.
func (d Databases) used(ctx context.Context, n int) error {
	for f := (look.TimerFilter{Limit: 1}); ; {
		page, err := look.New(d[n].h.Ref()).ListTimers(ctx, f)
		if err != nil {
			return err
		}
		if len(page.Timers) > 0 {
			return stays("it has the timer %s of %s: delete it", page.Timers[0].ID, page.Timers[0].Topic)
		}
		if f.After = page.More; f.After == nil {
			break
		}
	}
	return d.follower(shardmap.Removal(n), nil).eachLetter(ctx, func(page []task.DeadLetter) error {
		for _, l := range page {
			if l.Kind != schemas.KindRejected { // nothing of it can be replayed
				return stays("its target %s has a dead letter that can be replayed: replay or purge it", l.Topic)
			}
		}
		return nil
	})
}

func exists(ctx context.Context, q dialect.Querier, rows string, args ...any) (some bool, err error) {
	err = q.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+rows+")", args[:strings.Count(rows, "?")]...).Scan(&some)
	return some, err
}

// forgettable fails where the others still need a database: as a place in front of a later one, or
// because the home, which takes all records once it is alone, would read those of the database.
func (d Databases) forgettable(ctx context.Context, n int) error {
	for k, s := range d {
		now, err := s.h.Time(ctx)
		if err != nil {
			return err
		}
		names, err := tables.Fetch(ctx, s.h.DB, func(r *sql.Rows, name *string) error { return r.Scan(name) },
			"SELECT id FROM services WHERE spreads > ? AND seen > ? ORDER BY id LIMIT 10", n+1, now.UnixMilli()-handle.ServiceLease)
		if err != nil {
			return wrap.Err(err, "asking database %d which databases its services know", k)
		}
		if len(names) > 0 {
			return stays("services are alive that know databases behind it: %s: remove those first, and restart them without their entries", strings.Join(names, ", "))
		}
	}
	if n > shardmap.Home+1 {
		return nil
	}
	return d.passed(ctx, n)
}

// passed fails while the home has not stored all records that may be those of another database:
// once it is alone, it takes all that it reads.
func (d Databases) passed(ctx context.Context, n int) error {
	m, err := d[shardmap.Home].Map(ctx)
	if err != nil {
		return err
	}
	stored, err := d[shardmap.Home].passed(ctx)
	if err != nil {
		return err
	}
	for _, r := range m.Rules {
		if part, behind := lags(stored, r.Cuts); behind {
			return stays("database 0 has stored %s/%d up to offset %d, and records before %d may be those of database %d: let the services run until it has passed them",
				part.Topic, part.Partition, stored[part], r.Cuts[part], n)
		}
	}
	return nil
}

// passed is Stored, with the end of all offsets for partitions of which nothing more is read.
func (s Shards) passed(ctx context.Context) (map[shardmap.Partition]int64, error) {
	all, err := s.intake().Sources(ctx)
	out := map[shardmap.Partition]int64{}
	for _, retired := range []bool{true, false} {
		for _, src := range all {
			if part := (shardmap.Partition{Topic: src.Topic, TopicID: src.TopicID, Partition: src.Partition}); retired && src.Retired != 0 {
				out[part] = math.MaxInt64
			} else if !retired && src.Retired == 0 {
				out[part] = src.Next
			}
		}
	}
	return out, err
}

// markRemoved notes in a database that it was removed.
func markRemoved(ctx context.Context, tx *sql.Tx) error {
	there, err := tables.ReadMeta(ctx, tx, shardRemoved)
	if err != nil || len(there) > 0 {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO meta (name, value, data) VALUES (?, 0, ?)", []byte(shardRemoved), []byte("removed"))
	return err
}

// learnRemoval notes in a database that was set back that it was removed.
func learnRemoval(ctx context.Context, tx *sql.Tx, r shardmap.Rule) error {
	if !r.Removes() {
		return nil
	}
	number, _, err := numberIn(ctx, tx)
	if errors.Is(err, ErrRemoved) {
		return nil
	}
	if err == nil && number == r.Shard {
		err = markRemoved(ctx, tx)
	}
	return err
}

// alone makes the first database an installation of its own again, unless another database has
// joined since the last removal.
func (s Shards) alone(ctx context.Context) error {
	return s.change(ctx, func(tx *sql.Tx, m shardmap.Map) error {
		joined, there, err := tables.One[int](ctx, tx, "SELECT value FROM meta WHERE name = ?"+s.h.Locking(handle.LockExclusive), []byte(handle.ShardNumber))
		if err != nil || !there || !slices.ContainsFunc(m.Rules, func(r shardmap.Rule) bool { return r.Held && r.Removes() && r.N > joined }) {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM meta WHERE name IN (?, ?)", []byte(handle.ShardNumber), []byte(handle.ShardHome)); err != nil {
			return err
		}
		return handle.Require(ctx, tx, handle.Shards, false)
	})
}
