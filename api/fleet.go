package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/shards"
)

// Fleet answers for all databases of an installation, as Local does for one. Each target lives in
// one of them, its home. A question about a target goes to its home, and then to its former homes.
// Other questions go to all; databases that do not answer are named in the answer.
//
// With one member, each answer is that of its Local.
type Fleet struct {
	*databases
	fleetLetters
	fleetOperations
	fleetTimers
	fleetShards
	summed atomic.Pointer[summedOverview]
}

// Member is a database of a Fleet.
type Member struct {
	Number int    // its place in mysql.shards, from 0
	Server string // its address
	local  atomic.Pointer[Local]
	silent atomic.Int64 // when a request last waited for it in vain, Unix ns
	auditor
}

// NewMember returns a member. local may be nil, see Set.
func NewMember(number int, local *Local) *Member {
	m := &Member{Number: number}
	m.Set(local)
	m.audit = func(ctx context.Context, entries []admin.AuditEntry) error {
		l := m.local.Load()
		if l == nil {
			return m.away(errNotOpen)
		}
		return admin.New(l.store).Audit(ctx, entries)
	}
	return m
}

// Set puts another Local into use; nil: the database is away, or not open yet.
func (m *Member) Set(local *Local) { m.local.Store(local) }

// NewFleet returns a Fleet. The first member is the installation's home. homes is
// what the process knows of the homes of targets. The Fleet adds what it learns.
func NewFleet(members []*Member, homes *shardmap.Known) *Fleet {
	d := &databases{members: members, homes: homes}
	return &Fleet{databases: d, fleetLetters: fleetLetters{d}, fleetOperations: fleetOperations{d}, fleetTimers: fleetTimers{d}, fleetShards: fleetShards{d}}
}

// Alone returns the Fleet of one database.
func Alone(local *Local) *Fleet { return NewFleet([]*Member{NewMember(0, local)}, new(shardmap.Known)) }

// AwayError means: a database does not answer.
type AwayError struct {
	Number int
	Why    error
}

// Error names the database.
func (e *AwayError) Error() string {
	return fmt.Sprintf("database %d does not answer: %v", e.Number, e.Why)
}

// Unwrap returns the reason.
func (e *AwayError) Unwrap() error { return e.Why }

var (
	errNotOpen = errors.New("this process has no connection to it yet")
	errNoShard = errors.New("this process does not know it")
)

func (m *Member) away(why error) error { return &AwayError{m.Number, why} }

// silentFor is for how long after a wait in vain a request's missing turn is taken for the silence
// of the database: those before it still wait.
const silentFor = 15 * time.Second

// isAway reports whether an error says that the database did not answer. A mistake, an absence and
// a refusal are answers.
func (m *Member) isAway(err error) bool {
	if errors.Is(err, share.ErrTurn) {
		return time.Since(time.Unix(0, m.silent.Load())) < silentFor
	}
	known := []error{ErrUnknownOutcome, ErrBusy, ErrAudit, ErrUndecided, look.ErrState, shards.ErrMap, shards.ErrMoving}
	if isOf[kafkaError](err) || slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) }) {
		return false
	}
	var status huma.StatusError
	if !errors.As(problem(err), &status) || status.GetStatus() < http.StatusServiceUnavailable {
		return false
	}
	m.silent.Store(time.Now().UnixNano())
	return true
}

// at asks one database.
func at[T any](ctx context.Context, d *databases, m *Member, ask func(context.Context, *Local) (T, error)) (out T, err error) {
	l := m.local.Load()
	if l == nil {
		return out, m.away(errNotOpen)
	}
	out, err = ask(ctx, l)
	if err != nil && len(d.members) > 1 && ctx.Err() == nil && m.isAway(err) {
		err = m.away(err)
	}
	return out, err
}

// soon is at, for a question that is answered in a moment.
func soon[T any](ctx context.Context, d *databases, m *Member, ask func(context.Context, *Local) (T, error)) (T, error) {
	if len(d.members) == 1 {
		return at(ctx, d, m, ask)
	}
	return at(ctx, d, m, func(ctx context.Context, l *Local) (T, error) {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		return ask(ctx, l)
	})
}

