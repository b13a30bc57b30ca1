package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/shards"
)

// databases are those of an installation. They know which of them a question concerns.
type databases struct {
	members []*Member
	homes   *shardmap.Known
	// OnMissing is told of answers without some databases, by number. nil: nobody is.
	OnMissing func(numbers []int)
}

// alone returns the only member's Local, which answers by itself; nil: there are several members,
// or it is away.
func (d *databases) alone() *Local {
	if len(d.members) > 1 {
		return nil
	}
	return d.members[0].local.Load()
}

// of returns the databases of a target, its home first.
func (d *databases) of(target string) []*Member {
	if len(d.members) == 1 {
		return d.members[:1]
	}
	var out []*Member
	for _, number := range d.homes.Homes(schemas.TargetName(target)) {
		out = append(out, d.member(number))
	}
	return out
}

// isHome reports whether a database is the home of a target.
func (d *databases) isHome(m *Member, target string) bool { return d.of(target)[0].Number == m.Number }

// member returns the database of a number. One that nobody knows is away.
func (d *databases) member(number int) *Member {
	for _, m := range d.members {
		if m.Number == number {
			return m
		}
	}
	return &Member{Number: number, auditor: auditor{audit: func(context.Context, []admin.AuditEntry) error { return &AwayError{number, errNoShard} }}}
}

// among returns the databases that a question about a topic concerns; "": all.
func (d *databases) among(topic string) []*Member {
	if topic == "" {
		return d.members
	}
	return d.of(topic)
}

func (d *databases) tell(missing []int) {
	if d.OnMissing != nil && len(missing) > 0 {
		d.OnMissing(missing)
	}
}

// leaves fails with ErrMap if a target has left a database, and with ErrMoving if it is about to.
// Otherwise it returns the version of the rules: as long as they have it, the target stays.
func (d *databases) leaves(ctx context.Context, l *Local, m *Member, topic string) (version int64, err error) {
	if len(d.members) == 1 {
		return 0, nil
	}
	rules, err := shards.New(l.store).Map(ctx)
	if err != nil {
		return 0, err
	}
	d.homes.Learn(&rules)
	if !d.isHome(m, topic) {
		return 0, shards.ErrMap
	}
	name := schemas.TargetName(topic)
	if r := rules.Announced(); r != nil && r.Matches(name) && (r.Former == m.Number || rules.Home(name) == r.Former) {
		return 0, shards.ErrMoving
	}
	return rules.Version, nil
}

func (d *databases) numbers() (out []int) {
	for _, m := range d.members {
		out = append(out, m.Number)
	}
	return out
}

func (d *databases) shard(number int) (*Member, error) {
	numbers := d.numbers()
	switch {
	case number == AnyShard && len(d.members) == 1:
		return d.members[0], nil
	case number == AnyShard:
		return nil, wrong("shard", "", fmt.Sprintf("is missing, and each database has slots of its own: name one of %v", numbers))
	case !slices.Contains(numbers, number):
		return nil, wrong("shard", fmt.Sprint(number), fmt.Sprintf("is no database of this installation: name one of %v", numbers))
	}
	return d.member(number), nil
}

// time returns the time by a database's clock.
func (d *databases) time(ctx context.Context, m *Member) (time.Time, error) {
	return soon(ctx, d, m, func(ctx context.Context, l *Local) (time.Time, error) { return l.store.Time(ctx) })
}
