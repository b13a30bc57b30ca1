package console

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/notyet/notyet/api"
)

type auditData struct {
	Who, What, Topic, ID string
	Entries              []api.AuditEntry
	Next                 string
}

func (c *Console) audit(r *http.Request) (view, error) {
	trim := func(name string) string { return strings.TrimSpace(r.FormValue(name)) }
	d := &auditData{Who: trim("who"), What: trim("what"), Topic: trim("topic"), ID: trim("id")}
	q := url.Values{"limit": {"100"}, "who": {d.Who}, "what": {d.What}, "topic": {d.Topic}, "id": {d.ID}, "cursor": {r.FormValue("cursor")}}
	var page api.AuditLog
	err := c.inside.get(r.Context(), "/audit", q, &page)
	d.Entries, d.Next = page.Entries, next(r, "/audit", page.Cursor, "who", "what", "topic", "id")
	return view{page: "audit", title: "Audit", data: d}, err
}
