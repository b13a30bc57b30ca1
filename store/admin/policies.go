package admin

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/task"
)

// Policy is an operator's decision about a target. It stays in force until it is taken back.
type Policy struct {
	Topic       string `gorm:"primaryKey;size:255;serializer:text"`
	Paused      bool
	Rate        float64 // tasks a second, of all dispatchers together; 0: no limit
	MaxInFlight int     // records that are with the producers at once; 0: no limit
	Changed     int64   // Unix ms
	Until       int64   `gorm:"column:paused_until"` // Unix ms, when the pause ends; 0: somebody resumes the target
}

// at is the policy in force at an instant, by the clock of the database. A pause ends by itself: no
// process has to lift it. A program of the version before leaves Until as it is, so an Until from
// before the last change is none.
func (p Policy) at(now int64) Policy {
	switch {
	case !p.Paused || p.Until <= p.Changed:
		p.Until = 0
	case p.Until <= now:
		p.Paused, p.Changed, p.Until = false, p.Until, 0
	}
	return p
}

// notPaused is the condition of a row that is not paused since an instant.
const notPaused = "(paused = 0 OR paused_until > changed AND paused_until < ?)"

// Open: the policy restricts nothing. Such a row stays for a while: held tasks are still to go.
func (p Policy) Open() bool { return !p.Paused && p.Rate == 0 && p.MaxInFlight == 0 }

// MaxPolicies is how many targets can have one. Every dispatcher reads all several times a second.
const MaxPolicies = 1000

// heardWithin is when every dispatcher has heard of a change, and holds no tasks of the target.
const heardWithin = time.Minute

// ErrTooManyPolicies: no further target can have a policy.
var ErrTooManyPolicies = fmt.Errorf("%d targets have a policy, and no more can: resume some of them, or take their limits back", MaxPolicies)

// Policies reads all of them by topic, as they are in force now, also those that restrict nothing.
func (a Admin) Policies(ctx context.Context) ([]Policy, error) {
	var rows []struct {
		Policy `gorm:"embedded"`
		ReadAt int64
	}
	now, args, err := a.h.Dialect.Millis(ctx, a.h.Time)
	if err == nil {
		err = a.h.Cold(ctx, "targets").Select("targets.*, "+now+" AS read_at", args...).Order("topic").Limit(2 * MaxPolicies).Find(&rows).Error // some may have come at once
	}
	var out []Policy
	for _, r := range rows {
		out = append(out, r.at(r.ReadAt))
	}
	return out, wrap.Err(err, "reading the targets' policies")
}

// SetPolicy replaces the policy of a target. change makes the new one from the old, so two callers
// who change different things do not undo each other's.
func (a Admin) SetPolicy(ctx context.Context, topic string, now int64, change func(Policy) Policy) (Policy, error) {
	return a.SetPolicyBy(ctx, 0, topic, now, change)
}

// SetPolicyBy is SetPolicy by a version of the rules about the databases of targets. It fails with
// handle.ErrMap if they have another one.
func (a Admin) SetPolicyBy(ctx context.Context, version int64, topic string, now int64, change func(Policy) Policy) (Policy, error) {
	var out Policy
	err := a.h.Transact(ctx, func(tx *sql.Tx) error {
		if err := a.h.CheckMap(ctx, tx, version); err != nil {
			return err
		}
		before := Policy{Topic: topic}
		found := a.h.ColdIn(ctx, tx, "targets").Raw("SELECT * FROM targets WHERE topic = ?"+a.h.Locking(handle.LockExclusive), []byte(topic)).Scan(&before)
		if found.Error != nil {
			return found.Error
		}
		out = change(before.at(now))
		out.Topic, out.Changed = topic, now
		var err error
		switch {
		case found.RowsAffected > 0:
			err = a.h.ColdIn(ctx, tx, "targets").Select("*").Updates(&out).Error
		case !out.Open():
			if err := a.roomForPolicy(ctx, tx, now); err != nil {
				return err
			}
			err = a.h.ColdIn(ctx, tx, "targets").Create(&out).Error // of two at once, the second is a duplicate: tried again
		}
		if err == nil {
			_, err = a.h.Audit(ctx, tx, 1)
		}
		return err
	})
	return out, wrap.Err(err, "storing the policy of a target")
}

// AdoptPolicies replaces the policies of matching targets with those from another database, all at
// once. Nobody else may change one of them meanwhile.
func (a Admin) AdoptPolicies(ctx context.Context, from []Policy, matches func(topic string) bool) error {
	return wrap.Err(a.h.Transact(ctx, func(tx *sql.Tx) error {
		var here []string
		if err := a.h.ColdIn(ctx, tx, "targets").Order("topic").Pluck("topic", &here).Error; err != nil {
			return err
		}
		for _, topic := range here {
			if !matches(topic) {
				continue
			}
			if err := a.h.ColdIn(ctx, tx, "targets").Where("topic = ?", []byte(topic)).Delete(nil).Error; err != nil {
				return err
			}
		}
		now, err := a.h.TimeIn(ctx, tx)
		if err != nil {
			return err
		}
		for _, p := range from {
			if !matches(p.Topic) || p.Open() {
				continue
			}
			if err := a.roomForPolicy(ctx, tx, now.UnixMilli()); err != nil {
				return err
			}
			if err := a.h.ColdIn(ctx, tx, "targets").Create(&p).Error; err != nil {
				return err
			}
		}
		return nil
	}), "storing the policies of targets from another database")
}

// roomForPolicy makes room for one more row: it forgets an open one without any held task.
func (a Admin) roomForPolicy(ctx context.Context, tx *sql.Tx, now int64) error {
	var n int64
	if err := a.h.ColdIn(ctx, tx, "targets").Count(&n).Error; err != nil || n < MaxPolicies {
		return err
	}
	heard := now - heardWithin.Milliseconds()
	restrictsNothing := func() *gorm.DB {
		return a.h.ColdIn(ctx, tx, "targets").Where(notPaused+" AND rate = 0 AND max_in_flight = 0 AND changed < ?", heard, heard)
	}
	var open []string
	if err := restrictsNothing().Order("changed").Pluck("topic", &open).Error; err != nil {
		return err
	}
	for _, topic := range open {
		held, err := a.h.HeldTasks(ctx, tx, topic, nil, 1)
		if err != nil {
			return err
		}
		if len(held) == 0 {
			gone := restrictsNothing().Where("topic = ?", []byte(topic)).Delete(nil) // an operator may have paused it since it was read
			if gone.Error != nil || gone.RowsAffected > 0 {
				return gone.Error
			}
		}
	}
	return ErrTooManyPolicies
}

// CountHeld counts a target's held tasks, at most so many. It looks at as many of each lane.
func (a Admin) CountHeld(ctx context.Context, topic string, most int) (int, error) {
	key, err := a.h.LaneKey(ctx)
	if err != nil {
		return 0, err
	}
	total := 0
	for _, lane := range key.Lanes(topic) {
		var n int
		err := a.h.DB.QueryRowContext(ctx, "SELECT COALESCE(SUM(counts), 0) FROM (SELECT topic = ? AS counts FROM tasks WHERE lane = ? AND pos >= ? LIMIT ?) AS held", []byte(topic), int64(lane), task.Held(0), most).Scan(&n)
		if err != nil {
			return 0, fmt.Errorf("counting held tasks: %w", err)
		}
		total += n
	}
	return min(total, most), nil
}
