package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/shards"
)

// Shards is the databases of the installation, and which of them has which targets.
type Shards struct {
	Version int         `json:"version"        doc:"of the rules; grows with each one"`
	Shards  []Shard     `json:"shards"`
	Rules   []ShardRule `json:"rules"          doc:"those in force, in their order: each one applies to the targets that the ones before have in its former database. Targets without a rule are in database 0"`
	Move    *ShardMove  `json:"move,omitempty" doc:"the one that is under way; absent: none"`
	Partial
}

// Shard is one database.
type Shard struct {
	Shard   int    `json:"shard"                  doc:"its place in mysql.shards, from 0"`
	Server  string `json:"server"                 doc:"its address"`
	Up      bool   `json:"up"                     doc:"whether it answers"`
	Pending int64  `json:"pending"                doc:"tasks that have not ended, counted up to 100,000; 0 where it does not answer"`
	More    bool   `json:"pending_more,omitempty" doc:"there are more than were counted"`
}

// ShardRule moved targets to a database.
type ShardRule struct {
	Pattern string `json:"pattern"        doc:"a target, or a pattern such as orders.*"`
	Part    string `json:"part,omitempty" doc:"a/b: of the targets that match, the a-th of b parts by hash; absent: all"`
	Former  int    `json:"former"         doc:"number of the database that the targets left"`
	Shard   int    `json:"shard"          doc:"number of the database that has them"`
}

// ShardMove is a move that is under way.
type ShardMove struct {
	To      int    `json:"to"`
	Pattern string `json:"pattern"`
	Done    int64  `json:"done"  doc:"tasks that have moved"`
	Total   int64  `json:"total" doc:"tasks that are to move"`
}

// MoveTargets asks for a move of targets.
type MoveTargets struct {
	Pattern string `json:"pattern"           doc:"a target, or a pattern such as orders.*; * is all"                   minLength:"1" maxLength:"255"`
	Part    string `json:"part,omitempty"    doc:"a/b: of the targets that match, the a-th of b parts by hash; absent: all" pattern:"^[0-9]{1,4}/[0-9]{1,4}$"`
	Shard   int    `json:"shard"             doc:"number of the database that is to have them"`
	Former  *int   `json:"former,omitempty"  doc:"only those of this database; absent: of all"`
	DryRun  bool   `json:"dry_run,omitempty" doc:"say what would move, and move nothing"`
}

// MovedTargets is the answer.
type MovedTargets struct {
	Rules []ShardRule `json:"rules" doc:"those that were made, or with dry_run would be; none: the targets are there already"`
}

// countedPending is up to how many tasks of a database are counted.
const countedPending = 100_000

func newShardRule(r shardmap.Rule) ShardRule {
	out := ShardRule{Pattern: r.Pattern, Former: r.Former, Shard: r.Shard}
	if r.Parts > 0 {
		out.Part = fmt.Sprintf("%d/%d", r.Part, r.Parts)
	}
	return out
}

// fleetShards shows the databases themselves, and moves targets between them.
type fleetShards struct{ *databases }

// Shards returns the databases, and their rules.
func (f *fleetShards) Shards(ctx context.Context) (Shards, error) {
	type seen struct {
		m       shardmap.Map
		pending look.Bounded
	}
	replies, missing, err := each(ctx, f.databases, "", func(ctx context.Context, l *Local, _ *Member) (seen, error) {
		return listing(ctx, l, func(ctx context.Context) (s seen, err error) {
			if s.m, err = shards.New(l.store).Map(ctx); err == nil {
				s.pending, err = look.New(l.store).Unfinished(ctx, countedPending)
			}
			return s, err
		})
	})
	if err != nil {
		return Shards{}, err
	}
	out := Shards{Shards: []Shard{}, Rules: []ShardRule{}, Partial: Partial{missing}}
	latest := &shardmap.Map{}
	up := map[int]seen{}
	for _, r := range replies {
		up[r.Number] = r.got
		latest = latest.Later(&r.got.m)
		if rule := r.got.m.Announced(); rule != nil {
			out.Move = &ShardMove{To: rule.Shard, Pattern: rule.Pattern}
		}
	}
	for _, m := range f.members {
		s, there := up[m.Number]
		out.Shards = append(out.Shards, Shard{Shard: m.Number, Server: m.Server, Up: there, Pending: s.pending.N, More: s.pending.More})
	}
	f.homes.Learn(latest)
	if latest.Following() != nil {
		if out.Move, err = f.following(ctx, *latest); err != nil {
			return out, err
		}
	}
	out.Version = latest.InForce()
	for _, r := range latest.Rules {
		if r.Held && !r.Removes() {
			out.Rules = append(out.Rules, newShardRule(r))
		}
	}
	return out, nil
}

