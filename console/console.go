// Package console is the web console of every service. Requests of an operator's browser go in;
// pages come out. Everything shown or changed goes through the API of the same process, with the
// caller's own role and topics, so that nothing is decided twice.
//
// The pages are whole without scripts. The one script says how old a page is, refreshes live pages
// in place, asks in dialogs, has keys, and shows what is understood during typing. Nothing is
// loaded from elsewhere, and the pages' policy (Content-Security-Policy) forbids it.
package console

import (
	"context"
	"embed"
	"net/http"
	"slices"
	"strings"

	"github.com/notyet/notyet/internal/access"
)

//go:embed static
var static embed.FS

// Console serves the pages.
type Console struct {
	inside  *inside
	version string
}

// Mount adds the pages to mux, with the API too and behind the guard.
func Mount(mux *http.ServeMux, version string) {
	c := &Console{inside: &inside{api: mux}, version: version}
	for pattern, h := range map[string]handler{
		"GET /{$}":          c.overview,
		"GET /find":         c.find,
		"POST /find":        c.changeMany,
		"GET /task":         c.task,
		"POST /task":        c.changeTask,
		"GET /targets":      c.targets,
		"POST /targets":     c.changeTarget,
		"GET /timers":       c.timers,
		"GET /timer":        c.timer,
		"POST /timer":       c.changeTimer,
		"POST /preview":     c.preview,
		"POST /when":        when,
		"POST /zone":        chooseZone,
		"GET /deadletters":  c.letters,
		"GET /deadletter":   c.letter,
		"POST /deadletter":  c.editLetter,
		"POST /deadletters": c.changeLetters,
		"GET /operations":   c.operations,
		"GET /operation":    c.operation,
		"POST /operations":  c.stopOperation,
		"GET /cluster":      c.cluster,
		"GET /audit":        c.audit,

		"GET /runbooks/{name}": c.runbook,
	} {
		mux.Handle(pattern, c.page(h))
	}
}

// handler makes one page. An error has a page of its own.
type handler func(r *http.Request) (view, error)

// isPage reports whether a path is the console's. The others are the API's and the profiles'.
func isPage(path string) bool {
	others := []string{"/api/", "/openapi", "/debug/"}
	return !slices.ContainsFunc(others, func(other string) bool { return strings.HasPrefix(path, other) })
}

const maxForm = 1 << 20

func (c *Console) page(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		var missing []int
		r = r.WithContext(context.WithValue(r.Context(), missingKey{}, &missing))
		var v view
		var err error
		if err = r.ParseForm(); err != nil {
			err = &Problem{Status: http.StatusBadRequest, Title: "The form cannot be read", Detail: err.Error()}
		} else {
			v, err = h(r)
		}
		status := http.StatusOK
		if err != nil {
			p := asProblem(err)
			status, v = p.Status, view{page: "problem", title: p.Title, data: p}
		}
		slices.Sort(missing)
		v.missing = slices.Compact(missing)
		c.render(w, r, status, v)
	})
}

func needs(r *http.Request, role access.Role) error {
	if access.From(r.Context()).May(role) {
		return nil
	}
	return &Problem{Status: http.StatusForbidden, Title: "Not allowed", Detail: "your role does not allow this: it needs the role " + role.String()}
}
