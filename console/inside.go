package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/notyet/notyet/api"
)

// inside calls the API of this process without a network. The context carries the caller, admitted
// by the guard, so that the API decides about the caller's rights.
type inside struct{ api http.Handler }

// Problem is a problem document of the API (RFC 9457).
type Problem struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Errors []struct {
		Location string `json:"location"`
		Message  string `json:"message"`
	} `json:"errors"`
	Field string `json:"-"` // of the form, that the detail begins with
}

// Error is the problem in one line.
func (p *Problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Title, p.Detail) }

func asProblem(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	return &Problem{Status: http.StatusInternalServerError, Title: "The page cannot be made", Detail: err.Error()}
}

// get leaves out empty values: fields of a form that were not filled in.
func (in *inside) get(ctx context.Context, path string, q url.Values, into any) error {
	maps.DeleteFunc(q, func(_ string, values []string) bool { return values[0] == "" })
	_, err := in.call(ctx, http.MethodGet, path+"?"+q.Encode(), nil, into)
	return err
}

// call returns the status and decodes the answer. A problem in the answer is the error.
func (in *inside) call(ctx context.Context, method, path string, request, into any) (status int, err error) {
	data := []byte(nil)
	if request != nil {
		if data, err = api.Encode(request); err != nil {
			return 0, &Problem{Status: http.StatusUnprocessableEntity, Title: http.StatusText(http.StatusUnprocessableEntity), Detail: err.Error()}
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "/api/v1"+path, bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Length", strconv.Itoa(len(data))) // otherwise it counts as the largest
	req.RequestURI = req.URL.RequestURI()
	out := &answer{status: http.StatusOK, header: http.Header{}}
	in.api.ServeHTTP(out, req)
	if out.status >= 300 {
		p := &Problem{Status: out.status, Title: http.StatusText(out.status)}
		_ = json.Unmarshal(out.body.Bytes(), p)
		return out.status, p
	}
	if into == nil || out.body.Len() == 0 {
		return out.status, nil
	}
	if err := json.Unmarshal(out.body.Bytes(), into); err != nil {
		return out.status, err
	}
	var partial api.Partial
	if json.Unmarshal(out.body.Bytes(), &partial) == nil { // otherwise missing is another field
		noteMissing(ctx, partial.Missing)
	}
	return out.status, nil
}

type missingKey struct{}

// noteMissing notes databases that do not answer, for the page.
func noteMissing(ctx context.Context, numbers []int) {
	if noted, ok := ctx.Value(missingKey{}).(*[]int); ok {
		*noted = append(*noted, numbers...)
	}
}

type answer struct {
	status int
	header http.Header
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