// find asks the databases of a target one after the other, as long as there is nothing. For a
// moment, no database has what follows its target. It fails with ErrMoving if the target is about
// to leave: its next tasks are out of their line by then.
func find[T any](ctx context.Context, d *databases, target string, nothing error, ask func(context.Context, *Local, *Member) (T, error)) (out T, err error) {
	name := schemas.TargetName(target)
	for range followTries {
		asked := d.of(target)
		for _, m := range asked {
			out, err = soon(ctx, d, m, func(ctx context.Context, l *Local) (T, error) { return ask(ctx, l, m) })
			if !errors.Is(err, nothing) {
				return out, err
			}
		}
		if d.learn(ctx, asked, name) {
			return out, shards.ErrMoving
		}
		if d.of(target)[0] == asked[0] && !d.homes.Following(name) || loop.Rest(ctx, homeRest) != nil {
			break
		}
	}
	return out, err
}

// learn reads the rules of databases that have nothing: the target may have left them just now. It
// tells whether the target is about to leave its home.
func (d *databases) learn(ctx context.Context, asked []*Member, target string) (leaves bool) {
	if len(d.members) == 1 {
		return false
	}
	for _, m := range asked {
		if rules, err := soon(ctx, d, m, func(ctx context.Context, l *Local) (shardmap.Map, error) { return shards.New(l.store).Map(ctx) }); err == nil {
			d.homes.Learn(&rules)
			r := rules.Announced()
			leaves = leaves || r != nil && !r.Removes() && r.Matches(target) && rules.Home(target) == r.Former
		}
	}
	return leaves
}

// reply is a database's answer.
type reply[T any] struct {
	*Member
	got T
}

// each asks the databases that a question about a topic concerns, side by side. The home of a named
// target has to answer; of several others, one does.
func each[T any](ctx context.Context, d *databases, topic string, ask func(context.Context, *Local, *Member) (T, error)) (replies []reply[T], missing []int, err error) {
	among := d.among(topic)
	got, errs := make([]T, len(among)), make([]error, len(among))
	var all sync.WaitGroup
	for i, m := range among {
		all.Go(func() {
			got[i], errs[i] = at(ctx, d, m, func(ctx context.Context, l *Local) (T, error) { return ask(ctx, l, m) })
		})
	}
	all.Wait()
	for i, m := range among {
		if _, away := errors.AsType[*AwayError](errs[i]); away && !(topic != "" && i == 0) {
			missing = append(missing, m.Number)
		} else if errs[i] != nil {
			return nil, nil, errs[i]
		} else {
			replies = append(replies, reply[T]{m, got[i]})
		}
	}
	if len(replies) == 0 {
		return nil, nil, errs[0]
	}
	d.tell(missing)
	return replies, missing, nil
}

// note writes an entry about a request through Kafka, in the home of its target.
func (f *Fleet) note(ctx context.Context, e admin.AuditEntry) error {
	return f.of(e.Topic)[0].write(ctx, e)
}

func (f *Fleet) secret(ctx context.Context, name string) ([16]byte, error) {
	return soon(ctx, f.databases, f.members[0], func(ctx context.Context, l *Local) ([16]byte, error) { return admin.New(l.store).Secret(ctx, name) })
}

// timeFor returns the time by the clock of the database that will decide on a request.
func (f *Fleet) timeFor(ctx context.Context, r *kgo.Record) (time.Time, error) {
	m := f.members[0]
	if len(f.members) > 1 {
		req, err := schemas.Decode(r, anyLimits)
		if err != nil {
			return time.Time{}, err
		}
		m = f.of(req.Topic)[0]
	}
	return f.time(ctx, m)
}

// Ids of dead letters and of the audit log are each database's own. Outside, the database's number
// is above them, so that those of the home stay as they are.
const idBits = 44

func (m *Member) outside(id int64) int64 {
	if id == 0 { // none
		return 0
	}
	return int64(m.Number)<<idBits | id
}

// inside takes an id apart.
func inside(id int64) (number int, own int64) { return int(id >> idBits), id & (1<<idBits - 1) }

// MissingOf returns the numbers of the databases that an answer lacks.
func MissingOf(answer any) []int {
	switch v := answer.(type) {
	case interface{ lacks() []int }:
		return v.lacks()
	case deadletter.Page:
		return v.Missing
	case deadletter.Purged:
		return v.Missing
	case deadletter.Letters:
		return v.Missing
	case Letters:
		return v.Missing
	}
	return nil
}

// Partial names what an answer lacks.
type Partial struct {
	Missing []int `json:"missing,omitempty" doc:"databases that do not answer, by number: what they hold is not in this answer; absent: none"`
}

func (p Partial) lacks() []int { return p.Missing }

// Task returns one task with content and history, or look.ErrNotFound.
func (f *Fleet) Task(ctx context.Context, topic, id string) (Task, error) {
	return find(ctx, f.databases, topic, look.ErrNotFound, func(ctx context.Context, l *Local, m *Member) (Task, error) {
		t, err := l.Task(ctx, topic, id)
		for i := range t.Changes {
			t.Changes[i].ID = m.outside(t.Changes[i].ID)
		}
		return t, err
	})
}

