package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// Cluster is the running services, and the owners of slots.
type Cluster struct {
	Services []Service `json:"services"            doc:"processes that have said within 15 s that they are alive"`
	Slots    []Slot    `json:"slots"`
	Lag      []Lag     `json:"lag"                 doc:"of the partitions of intake and reports"`
	LagError string    `json:"lag_error,omitempty" doc:"why lag is not known"`
	Shards   []int     `json:"shards,omitempty"    doc:"numbers of the databases; absent: there is one"`
	Partial
}

// Service is a running process.
type Service struct {
	ID      string `json:"id"               doc:"of where it runs and its version, nothing is shown to a token for some topics"`
	Kind    string `json:"kind"             doc:"scanner, dispatcher, all or dev"`
	Member  string `json:"member,omitempty" doc:"of a dispatcher: its name as an owner of slots"`
	Version string `json:"version"`
	HTTP    string `json:"http"             doc:"where it serves, as it says"`
	Started int64  `json:"started"          doc:"Unix ms"`
	Seen    int64  `json:"seen"             doc:"when it last said that it is alive, Unix ms"`
	Slots   int    `json:"slots"            doc:"slots that it owns"`
}

// Slot is a line of tasks with its owner.
type Slot struct {
	Shard   int    `json:"shard,omitempty" doc:"number of its database; absent: 0"`
	Slot    int    `json:"slot"`
	Owner   string `json:"owner"   doc:"the dispatcher's member name; empty: free"`
	Alive   bool   `json:"alive"   doc:"whether the owner is one of the services"`
	Epoch   int64  `json:"epoch"`
	Claimed int64  `json:"claimed" doc:"Unix ms: every task up to it is the owner's"`
	Done    int64  `json:"done"    doc:"Unix ms: every task up to it is settled"`
}

// lagTimeout limits the look at Kafka. Without Kafka, the rest is answered.
const lagTimeout = 3 * time.Second

// Cluster returns the running services, the slots, and how far the intakes are stored.
func (l *Local) Cluster(ctx context.Context) (Cluster, error) {
	return listing(ctx, l, func(ctx context.Context) (Cluster, error) {
		out, err := l.members(ctx)
		if err != nil {
			return out, err
		}
		lag, err := l.lag(ctx)
		if err != nil {
			out.LagError = err.Error()
		}
		out.Lag = append(out.Lag, lag...)
		return out, nil
	})
}

// Cluster returns the running services, the slots of all databases, and how far each has stored the
// intakes.
func (f *Fleet) Cluster(ctx context.Context) (out Cluster, err error) {
	if l := f.alone(); l != nil {
		return l.Cluster(ctx)
	}
	replies, missing, err := each(ctx, f.databases, "", func(ctx context.Context, l *Local, _ *Member) (Cluster, error) { return l.Cluster(ctx) })
	if err != nil {
		return Cluster{Services: []Service{}, Slots: []Slot{}, Lag: []Lag{}}, err
	}
	out = Cluster{Services: []Service{}, Slots: []Slot{}, Lag: []Lag{}, Partial: Partial{missing}}
	for _, m := range f.members {
		out.Shards = append(out.Shards, m.Number)
	}
	at := map[string]int{} // where a service stands, by its id
	for _, r := range replies {
		for _, s := range r.got.Services {
			if i, twice := at[s.ID]; twice {
				out.Services[i].Slots, out.Services[i].Seen = out.Services[i].Slots+s.Slots, max(out.Services[i].Seen, s.Seen)
				continue
			}
			at[s.ID] = len(out.Services)
			out.Services = append(out.Services, s)
		}
		for _, s := range r.got.Slots {
			s.Shard = r.Number
			out.Slots = append(out.Slots, s)
		}
		for _, l := range r.got.Lag {
			l.Shard = r.Number
			out.Lag = append(out.Lag, l)
		}
		out.LagError = cmp.Or(out.LagError, r.got.LagError)
	}
	return out, nil
}

// members returns the services and the slots. Kafka is not asked.
func (l *Local) members(ctx context.Context) (Cluster, error) {
	out := Cluster{Services: []Service{}, Slots: []Slot{}, Lag: []Lag{}}
	services, err := look.New(l.store).Services(ctx)
	if err != nil {
		return out, err
	}
	slots, err := l.store.Slots(ctx)
	if err != nil {
		return out, err
	}
	owned := map[string]int{}
	for _, s := range slots {
		owned[s.Owner]++
	}
	alive := map[string]bool{}
	for _, v := range services {
		s := Service{ID: v.ID, Kind: v.Kind, Member: v.Member, Version: v.Version, HTTP: v.HTTP, Started: v.Started, Seen: v.Seen}
		if v.Member != "" {
			s.Slots, alive[v.Member] = owned[v.Member], true
		}
		out.Services = append(out.Services, s)
	}
	for _, s := range slots {
		if !s.GivenUp() {
			out.Slots = append(out.Slots, Slot{Slot: s.Slot, Owner: s.Owner, Alive: alive[s.Owner], Epoch: s.Epoch, Claimed: s.Claimed, Done: s.Done})
		}
	}
	return out, nil
}