// following is the move whose tasks follow their targets.
func (f *fleetShards) following(ctx context.Context, m shardmap.Map) (*ShardMove, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	p, err := f.open().Progress(ctx, m)
	if p == nil || err != nil {
		return nil, err
	}
	return &ShardMove{To: p.Rule.Shard, Pattern: p.Rule.Pattern, Done: p.Done, Total: p.Total}, nil
}

// open returns the databases that are open.
func (d *databases) open() shards.Databases {
	all := shards.Databases{}
	for _, m := range d.members {
		if l := m.local.Load(); l != nil {
			all[m.Number] = shards.New(l.store).Hinting(l.Hint)
		}
	}
	return all
}

// ReadHomes asks the databases, once, which of them has which targets.
func (f *fleetShards) ReadHomes(ctx context.Context) error {
	if len(f.members) == 1 {
		return nil
	}
	replies, _, err := each(ctx, f.databases, "", func(ctx context.Context, l *Local, _ *Member) (shardmap.Map, error) {
		return shards.New(l.store).Map(ctx)
	})
	for _, r := range replies {
		f.homes.Learn(&r.got)
	}
	return err
}

// MoveTargets has targets live in another database from now on.
func (f *fleetShards) MoveTargets(ctx context.Context, r MoveTargets) (MovedTargets, error) {
	out := MovedTargets{Rules: []ShardRule{}}
	rule, err := f.ruleOf(r)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, changeBudget) // whether they are at rest may take a look at many rows
	defer cancel()
	all := f.open()
	for _, m := range f.members {
		if _, open := all[m.Number]; !open {
			return out, m.away(errNotOpen)
		}
	}
	if !r.DryRun {
		bound, cancel := context.WithTimeout(ctx, time.Second)
		_ = all.TakeUp(bound) // whoever has moved others may have died
		cancel()
	}
	maps, err := all.Maps(ctx)
	if err != nil {
		return out, err
	}
	m := maps[f.members[0].Number]
	defer func() { _ = f.ReadHomes(ctx) }() // what has moved is asked there from now on
	for _, rule := range m.Plan(rule) {
		if r.Former != nil && rule.Former != *r.Former {
			continue
		}
		if !r.DryRun {
			if len(out.Rules) > 0 { // one at a time
				if err := all.Follow(ctx); err != nil {
					if errors.Is(ctx.Err(), context.DeadlineExceeded) {
						err = fmt.Errorf("%w: tasks of %s follow, and the other targets move when this is asked for again", shards.ErrMoving, out.Rules[len(out.Rules)-1].Pattern)
					}
					return out, err
				}
			}
			noted := admin.Auditing(ctx, admin.AuditEntry{What: "move targets", Topic: rule.Literal(), Detail: admin.AuditDetail(map[string]any{"pattern": r.Pattern, "part": r.Part, "former": rule.Former, "shard": r.Shard})})
			rule, err = all.MoveBehind(noted, rule, f.cancelsEnds)
		}
		if errors.Is(err, admin.ErrTooManyPolicies) {
			return out, wrong("pattern", r.Pattern, "cannot move: "+err.Error())
		}
		if err != nil {
			return out, err
		}
		out.Rules = append(out.Rules, newShardRule(rule))
	}
	return out, nil
}

