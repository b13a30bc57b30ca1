package main

import (
	"slices"
	"strings"
)

// This file says who may do what, from the public contract alone (docs/operations.md and docs/security.md): it calls
// nothing of the product, which TestAccess judges by it.

// tenants own the topics whose names begin so, and a caller for one tenant has these topics. Nobody owns the others.
var tenants = []string{"shop", "bank"}

// tenantOf a topic or origin; "": nobody's.
func tenantOf(topic string) string {
	for _, tenant := range tenants {
		if strings.HasPrefix(topic, tenant+".") || topic == "https://"+tenant+".test" {
			return tenant
		}
	}
	return ""
}

// patterns are a tenant's topics as the file of tokens has them.
func patterns(tenant string) []string {
	if tenant == "" {
		return []string{"*"}
	}
	return []string{tenant + ".*", "https://" + tenant + ".test"}
}

var roles = []string{"", "read", "operate", "admin"}

// identity is how somebody comes, and what the contract allows.
type identity struct {
	name          string
	authorization string // the header
	session       string // the cookie
	// role is "" for who is refused everywhere. tenant is "" for every topic.
	role, tenant string
	// signedIn: the role counts for pages alone, since the API takes no cookie.
	signedIn bool
}

// may reports whether it has the role for the operation, wherever that is.
func (i identity) may(o operation) bool {
	return i.role != "" && (o.page || !i.signedIn) && slices.Index(roles, i.role) >= slices.Index(roles, o.role)
}

func (i identity) sees(topic string) bool { return i.tenant == "" || tenantOf(topic) == i.tenant }

// operation is a path and what it needs.
type operation struct {
	role, method, path, body string
	// about says whom it is about: "topic", or without a topic: "all" (refused to who is for one tenant), "filtered" (shows
	// a caller's own), "none" (says nothing about topics) and "letter" (hidden, if it is another's).
	about   string
	changes bool // something of the topic
	page    bool // of the console
}

