package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
)

// problem turns an error into its problem+json.
func problem(err error) error {
	var rejection *schemas.Rejection
	var fieldError *deadletter.FieldError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &rejection):
		return bad(field(rejection.Header), rejection.Value, rejection.Problem+": "+rejection.Fix)
	case errors.As(err, &fieldError):
		return bad(fieldError.Field, fieldError.Value, fieldError.Problem)
	case errors.Is(err, store.ErrNotFound), errors.Is(err, deadletter.ErrNotFound):
		return huma.Error404NotFound(err.Error())
	case errors.Is(err, ErrUnknownOutcome), errors.Is(err, context.DeadlineExceeded):
		return huma.Error504GatewayTimeout(err.Error())
	case errors.Is(err, ErrBusy):
		return huma.Error503ServiceUnavailable(err.Error())
	}
	return huma.NewError(http.StatusServiceUnavailable, err.Error())
}

// bad is a 422 about one field of the body.
func bad(field, value, message string) error {
	detail := &huma.ErrorDetail{Location: "body." + field, Message: message}
	if value != "" {
		detail.Value = value
	}
	return huma.Error422UnprocessableEntity(field+" "+message, detail)
}