func (l *Local) lag(ctx context.Context) ([]Lag, error) {
	if l.Lag == nil {
		return nil, errors.New("no connection to Kafka: set kafka.brokers")
	}
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	return l.Lag(ctx)
}

// Cluster returns the running services and the slots.
func (c *Client) Cluster(ctx context.Context) (Cluster, error) {
	return get[Cluster](ctx, c, "/cluster", nil, nil)
}

func (s *server) showCluster(ctx context.Context, _ *nothing) (Cluster, error) {
	out, err := s.fleet.Cluster(ctx)
	caller := access.From(ctx)
	if out.LagError != "" && !caller.AllTopics() {
		out.LagError = "the intake cannot be looked at" // the reason may name others' intakes
	}
	if !caller.AllTopics() {
		out.anonymous()
	}
	out.Lag = slices.DeleteFunc(out.Lag, func(l Lag) bool { return !s.shows(caller, l.Topic) })
	return out, err
}

// anonymous removes the services' places and versions.
func (c *Cluster) anonymous() {
	names := map[string]string{}
	for i, s := range c.Services {
		name := s.Kind + " " + strconv.Itoa(i+1)
		c.Services[i] = Service{ID: name, Kind: s.Kind, Started: s.Started, Seen: s.Seen, Slots: s.Slots}
		if s.Member != "" {
			names[s.Member], c.Services[i].Member = name, name
		}
	}
	for i, s := range c.Slots {
		if s.Owner != "" {
			c.Slots[i].Owner = cmp.Or(names[s.Owner], "another")
		}
	}
}

// shows reports whether a caller may know of a read topic. Intakes are known to the users of their
// targets: often intakes have the names of teams. An intake without own targets is everybody's.
func (s *server) shows(c access.Caller, topic string) bool {
	in, isIntake := pick(s.intakes(), topic)
	if c.AllTopics() || !isIntake || len(in.Limits.AllowedTargets) == 0 {
		return true
	}
	return slices.ContainsFunc(in.Limits.AllowedTargets, func(target string) bool {
		return c.Topic(target) || slices.ContainsFunc(c.Topics, func(pattern string) bool {
			ok, err := path.Match(target, pattern)
			return ok && err == nil
		})
	})
}

// cut leaves the latest minutes of the series.
func (o *Overview) cut(minutes int) {
	before := (last(time.UnixMilli(o.At)) - int64(minutes)) * time.Minute.Milliseconds()
	for len(o.Series) > 0 && o.Series[0].At <= before {
		o.Series = o.Series[1:]
	}
}

type overviewInput struct {
	Minutes int    `query:"minutes" doc:"how many minutes the series go back" default:"180" minimum:"1" maximum:"360"`
	Topic   string `query:"topic"   doc:"traffic of this target only"`
	Own     bool   `query:"own"     doc:"figures of the token's topics, for a token that is for some topics only"`
}

func (in *overviewInput) scope(c access.Caller) error { return withinOwn(c, in.Topic, in.Own) }

func (s *server) showOverview(ctx context.Context, in *overviewInput) (Overview, error) {
	return s.fleet.Overview(ctx, in.Minutes, in.Topic)
}

// Overview returns how the installation is doing, with series of so many minutes (at most 360), and
// the traffic of a topic, or of some topics without one.
func (c *Client) Overview(ctx context.Context, minutes int, topic string) (Overview, error) {
	return get[Overview](ctx, c, "/overview", overviewInput{Minutes: minutes, Topic: topic}, nil)
}

// SlotsChange is the number of slots, and the progress of a change of the number, in JSON.
type SlotsChange struct {
	Slots   int          `json:"slots"             doc:"how many there are; while that changes, how many there were"`
	Target  int          `json:"target"            doc:"how many there are to be"`
	Next    int          `json:"next,omitempty"    doc:"how many there are to be after that; absent: as many as target"`
	Changes bool         `json:"changing"          doc:"the number changes"`
	Leaving int          `json:"leaving,omitempty" doc:"slots of which tasks move"`
	Split   int          `json:"split,omitempty"   doc:"those of them whose keys are spread over the new number"`
	Moved   int          `json:"moved,omitempty"   doc:"those of them whose tasks have all moved"`
	Kept    int          `json:"kept,omitempty"    doc:"slots that were given up, of which ended tasks are remembered"`
	Behind  []SlotBehind `json:"behind,omitempty" doc:"those of the leaving ones whose tasks have not all moved"`
}

