// Package shards keeps the rules that say which of several databases has a target: see
// internal/shardmap. Each database has a copy of all rules. A rule comes into force by one
// transaction of the database that the targets leave, and the others copy it.
package shards

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// Shards is the copy of one database. It is a value without state of its own.
type Shards struct {
	h    *handle.Handle
	hint func(ctx context.Context, added []handle.Place) // nil: nobody is told
}

// New makes the Shards of a store.
func New(st handle.Source) Shards { return Shards{h: handle.Of(st)} }

// Hinting has hint told where tasks stand that have followed their targets. The index and the
// dispatchers find them a little later anyway.
func (s Shards) Hinting(hint func(ctx context.Context, added []handle.Place)) Shards {
	s.hint = hint
	return s
}

// ErrMap: the rules have changed meanwhile.
var ErrMap = handle.ErrMap

// ErrMoving: a rule is announced already, and the next one can follow in a moment.
var ErrMoving = handle.ErrMoving

// MostRules is how many rules an installation can have: everybody reads all.
const MostRules = 10_000

// Map reads all rules.
func (s Shards) Map(ctx context.Context) (m shardmap.Map, err error) {
	err = s.h.Transact(ctx, func(tx *sql.Tx) error { // not a view: it may have to make the version's row
		m = shardmap.Map{}
		if m.Version, err = s.h.MapVersion(ctx, tx, handle.LockShared); err != nil {
			return err
		}
		m.Rules, err = handle.ReadRules(ctx, tx)
		return err
	})
	return m, wrap.Err(err, "reading which database has which target")
}

// change runs f with the rules locked, and gives them another version.
func (s Shards) change(ctx context.Context, f func(tx *sql.Tx, m shardmap.Map) error) error {
	return s.h.Transact(ctx, func(tx *sql.Tx) (err error) {
		var m shardmap.Map
		if m.Version, err = s.h.MapVersion(ctx, tx, handle.LockExclusive); err != nil {
			return err
		}
		if m.Rules, err = handle.ReadRules(ctx, tx); err != nil {
			return err
		}
		if err := f(tx, m); err != nil {
			return err
		}
		// At random: a database that was set back never gives others a version that they know.
		_, err = tx.ExecContext(ctx, "UPDATE meta SET value = ? WHERE name = ?", 1+rand.Int64N(math.MaxInt64-2), []byte(handle.ShardMap))
		return err
	})
}

func find(rules []shardmap.Rule, token string) *shardmap.Rule {
	for i := range rules {
		if rules[i].Token == token {
			return &rules[i]
		}
	}
	return nil
}

// Announce announces the next rule: no scanner of this database decides a record of its targets
// that is not stored yet. It returns how far the database has stored each partition. It fails with
// ErrMoving if the rules have another version than known; 0: any.
func (s Shards) Announce(ctx context.Context, rule shardmap.Rule, known int64) (stored map[shardmap.Partition]int64, err error) {
	now, err := s.h.Time(ctx)
	if err != nil {
		return nil, err
	}
	err = s.change(ctx, func(tx *sql.Tx, m shardmap.Map) error {
		if _, _, err := numberIn(ctx, tx); err != nil { // it was removed
			return err
		}
		if stored, err = readStored(ctx, tx); err != nil || find(m.Rules, rule.Token) != nil {
			return err
		}
		if rule.N > MostRules {
			return fmt.Errorf("there are %d rules, and no more can be made", MostRules)
		}
		if m.Announced() != nil || m.Following() != nil || rule.N != len(m.Rules)+1 || known != 0 && known != m.Version {
			return ErrMoving
		}
		return insertRule(ctx, tx, rule, now.UnixMilli())
	})
	return stored, wrap.Err(err, "announcing that targets move")
}

func insertRule(ctx context.Context, tx *sql.Tx, r shardmap.Rule, now int64) error {
	if _, err := tx.ExecContext(ctx, "INSERT INTO homes (n, pattern, part, parts, former, shard, token, held, announced, followed) VALUES ("+tables.Marks(10)+")",
		r.N, []byte(r.Pattern), r.Part, r.Parts, r.Former, r.Shard, []byte(r.Token), r.Held, now, r.Followed); err != nil {
		return err
	}
	return insertCuts(ctx, tx, r)
}

