package api

import (
	"context"
	"errors"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/store/look"
)

// Cluster is what runs, and who has which slots.
type Cluster struct {
	Services []Service `json:"services"            doc:"processes that have said within 15 s that they are alive"`
	Slots    []Slot    `json:"slots"`
	Lag      []Lag     `json:"lag"                 doc:"of the partitions of intake and reports"`
	LagError string    `json:"lag_error,omitempty" doc:"why lag is not known"`
}

// Service is a running process.
type Service struct {
	ID      string `json:"id"`
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
	Slot    int    `json:"slot"`
	Owner   string `json:"owner"   doc:"the dispatcher's member name; empty: free"`
	Alive   bool   `json:"alive"   doc:"whether the owner is one of the services"`
	Epoch   int64  `json:"epoch"`
	Claimed int64  `json:"claimed" doc:"Unix ms: every task up to it is the owner's"`
	Done    int64  `json:"done"    doc:"Unix ms: every task up to it is settled"`
}

// Lag is how far a partition of an intake or of the reports is stored.
type Lag struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	State     string `json:"state"            doc:"as notyet intake status says it: ok, new, diverged, …"`
	Detail    string `json:"detail,omitempty"`
	Next      int64  `json:"next_offset"      doc:"the first offset that is not stored; -1: none is"`
	End       int64  `json:"log_end"          doc:"-1: not known"`
	Lag       int64  `json:"lag"              doc:"records that are not stored yet; -1: not known"`
}

// lagTimeout limits the look at Kafka. Without it, the rest is answered.
const lagTimeout = 3 * time.Second

// Cluster returns what runs.
func (l *Local) Cluster(ctx context.Context) (Cluster, error) {
	out := Cluster{Services: []Service{}, Slots: []Slot{}, Lag: []Lag{}}
	err := l.listing(ctx, func(ctx context.Context) error {
		services, err := look.New(l.store).Services(ctx)
		if err != nil {
			return err
		}
		slots, err := l.store.Slots(ctx)
		if err != nil {
			return err
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
			if s.GivenUp() {
				continue
			}
			out.Slots = append(out.Slots, Slot{s.Slot, s.Owner, alive[s.Owner], s.Epoch, s.Claimed, s.Done})
		}
		lag, err := l.lag(ctx)
		if err != nil {
			out.LagError = err.Error()
		}
		out.Lag = append(out.Lag, lag...)
		return nil
	})
	return out, err
}

func (l *Local) lag(ctx context.Context) ([]Lag, error) {
	if l.Lag == nil {
		return nil, errors.New("no connection to Kafka: set kafka.brokers")
	}
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	return l.Lag(ctx)
}

// Cluster returns what runs.
func (c *Client) Cluster(ctx context.Context) (Cluster, error) {
	return get[Cluster](ctx, c, "/cluster", nil, nil)
}

type clusterInput struct{}

func (in *clusterInput) scope(access.Caller) error { return nil } // the handler removes other callers' intakes

func (s *server) cluster() {
	register(s, access.Read, "show-cluster", http.MethodGet, "/api/v1/cluster", "Show the services that are alive, the slots with their owners, and the lag of the intake", s.showCluster)
}

func (s *server) showCluster(ctx ctxType, _ *clusterInput) (*body[Cluster], error) {
	out, err := s.local.Cluster(ctx)
	caller := access.From(ctx)
	if out.LagError != "" && !caller.AllTopics() {
		out.LagError = "the intake cannot be looked at" // the reason may name others' intakes
	}
	out.Lag = slices.DeleteFunc(out.Lag, func(l Lag) bool { return !s.shows(caller, l.Topic) })
	return &body[Cluster]{out}, problem(err)
}

// shows reports whether a caller may know of a topic that is read. Intakes are known to those who may
// use their targets: often they have the names of teams. An intake without targets of its own is
// everybody's.
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