// SlotBehind is a slot that holds a change up.
type SlotBehind struct {
	Slot  int    `json:"slot"`
	Owner string `json:"owner,omitempty"    doc:"the dispatcher that is to move its tasks; absent: none"`
	Why   string `json:"why"                doc:"what it waits for: owner, in-flight (deliveries that are under way), answers (of Kafka, about a few tasks), tasks (they are on the move)"`
	UpTo  int64  `json:"up_to,omitempty"    doc:"Unix ms; with in-flight: what was due by then has ended; with tasks: what is due by then has moved"`
}

func newSlotBehind(s store.Slot) SlotBehind {
	out := SlotBehind{Slot: s.Slot, Owner: s.Owner, Why: "owner"}
	switch {
	case s.Owner == "":
	case !s.Split():
		out.Why, out.UpTo = "in-flight", s.Done
	case s.AllButAnswers():
		out.Why = "answers"
	default:
		if out.Why = "tasks"; !task.IsHeld(s.Moved + 1) { // otherwise only held ones are left
			out.UpTo = s.Moved
		}
	}
	return out
}

func newSlotsChange(g admin.Growth) SlotsChange {
	out := SlotsChange{Slots: g.Base, Target: g.Target, Next: g.Next, Changes: !g.Settled(), Leaving: g.Leaving, Split: g.Split, Moved: g.Whole, Kept: g.Kept}
	for _, s := range g.Behind {
		out.Behind = append(out.Behind, newSlotBehind(s))
	}
	return out
}

// Slots returns how many slots there are.
func (l *Local) Slots(ctx context.Context) (SlotsChange, error) {
	g, err := admin.New(l.store).Growth(ctx)
	return newSlotsChange(g), err
}

// SetSlots changes the number of slots.
func (l *Local) SetSlots(ctx context.Context, n int) (SlotsChange, error) {
	noted := admin.Auditing(ctx, admin.AuditEntry{What: "slots", Detail: admin.AuditDetail(map[string]any{"slots": n})})
	g, err := admin.New(l.store).SetSlots(noted, n)
	switch {
	case errors.Is(err, admin.ErrSlots):
		return SlotsChange{}, wrong("slots", strconv.Itoa(n), fmt.Sprintf("is not 1 to %d: write a number that is", admin.MostSlots))
	case errors.Is(err, admin.ErrOlderServices):
		return SlotsChange{}, wrong("slots", strconv.Itoa(n), "cannot be changed: "+admin.ErrOlderServices.Error())
	}
	return newSlotsChange(g), err
}

// OfShard names a database.
type OfShard struct {
	Shard string `query:"shard" doc:"number of the database; needed where there are several" pattern:"^[0-9]{1,3}$"`
}

func (in OfShard) number() int {
	if in.Shard == "" {
		return AnyShard
	}
	n, _ := strconv.Atoi(in.Shard) // by its pattern
	return n
}

func shardOf(number int) OfShard {
	if number == AnyShard {
		return OfShard{}
	}
	return OfShard{strconv.Itoa(number)}
}

type slotsInput struct{ OfShard }

func (*slotsInput) scope(access.Caller) error { return nil }

type setSlotsInput struct {
	OfShard
	Body struct {
		Slots int `json:"slots" doc:"1 to 4096"`
	}
}

func (*setSlotsInput) scope(c access.Caller) error { return ofAllTopics(c, "slots are of all topics") }

func (s *server) showSlots(ctx context.Context, in *slotsInput) (SlotsChange, error) {
	out, err := s.fleet.Slots(ctx, in.number())
	for i, b := range out.Behind {
		if b.Owner != "" && !access.From(ctx).AllTopics() {
			out.Behind[i].Owner = "a dispatcher"
		}
	}
	return out, err
}

func (s *server) setSlots(ctx context.Context, in *setSlotsInput) (SlotsChange, error) {
	return s.fleet.SetSlots(ctx, in.number(), in.Body.Slots)
}

// Slots returns how many slots a database has. shard may be AnyShard where there is only one.
func (c *Client) Slots(ctx context.Context, shard int) (SlotsChange, error) {
	return get[SlotsChange](ctx, c, "/slots", shardOf(shard), nil)
}

// SetSlots changes the number of slots of a database.
func (c *Client) SetSlots(ctx context.Context, shard, n int) (SlotsChange, error) {
	return do[SlotsChange](ctx, c, http.MethodPut, "/slots"+parameters(shardOf(shard)), map[string]int{"slots": n}, nil)
}
