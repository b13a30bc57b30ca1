package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/internal/access"
)

type ctxType = context.Context

type server struct {
	huma      huma.API
	local     *Local
	publisher *Publisher
	intakes   func() []Intake
	answers   *Answers
	auditor   *auditor
	bodies    *turns // bytes of request bodies in memory
	unsent    *turns // bytes of answers in memory
	cursors   *cursors
}

type body[T any] struct{ Body T }

type option func(*huma.Operation)

func accepted(op *huma.Operation) { op.DefaultStatus = http.StatusAccepted }

func noContent(op *huma.Operation) { op.DefaultStatus = http.StatusNoContent }

// scoped is an input that knows its topics. scope refuses a caller who may not see or change them.
type scoped[I any] interface {
	*I
	scope(c access.Caller) error
}

// register adds an operation for callers with the role. Its handler gets only inputs within the
// caller's topics. The values in its output are removed if the caller may not read them.
func register[I, O any, P scoped[I]](s *server, role access.Role, id, method, path, summary string, handler func(ctxType, *I) (*O, error), options ...option) {
	op := huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, Errors: []int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity,
		http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}}
	op.Description = "Needs the role " + role.String() + "."
	for _, o := range options {
		o(&op)
	}
	op.Middlewares = append(huma.Middlewares{s.require(role), waits, s.budget(op.MaxBodyBytes), actor}, op.Middlewares...)
	huma.Register(s.huma, op, func(ctx ctxType, in *I) (*O, error) {
		caller := access.From(ctx)
		if err := P(in).scope(caller); err != nil {
			return nil, err
		}
		out, err := handler(ctx, in)
		if err != nil {
			return nil, err
		}
		if v, ok := any(out).(valuable); ok && !caller.May(access.Operate) {
			v.withhold()
		}
		return out, nil
	})
}

// valuable is a response with task content, which the role read may not see.
type valuable interface{ withhold() }

// withhold removes keys, values and headers, because all of them belong to the business.
func (b *body[T]) withhold() {
	if v, ok := any(&b.Body).(valuable); ok {
		v.withhold()
	}
}