// fleetTimers reads timers, and makes runs of them.
type fleetTimers struct{ *databases }

// Timer returns one timer with content, or look.ErrNoTimer.
func (f *fleetTimers) Timer(ctx context.Context, topic, id string) (Timer, error) {
	return find(ctx, f.databases, topic, look.ErrNoTimer, func(ctx context.Context, l *Local, _ *Member) (Timer, error) { return l.Timer(ctx, topic, id) })
}

// AuditTimer compares expected runs with made ones, or returns look.ErrNoTimer.
func (f *fleetTimers) AuditTimer(ctx context.Context, topic, id string, t TimerAuditFilter) (TimerAudit, error) {
	return find(ctx, f.databases, topic, look.ErrNoTimer, func(ctx context.Context, l *Local, _ *Member) (TimerAudit, error) {
		return l.AuditTimer(ctx, topic, id, t)
	})
}

// RunTimer makes one run of a timer in the home of its target, or returns look.ErrNoTimer.
func (f *fleetTimers) RunTimer(ctx context.Context, topic, id string, r RunTimer) (TimerRun, error) {
	if f.homes.Following(schemas.TargetName(topic)) { // a task of the run's id may be on the way
		return TimerRun{}, shards.ErrMoving
	}
	return at(ctx, f.databases, f.of(topic)[0], func(ctx context.Context, l *Local) (TimerRun, error) { return l.RunTimer(ctx, topic, id, r) })
}

// BackfillTimer makes the missing runs of a timer in the home of its target, or returns
// look.ErrNoTimer.
func (f *fleetTimers) BackfillTimer(ctx context.Context, topic, id string, r Backfill) (Backfilled, error) {
	if f.homes.Following(schemas.TargetName(topic)) {
		return Backfilled{}, shards.ErrMoving
	}
	return at(ctx, f.databases, f.of(topic)[0], func(ctx context.Context, l *Local) (Backfilled, error) { return l.BackfillTimer(ctx, topic, id, r) })
}

// ChangeTarget changes a target's policy in its home. It waits for a target that is about to move:
// a policy that stayed behind would not be in force. Tasks that still follow are under the policy
// of the former home, so this one changes too.
func (f *Fleet) ChangeTarget(ctx context.Context, topic string, c TargetChange) (out TargetPolicy, err error) {
	for range homeTries {
		m := f.of(topic)[0]
		out, err = at(ctx, f.databases, m, func(ctx context.Context, l *Local) (TargetPolicy, error) {
			version, err := f.leaves(ctx, l, m, topic)
			if err != nil {
				return TargetPolicy{}, err
			}
			return l.changeTarget(ctx, version, topic, c)
		})
		if !errors.Is(err, shards.ErrMap) && !errors.Is(err, shards.ErrMoving) || loop.Rest(ctx, homeRest) != nil {
			break
		}
	}
	name := schemas.TargetName(topic)
	if err != nil || !f.homes.Following(name) {
		return out, err
	}
	_, err = at(ctx, f.databases, f.of(name)[1], func(ctx context.Context, l *Local) (admin.Policy, error) {
		now, err := l.store.Time(ctx)
		if err != nil {
			return admin.Policy{}, err
		}
		return admin.New(l.store).SetPolicy(ctx, name, now.UnixMilli(), c.of)
	})
	return out, err
}

// homeTries is how often a database is asked about a target that moves, with a rest between two.
const homeTries, homeRest = 40, 50 * time.Millisecond

// followTries is how often databases are asked about something that may be on the way.
const followTries = 10

// Slots returns how many slots a database has. number may be AnyShard where there is only one.
func (f *Fleet) Slots(ctx context.Context, number int) (SlotsChange, error) {
	m, err := f.shard(number)
	if err != nil {
		return SlotsChange{}, err
	}
	return soon(ctx, f.databases, m, func(ctx context.Context, l *Local) (SlotsChange, error) { return l.Slots(ctx) })
}

// SetSlots changes the number of slots of a database.
func (f *Fleet) SetSlots(ctx context.Context, number, slots int) (SlotsChange, error) {
	m, err := f.shard(number)
	if err != nil {
		return SlotsChange{}, err
	}
	return at(ctx, f.databases, m, func(ctx context.Context, l *Local) (SlotsChange, error) { return l.SetSlots(ctx, slots) })
}

// AnyShard names no database.
const AnyShard = -1