// cancelsEnds returns up to where the topic of cancels has records, where it has some.
func (f *fleetShards) cancelsEnds(ctx context.Context) (map[shardmap.Partition]int64, error) {
	l := f.members[0].local.Load()
	if l == nil || l.Cancels.Kafka == nil {
		return nil, nil
	}
	client, err := l.Cancels.Kafka(ctx)
	if err != nil {
		return nil, kafkaError{err}
	}
	admin, topic := kadm.NewClient(client), l.Cancels.Topic
	topics, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return nil, kafkaError{fmt.Errorf("asking for topic %s: %w", topic, err)}
	}
	if !topics.Has(topic) { // nobody has cancelled many yet
		return nil, nil
	}
	begins, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, kafkaError{fmt.Errorf("asking where topic %s begins: %w", topic, err)}
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = errors.Join(begins.Error(), ends.Error())
	}
	if err != nil {
		return nil, kafkaError{fmt.Errorf("asking where topic %s ends: %w", topic, err)}
	}
	out := map[shardmap.Partition]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		if begin, _ := begins.Lookup(topic, end.Partition); end.Offset > begin.Offset {
			out[shardmap.Partition{Topic: topic, TopicID: topics[topic].ID, Partition: end.Partition}] = end.Offset
		}
	})
	return out, nil
}

// ruleOf checks a request.
func (f *fleetShards) ruleOf(r MoveTargets) (rule shardmap.Rule, err error) {
	former := r.Shard
	if r.Former != nil {
		former = *r.Former
	}
	for i, number := range []int{r.Shard, former} {
		if numbers := f.numbers(); !slices.Contains(numbers, number) {
			return rule, wrong([]string{"shard", "former"}[i], strconv.Itoa(number), fmt.Sprintf("is no database of this installation: name one of %v", numbers))
		}
	}
	rule = shardmap.Rule{Pattern: r.Pattern, Shard: r.Shard}
	if r.Part != "" {
		part, parts, _ := strings.Cut(r.Part, "/")
		var err1, err2 error
		rule.Part, err1 = strconv.Atoi(part)
		rule.Parts, err2 = strconv.Atoi(parts)
		if err1 != nil || err2 != nil || rule.Part < 1 {
			return rule, wrong("part", r.Part, "is none: write the first of three as 1/3")
		}
	}
	if field, problem := rule.Mistake(); problem != "" {
		return rule, wrong(field, map[string]string{"pattern": r.Pattern, "part": r.Part}[field], problem)
	}
	return rule, nil
}

type shardsInput struct{}

func (*shardsInput) scope(c access.Caller) error {
	return ofAllTopics(c, "databases are of all topics")
}

type moveInput struct {
	Body MoveTargets
}

func (*moveInput) scope(c access.Caller) error { return ofAllTopics(c, "databases are of all topics") }

// ofAllTopics refuses a caller that is restricted to some topics.
func ofAllTopics(c access.Caller, why string) error {
	if !c.AllTopics() {
		return huma.Error403Forbidden(fmt.Sprintf("the token %q is for some topics only, and %s", c.Name, why))
	}
	return nil
}

func (s *server) listShards(ctx context.Context, _ *shardsInput) (Shards, error) {
	return s.fleet.Shards(ctx)
}

func (s *server) moveTargets(ctx context.Context, in *moveInput) (MovedTargets, error) {
	return s.fleet.MoveTargets(ctx, in.Body)
}

// Shards returns the databases, and their rules.
func (c *Client) Shards(ctx context.Context) (Shards, error) {
	return get[Shards](ctx, c, "/shards", shardsInput{}, nil)
}

// MoveTargets has targets live in another database from now on.
func (c *Client) MoveTargets(ctx context.Context, r MoveTargets) (MovedTargets, error) {
	return do[MovedTargets](ctx, c, http.MethodPost, "/shards/moves", r, nil)
}