func insertCuts(ctx context.Context, tx *sql.Tx, r shardmap.Rule) error {
	for part, at := range r.Cuts {
		if _, err := tx.ExecContext(ctx, "INSERT INTO cuts (n, topic, topic_id, part, at) VALUES ("+tables.Marks(5)+")", r.N, []byte(part.Topic), part.TopicID[:], part.Partition, at); err != nil {
			return err
		}
	}
	return nil
}

func readStored(ctx context.Context, q dialect.Querier) (map[shardmap.Partition]int64, error) {
	type row struct {
		part shardmap.Partition
		next int64
	}
	rows, err := tables.Fetch(ctx, q, func(r *sql.Rows, v *row) error {
		var id []byte
		err := r.Scan(&v.part.Topic, &id, &v.part.Partition, &v.next)
		copy(v.part.TopicID[:], id)
		return err
	}, "SELECT topic, topic_id, part, next_offset FROM sources WHERE retired_at = 0")
	stored := make(map[shardmap.Partition]int64, len(rows))
	for _, v := range rows {
		stored[v.part] = v.next
	}
	return stored, err
}

// Stored returns how far the database has stored each partition.
func (s Shards) Stored(ctx context.Context) (map[shardmap.Partition]int64, error) {
	stored, err := readStored(ctx, s.h.Reads())
	return stored, wrap.Err(err, "reading how far the intake is stored")
}

// ErrWithdrawn: the rule was announced, and taken back meanwhile.
var ErrWithdrawn = errors.New("the move was taken back meanwhile, because it took too long: try again")

// Leave brings an announced rule into force, from what this database has stored on: it is the one
// that the targets leave, and has decided all their records before. It returns the rule. It fails
// with intake.ErrUnderWay while a task of the targets is claimed here.
func (s Shards) Leave(ctx context.Context, token string) (held shardmap.Rule, err error) {
	err = s.change(ctx, func(tx *sql.Tx, m shardmap.Map) error {
		rule := find(m.Rules, token)
		if rule == nil {
			return ErrWithdrawn
		}
		if held = *rule; held.Held {
			return nil
		}
		held.Held, held.Followed = true, rule.Removes()
		if err := s.intake().AtRest(ctx, tx, rule.Literal(), rule.Matches); err != nil {
			return err
		}
		if rule.Removes() {
			if err := hold(ctx, tx, held); err != nil {
				return err
			}
			return markRemoved(ctx, tx)
		}
		if held.Cuts, err = readStored(ctx, tx); err != nil {
			return err
		}
		if err := hold(ctx, tx, held); err != nil {
			return err
		}
		_, err = s.h.Audit(ctx, tx, 1)
		return err
	})
	return held, wrap.Err(err, "having targets leave")
}

func hold(ctx context.Context, tx *sql.Tx, r shardmap.Rule) error {
	if _, err := tx.ExecContext(ctx, "UPDATE homes SET held = 1, followed = ? WHERE n = ?", r.Followed, r.N); err != nil {
		return err
	}
	return insertCuts(ctx, tx, r)
}

// Take copies rules that are in force in another database, and replaces what was announced here.
func (s Shards) Take(ctx context.Context, all []shardmap.Rule) error {
	return wrap.Err(s.change(ctx, func(tx *sql.Tx, m shardmap.Map) error {
		for _, r := range all {
			switch here := find(m.Rules, r.Token); {
			case !r.Held:
			case here != nil && here.Held:
				if r.Followed && !here.Followed {
					if _, err := tx.ExecContext(ctx, "UPDATE homes SET followed = 1 WHERE n = ?", r.N); err != nil {
						return err
					}
				}
			case here != nil:
				if err := hold(ctx, tx, r); err != nil {
					return err
				}
				if err := learnRemoval(ctx, tx, r); err != nil {
					return err
				}
			default:
				if a := m.Announced(); a != nil && a.N == r.N {
					if left, err := s.intake().Left(ctx, tx, following(*a)); err != nil || left {
						return cmp.Or(err, ErrMoving) // Tend takes it back first
					}
				}
				if _, err := tx.ExecContext(ctx, "DELETE FROM homes WHERE n = ? AND held = 0", r.N); err != nil {
					return err
				}
				if err := insertRule(ctx, tx, r, 0); err != nil {
					return err
				}
				if err := learnRemoval(ctx, tx, r); err != nil {
					return err
				}
			}
		}
		return nil
	}), "copying which database has which target")
}