var operations = []operation{
	{"read", "GET", "/api/v1/tasks?topic={topic}", "", "topic", false, false},
	{"read", "GET", "/api/v1/tasks?tag=vip&topic={topic}", "", "topic", false, false},
	{"read", "GET", "/api/v1/tasks", "", "filtered", false, false},
	{"read", "GET", "/api/v1/tasks?tag=vip", "", "filtered", false, false},
	{"read", "GET", "/api/v1/tasks?id_prefix=a", "", "filtered", false, false},
	{"operate", "GET", "/api/v1/tasks?topic={topic}&content=true", "", "topic", false, false},
	{"operate", "GET", "/api/v1/tasks?content=true", "", "filtered", false, false},
	{"read", "GET", "/api/v1/tasks/{topic}/{id}", "", "topic", false, false},
	{"read", "GET", "/api/v1/task?topic={topic}&id={id}", "", "topic", false, false},
	{"operate", "POST", "/api/v1/tasks", `{"topic":"{topic}","id":"{id}","delay":"1000h","value":"SECRET-{topic}"}`, "topic", true, false},
	{"operate", "POST", "/api/v1/tasks/cancel", `{"topic":"{topic}","id":"{id}"}`, "topic", true, false},
	{"operate", "POST", "/api/v1/tasks/fire", `{"topic":"{topic}","id":"{id}"}`, "topic", true, false},
	{"operate", "POST", "/api/v1/tasks/stop", `{"topic":"{topic}","id":"{id}"}`, "topic", true, false},
	{"operate", "POST", "/api/v1/tasks/{topic}/{id}/cancel", "", "topic", true, false},
	{"operate", "POST", "/api/v1/tasks/{topic}/{id}/stop", "", "topic", true, false},
	{"operate", "POST", "/api/v1/tasks/{topic}/{id}/fire", "", "topic", true, false},
	{"operate", "POST", "/api/v1/tasks/cancel-many", `{"topic":"{topic}"}`, "topic", true, false},
	{"operate", "POST", "/api/v1/tasks/cancel-many", `{"topic":"{topic}","tag":"vip","dry_run":true}`, "topic", false, false},
	{"operate", "POST", "/api/v1/tasks/cancel-many", `{"tag":"vip","dry_run":true}`, "all", false, false},
	{"operate", "POST", "/api/v1/tasks/cancel-many", `{"id_prefix":"a","dry_run":true}`, "all", false, false},
	{"read", "GET", "/api/v1/forecast?topic={topic}", "", "topic", false, false},
	{"read", "GET", "/api/v1/forecast", "", "all", false, false},
	{"read", "GET", "/api/v1/forecast?own=true", "", "filtered", false, false},
	{"read", "GET", "/api/v1/deadletters?topic={topic}", "", "topic", false, false},
	{"read", "GET", "/api/v1/deadletters", "", "filtered", false, false},
	{"read", "GET", "/api/v1/deadletters?tag=vip", "", "filtered", false, false},
	{"operate", "GET", "/api/v1/deadletters?topic={topic}&content=true", "", "topic", false, false},
	{"operate", "GET", "/api/v1/deadletters?content=true", "", "filtered", false, false},
	{"read", "GET", "/api/v1/deadletters/count?topic={topic}", "", "topic", false, false},
	{"read", "GET", "/api/v1/deadletters/count", "", "all", false, false},
	{"read", "GET", "/api/v1/deadletters/{letter}", "", "letter", false, false},
	{"operate", "POST", "/api/v1/deadletters/replay", `{"topic":"{topic}"}`, "topic", true, false},
	{"operate", "POST", "/api/v1/deadletters/replay", `{"tag":"vip","dry_run":true}`, "all", false, false},
	{"operate", "POST", "/api/v1/deadletters/replay", `{"ids":[{letter}],"dry_run":true}`, "all", false, false},
	{"operate", "POST", "/api/v1/deadletters/{letter}/replay", `{"value":"x"}`, "letter", true, false},
	{"admin", "POST", "/api/v1/deadletters/purge", `{"topic":"{topic}"}`, "topic", true, false},
	{"admin", "POST", "/api/v1/deadletters/purge", `{"ids":[999999]}`, "all", false, false},
	{"read", "GET", "/api/v1/cluster", "", "none", false, false},
	{"read", "GET", "/api/v1/slots", "", "none", false, false},
	{"admin", "PUT", "/api/v1/slots", `{"slots":{slots}}`, "all", false, false},
	{"admin", "GET", "/api/v1/shards", "", "all", false, false},
	{"admin", "POST", "/api/v1/shards/moves", `{"shard":0,"pattern":"{topic}"}`, "all", false, false},
	{"read", "GET", "/api/v1/overview", "", "all", false, false},
	{"read", "GET", "/api/v1/overview?own=true", "", "filtered", false, false},
	{"read", "GET", "/api/v1/overview?topic={topic}", "", "topic", false, false},
	{"read", "GET", "/api/v1/overview?own=true&topic={topic}", "", "topic", false, false},
	{"read", "GET", "/api/v1/audit?topic={topic}", "", "topic", false, false},
	{"read", "GET", "/api/v1/audit", "", "filtered", false, false},
	{"operate", "POST", "/api/v1/audit", `{"what":"cancel","topic":"{topic}","task":"{id}"}`, "topic", true, false},
	{"read", "GET", "/api/v1/timers?topic={topic}", "", "topic", false, false},
	{"read", "GET", "/api/v1/timers", "", "filtered", false, false},
	{"read", "GET", "/api/v1/timers/{topic}/{id}", "", "topic", false, false},
	{"read", "GET", "/api/v1/timers/{topic}/{id}/audit", "", "topic", false, false},
	{"operate", "PUT", "/api/v1/timers/{topic}/{id}", `{"every":"1000h","value":"SECRET-{topic}"}`, "topic", true, false},
	{"operate", "DELETE", "/api/v1/timers/{topic}/{id}", "", "topic", true, false},
	{"operate", "POST", "/api/v1/timers/{topic}/{id}/enable", "", "topic", true, false},
	{"operate", "POST", "/api/v1/timers/{topic}/{id}/disable", "", "topic", true, false},
	{"operate", "POST", "/api/v1/timers/{topic}/{id}/run", "", "topic", true, false},
	{"operate", "POST", "/api/v1/timers/{topic}/{id}/backfill", `{"from":"2026-01-01T00:00:00Z","to":"2026-03-01T00:00:00Z"}`, "topic", true, false},
	{"read", "POST", "/api/v1/timers/preview", `{"cron":"@daily"}`, "none", false, false},
	{"read", "GET", "/api/v1/operations", "", "filtered", false, false},
	{"read", "GET", "/api/v1/operations/{letter}", "", "none", false, false},
	{"operate", "DELETE", "/api/v1/operations/{operation}", "", "none", false, false},
	{"read", "GET", "/api/v1/targets", "", "filtered", false, false},
	{"operate", "PUT", "/api/v1/targets/{topic}", `{"paused":true}`, "topic", true, false},
	{"operate", "PATCH", "/api/v1/targets/{topic}", `{"rate":5}`, "topic", true, false},

	{"read", "GET", "/", "", "none", false, true},
	{"read", "GET", "/?topic={topic}", "", "none", false, true},
	{"read", "GET", "/?tag=vip", "", "filtered", false, true},
	{"read", "GET", "/find", "", "none", false, true},
	{"read", "GET", "/find?tag=vip", "", "filtered", false, true},
	{"read", "GET", "/find?topic={topic}", "", "topic", false, true},
	{"read", "GET", "/find?q={id}", "", "filtered", false, true},
	{"operate", "POST", "/find", "confirmed=yes&do=cancel&topic={topic}&q={id}", "topic", true, true},
	{"operate", "POST", "/find", "confirmed=yes&do=cancel&tag=nobodys", "all", false, true},
	{"read", "GET", "/task?topic={topic}&id={id}", "", "topic", false, true},
	{"operate", "POST", "/task", "confirmed=yes&do=cancel&topic={topic}&id={id}", "topic", true, true},
	{"operate", "POST", "/task", "confirmed=yes&do=fire&topic={topic}&id={id}", "topic", true, true},
	{"operate", "POST", "/task", "confirmed=yes&do=stop&topic={topic}&id={id}", "topic", true, true},
	{"operate", "POST", "/task", "confirmed=yes&do=move&at=2028-01-01T00:00:00Z&topic={topic}&id={id}", "topic", true, true},
	{"read", "GET", "/targets", "", "filtered", false, true},
	{"operate", "POST", "/targets", "confirmed=yes&do=pause&topic={topic}", "topic", true, true},
	{"read", "GET", "/timers", "", "filtered", false, true},
	{"read", "GET", "/timers?topic={topic}", "", "topic", false, true},
	{"read", "GET", "/timer?topic={topic}&id={id}", "", "topic", false, true},
	{"operate", "POST", "/timer", "confirmed=yes&do=delete&topic={topic}&id={id}", "topic", true, true},
	{"operate", "POST", "/timer", "confirmed=yes&do=set&every=1000h&value=SECRET-{topic}&topic={topic}&id={id}", "topic", true, true},
	{"operate", "POST", "/timer", "confirmed=yes&do=run&topic={topic}&id={id}", "topic", true, true},
	{"operate", "POST", "/timer", "confirmed=yes&do=backfill&from=2026-01-01T00:00:00Z&to=2026-03-01T00:00:00Z&topic={topic}&id={id}", "topic", true, true},
	{"read", "POST", "/preview", "cron=@daily", "none", false, true},
	{"read", "GET", "/deadletters", "", "filtered", false, true},
	{"read", "GET", "/deadletters?topic={topic}", "", "topic", false, true},
	{"read", "GET", "/deadletter?id={letter}", "", "letter", false, true},
	{"operate", "POST", "/deadletter", "confirmed=yes&id={letter}&value=x", "letter", true, true},
	{"operate", "POST", "/deadletters", "confirmed=yes&do=replay&topic={topic}", "topic", true, true},
	{"admin", "POST", "/deadletters", "confirmed=yes&do=purge&topic={topic}", "topic", true, true},
	{"read", "GET", "/operations", "", "filtered", false, true},
	{"read", "GET", "/operation?id={letter}", "", "none", false, true},
	{"operate", "POST", "/operations", "do=stop&id={operation}", "none", false, true},
	{"read", "GET", "/cluster", "", "none", false, true},
	{"read", "GET", "/audit", "", "filtered", false, true},
	{"read", "GET", "/audit?topic={topic}", "", "topic", false, true},
}

// verdict is what the contract demands of an answer.
type verdict int

const (
	served  verdict = iota // or a mistake of the request, or a conflict: no refusal
	refused                // 403
	hidden                 // 404, as if it did not exist
	unknown                // 401, or of a page without a token the way to the sign-in
)

func judge(i identity, o operation, topic string) verdict {
	switch {
	case i.role == "", i.signedIn && !o.page:
		return unknown
	case !i.may(o):
		return refused
	case o.about == "all" && i.tenant != "":
		return refused
	case o.about == "topic" && !i.sees(topic):
		return refused
	case o.about == "letter" && !i.sees(topic):
		return hidden
	}
	return served
}
