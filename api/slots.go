package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/task"
)

// SlotsChange is how many slots there are, and how far a change of their number has come, in JSON.
type SlotsChange struct {
	Slots   int  `json:"slots"             doc:"how many there are; while that changes, how many there were"`
	Target  int  `json:"target"            doc:"how many there are to be"`
	Next    int  `json:"next,omitempty"    doc:"how many there are to be after that; absent: as many as target"`
	Changes bool `json:"changing"          doc:"the number changes"`
	Leaving int  `json:"leaving,omitempty" doc:"slots of which tasks move"`
	Split   int  `json:"split,omitempty"   doc:"those of them whose keys are spread over the new number"`
	Moved   int  `json:"moved,omitempty"   doc:"those of them whose tasks have all moved"`
	Kept    int  `json:"kept,omitempty"    doc:"slots that were given up, of which ended tasks are remembered"`
	// Behind are those of the leaving ones whose tasks have not all moved.
	Behind []SlotBehind `json:"behind,omitempty" doc:"those of the leaving ones whose tasks have not all moved"`
}

// SlotBehind is a slot that a change waits for.
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
		return SlotsChange{}, &deadletter.FieldError{Field: "slots", Value: strconv.Itoa(n), Problem: fmt.Sprintf("is not 1 to %d: write a number that is", admin.MostSlots)}
	case errors.Is(err, admin.ErrOlderServices):
		return SlotsChange{}, &deadletter.FieldError{Field: "slots", Value: strconv.Itoa(n), Problem: "cannot be changed: " + admin.ErrOlderServices.Error()}
	}
	return newSlotsChange(g), err
}

type showSlotsInput struct{}

func (*showSlotsInput) scope(access.Caller) error { return nil } // they say nothing about topics

type setSlotsInput struct {
	Body struct {
		Slots int `json:"slots" doc:"1 to 4096"`
	}
}

func (*setSlotsInput) scope(c access.Caller) error {
	if !c.AllTopics() {
		return huma.Error403Forbidden(fmt.Sprintf("the token %q is for some topics only, and slots are of all topics", c.Name))
	}
	return nil
}

func (s *server) slots() {
	register(s, access.Read, "show-slots", http.MethodGet, "/api/v1/slots", "Show how many slots there are, and how far a change of their number has come", s.showSlots)
	register(s, access.Admin, "set-slots", http.MethodPut, "/api/v1/slots", "Change the number of slots while the services run; while it changes already, that change comes first", s.setSlots)
}

func (s *server) showSlots(ctx ctxType, _ *showSlotsInput) (*body[SlotsChange], error) {
	out, err := s.local.Slots(ctx)
	return &body[SlotsChange]{out}, problem(err)
}

func (s *server) setSlots(ctx ctxType, in *setSlotsInput) (*body[SlotsChange], error) {
	out, err := s.local.SetSlots(ctx, in.Body.Slots)
	return &body[SlotsChange]{out}, problem(err)
}

// Slots returns how many slots there are.
func (c *Client) Slots(ctx context.Context) (SlotsChange, error) {
	return get[SlotsChange](ctx, c, "/slots", nil, nil)
}

// SetSlots changes the number of slots.
func (c *Client) SetSlots(ctx context.Context, n int) (SlotsChange, error) {
	return do[SlotsChange](ctx, c, http.MethodPut, "/slots", map[string]int{"slots": n}, nil)
}