// Withdraw takes an announced rule back, and puts what has left into the line again. False: it is
// in force.
func (s Shards) Withdraw(ctx context.Context, token string) (withdrawn bool, err error) {
	in := s.intake()
	for {
		var left *shardmap.Rule
		err = s.change(ctx, func(tx *sql.Tx, m shardmap.Map) error {
			left = nil
			rule := find(m.Rules, token)
			if withdrawn = rule == nil || !rule.Held; rule == nil || rule.Held {
				return nil
			}
			if some, err := in.Left(ctx, tx, following(*rule)); err != nil || some {
				left = rule
				return err
			}
			_, err := tx.ExecContext(ctx, "DELETE FROM homes WHERE n = ?", rule.N)
			return err
		})
		if err != nil || left == nil {
			return withdrawn, wrap.Err(err, "taking back that targets move")
		}
		for more := true; more; {
			if more, err = in.PutBack(ctx, following(*left)); err != nil {
				return false, err
			}
		}
	}
}

// Followed notes that nothing of a rule's targets is left in their former database.
func (s Shards) Followed(ctx context.Context, token string) error {
	return wrap.Err(s.change(ctx, func(tx *sql.Tx, m shardmap.Map) error {
		rule := find(m.Rules, token)
		if rule == nil || !rule.Held {
			return ErrWithdrawn
		}
		_, err := tx.ExecContext(ctx, "UPDATE homes SET followed = 1 WHERE n = ?", rule.N)
		return err
	}), "noting that all tasks have followed")
}

// sign shows that the mover of an announced rule lives.
func (s Shards) sign(ctx context.Context, token string) error {
	now, err := s.h.Time(ctx)
	if err == nil {
		_, err = s.h.Exec(ctx, "UPDATE homes SET announced = ? WHERE token = ? AND held = 0", now.UnixMilli(), []byte(token))
	}
	return err
}

// announcedFor returns for how many ms a rule has been announced here without a sign of its mover's
// life; false: it is not.
func (s Shards) announcedFor(ctx context.Context, token string) (int64, bool, error) {
	now, err := s.h.Time(ctx)
	if err != nil {
		return 0, false, err
	}
	since, there, err := tables.One[int64](ctx, s.h.Reads(), "SELECT announced FROM homes WHERE token = ? AND held = 0", []byte(token))
	return now.UnixMilli() - since, there, wrap.Err(err, "reading since when targets are about to move")
}

// lacks returns the rules that database n lacks, and those whose tasks have all followed. The new
// home itself says when they have: where it does not know so any more, it was set back, and they
// follow once more. To or from a database that was removed since, nothing follows.
func lacks(from, to shardmap.Map, n int) (out []shardmap.Rule) {
	for i, r := range from.Rules {
		here, gone := find(to.Rules, r.Token), from.Gone(i)
		switch {
		case !r.Held:
		case here == nil || !here.Held:
			switch {
			case gone:
			case n == r.Shard: // has all that had arrived left since?
				r.Followed = r.Followed && here == nil && from.Left(i)
			case n == r.Former:
				r.Followed = false // what had left is here again
			}
			out = append(out, r)
		case r.Followed && !here.Followed && (gone || n != r.Shard && n != r.Former):
			out = append(out, r)
		}
	}
	return out
}

// resume has the numbers of what leaves begin behind those that have arrived: the database was set
// back.
func (s Shards) resume(ctx context.Context, n int, arrived int64) error {
	_, err := s.h.Exec(ctx, "UPDATE homes SET taken = ? WHERE n = ? AND taken < ?", arrived, n, arrived)
	return err
}
