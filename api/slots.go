package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/store"
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
}

func newSlotsChange(g store.Growth) SlotsChange {
	return SlotsChange{Slots: g.Base, Target: g.Target, Next: g.Next, Changes: !g.Settled(), Leaving: g.Leaving, Split: g.Split, Moved: g.Whole, Kept: g.Kept}
}

// Slots returns how many slots there are.
func (l *Local) Slots(ctx context.Context) (SlotsChange, error) {
	g, err := l.store.Growth(ctx)
	return newSlotsChange(g), err
}

// SetSlots changes the number of slots.
func (l *Local) SetSlots(ctx context.Context, n int) (SlotsChange, error) {
	noted := store.Auditing(ctx, store.AuditEntry{What: "slots", Detail: store.AuditDetail(map[string]any{"slots": n})})
	g, err := l.store.SetSlots(noted, n)
	switch {
	case errors.Is(err, store.ErrSlots):
		return SlotsChange{}, &deadletter.FieldError{Field: "slots", Value: strconv.Itoa(n), Problem: fmt.Sprintf("is not 1 to %d: write a number that is", store.MostSlots)}
	case errors.Is(err, store.ErrOlderServices):
		return SlotsChange{}, &deadletter.FieldError{Field: "slots", Value: strconv.Itoa(n), Problem: "cannot be changed: " + store.ErrOlderServices.Error()}
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
	var out SlotsChange
	err := c.get(ctx, "/slots", nil, &out, nil)
	return out, err
}

// SetSlots changes the number of slots.
func (c *Client) SetSlots(ctx context.Context, n int) (SlotsChange, error) {
	var data bytes.Buffer
	if err := json.NewEncoder(&data).Encode(map[string]int{"slots": n}); err != nil {
		return SlotsChange{}, fmt.Errorf("encoding the request: %w", err)
	}
	var out SlotsChange
	err := c.do(ctx, http.MethodPut, "/slots", data.Bytes(), &out, nil)
	return out, err
}
