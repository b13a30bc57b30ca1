package api

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/internal/access"
)

type server struct {
	huma      huma.API
	fleet     *Fleet
	publisher *Publisher
	intakes   func() []Intake
	answers   *Answers
	cursors   *cursors
	*memory
}

type option func(*huma.Operation)

// ends is of an operation that refuses with 409 what has ended.
func ends(op *huma.Operation) { op.Errors = append(op.Errors, http.StatusConflict) }

func accepted(op *huma.Operation) { op.DefaultStatus = http.StatusAccepted }

// scoped is an input with known topics. scope refuses a caller without rights to them.
type scoped[I any] interface {
	*I
	scope(c access.Caller) error
}

// Named is the topic and the id in the path of an operation.
type Named struct {
	Topic string `path:"topic"`
	ID    string `path:"id"`
}

func (in *Named) scope(c access.Caller) error { return withinTopics(c, in.Topic) }

// nothing is the input of an operation without a topic, or with its own choice of shown topics.
type nothing struct{}

func (*nothing) scope(access.Caller) error { return nil }

// valuable is a response with task content (key, value and headers), hidden from the role read.
type valuable interface{ withhold() }

type body[T any] struct{ Body T }

// register adds an operation for callers with the role. Its handler returns the body of the
// response. Values are removed for callers without the right to read them.
func register[I, O any, P scoped[I]](s *server, role access.Role, id, method, path, summary string, handler func(context.Context, *I) (O, error), options ...option) {
	registerOutput[I, body[O], P](s, role, id, method, path, summary, func(ctx context.Context, in *I) (*body[O], error) {
		out, err := handler(ctx, in)
		if v, ok := any(&out).(valuable); ok && !access.From(ctx).May(access.Operate) {
			v.withhold()
		}
		return &body[O]{out}, err
	}, options...)
}

// registerOutput is register for a handler that returns a whole response, without values. A handler
// gets only inputs within the caller's topics.
func registerOutput[I, O any, P scoped[I]](s *server, role access.Role, id, method, path, summary string, handler func(context.Context, *I) (*O, error), options ...option) {
	op := huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, Errors: []int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity,
		http.StatusMethodNotAllowed, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}}
	if _, hasBody := reflect.TypeFor[I]().FieldByName("Body"); hasBody {
		op.Errors = append(op.Errors, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	op.Description = "Needs the role " + role.String() + "."
	for _, o := range options {
		o(&op)
	}
	op.Middlewares = append(huma.Middlewares{requireRole(s.huma, role), s.strictParameters, waits, s.budget(op.MaxBodyBytes), s.actor}, op.Middlewares...)
	huma.Register(s.huma, op, func(ctx context.Context, in *I) (*O, error) {
		if err := P(in).scope(access.From(ctx)); err != nil {
			return nil, problem(err)
		}
		out, err := handler(ctx, in)
		return out, problem(err)
	})
}
