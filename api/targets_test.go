package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/store/admin"
)

func (w *world) target(method, topic, change string) (int, TargetPolicy, string) {
	w.t.Helper()
	code, answer := w.do(method, "/api/v1/targets/"+topic, change)
	var p TargetPolicy
	if code == 200 {
		require.NoError(w.t, json.Unmarshal([]byte(answer), &p))
		require.InDelta(w.t, time.Now().UnixMilli(), p.Changed, 60_000)
		p.Changed = 0
	}
	return code, p, answer
}

func TestTargets(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		method, topic, change string
		want                  TargetPolicy
	}{
		{"PUT", "orders", `{"paused":true}`, TargetPolicy{Topic: "orders", Paused: true}},
		{"PUT", "orders", `{"rate":10,"max_in_flight":3}`, TargetPolicy{Topic: "orders", Rate: 10, MaxInFlight: 3}},
		{"PATCH", "orders", `{"paused":true}`, TargetPolicy{Topic: "orders", Paused: true, Rate: 10, MaxInFlight: 3}},
		{"PATCH", "orders", `{"rate":0}`, TargetPolicy{Topic: "orders", Paused: true, MaxInFlight: 3}},
		{"PUT", "orders", `{"rate":0.5}`, TargetPolicy{Topic: "orders", Rate: 0.5}},
		{"PUT", "orders", `{"paused":true,"until":32503680000000,"rate":0.5}`, TargetPolicy{Topic: "orders", Paused: true, Until: 32503680000000, Rate: 0.5}},
		{"PATCH", "orders", `{"max_in_flight":2}`, TargetPolicy{Topic: "orders", Paused: true, Until: 32503680000000, Rate: 0.5, MaxInFlight: 2}},
		{"PATCH", "orders", `{"paused":true}`, TargetPolicy{Topic: "orders", Paused: true, Rate: 0.5, MaxInFlight: 2}},
		{"PATCH", "orders", `{"paused":true,"until":"3000-01-01T01:00:00+01:00"}`, TargetPolicy{Topic: "orders", Paused: true, Until: 32503680000000, Rate: 0.5, MaxInFlight: 2}},
		{"PATCH", "orders", `{"paused":false,"max_in_flight":0}`, TargetPolicy{Topic: "orders", Rate: 0.5}},
		{"PUT", "https%3A%2F%2FShop.example%3A8443", `{"paused":true}`, TargetPolicy{Topic: "https://shop.example:8443", Paused: true}},
		{"PUT", "bills", `{}`, TargetPolicy{Topic: "bills"}},
	} {
		code, got, answer := w.target(c.method, c.topic, c.change)
		require.Equal(t, 200, code, answer)
		require.Equal(t, c.want, got)
	}
	for _, c := range [][3]string{
		{"or%20ders", `{"paused":true}`, "topic"},
		{"https%3A%2F%2Fuser%40shop.example", `{"paused":true}`, "topic"},
		{"orders", `{"rate":-1}`, "rate"},
		{"orders", `{"rate":0.0001}`, "rate"},
		{"orders", `{"rate":1000001}`, "rate"},
		{"orders", `{"rate":"1/s"}`, "rate"},
		{"orders", `{"max_in_flight":-1}`, "max_in_flight"},
		{"orders", `{"max_in_flight":1000001}`, "max_in_flight"},
		{"orders", `{"max_in_flight":1.5}`, "max_in_flight"},
		{"orders", `{"pause":true}`, "pause"},
		{"orders", `{"until":32503680000000}`, "send paused true"},
		{"orders", `{"paused":false,"until":32503680000000}`, "send paused true"},
		{"orders", `{"paused":true,"until":1700000000000}`, "is past"},
		{"orders", `{"paused":true,"until":1700000000}`, "Unix seconds"},
		{"orders", `{"paused":true,"until":null}`, "until"},
		{"orders", `{"paused":true,"until":""}`, "until"},
		{"orders", `{"paused":true,"until":"90m"}`, "until"},
	} {
		code, _, answer := w.target("PUT", c[0], c[1])
		require.Equal(t, 422, code, answer)
		require.Contains(t, answer, c[2])
	}
	all, err := w.client.Targets(t.Context(), TargetFilter{})
	require.NoError(t, err)
	local, err := w.local.Targets(t.Context(), TargetFilter{})
	require.NoError(t, err)
	require.Equal(t, local, all)
	require.Len(t, all.Targets, 2)
	require.Equal(t, "orders", all.Targets[1].Topic)
	require.InDelta(t, 0.5, all.Targets[1].Rate, 0)

	log, err := w.local.Audit(t.Context(), AuditFilter{What: "target"})
	require.NoError(t, err)
	require.Len(t, log.Entries, 12, "each change, and nothing that was refused")
	require.Equal(t, "bills", log.Entries[0].Topic)
	require.JSONEq(t, `{"paused":true,"rate":0,"max_in_flight":0}`, string(log.Entries[1].Extra))
	require.JSONEq(t, `{"paused":true,"until":32503680000000}`, string(log.Entries[3].Extra))
	require.JSONEq(t, `{"rate":0}`, string(log.Entries[8].Extra))
}

// A pause ends at its until without anybody's help, and what follows goes by that.
func TestAPauseEnds(t *testing.T) {
	w := newWorld(t)
	_, err := admin.New(w.store).SetPolicy(t.Context(), "orders", 1, func(p admin.Policy) admin.Policy {
		p.Paused, p.Until, p.Rate = true, 2, 3
		return p
	})
	require.NoError(t, err)
	all, err := w.client.Targets(t.Context(), TargetFilter{})
	require.NoError(t, err)
	require.Equal(t, []TargetPolicy{{Topic: "orders", Rate: 3, Changed: 2}}, all.Targets)
	code, p, answer := w.target("PATCH", "orders", `{"rate":4}`)
	require.Equal(t, 200, code, answer)
	require.Equal(t, TargetPolicy{Topic: "orders", Rate: 4}, p)
}

// However many targets somebody pauses, there is an end, and the answer says what to do.
func TestTargetsAreBounded(t *testing.T) {
	w := newWorld(t)
	for i := range admin.MaxPolicies {
		_, err := admin.New(w.store).SetPolicy(t.Context(), fmt.Sprint("t", i), 1, func(admin.Policy) admin.Policy { return admin.Policy{Paused: true} })
		require.NoError(t, err)
	}
	code, _, answer := w.target("PUT", "orders", `{"paused":true}`)
	require.Equal(t, 422, code)
	require.Contains(t, answer, "resume some of them")
	all, err := w.local.Targets(access.With(t.Context(), access.Caller{}), TargetFilter{Allowed: func(topic string) bool { return strings.HasPrefix(topic, "t99") }})
	require.NoError(t, err)
	require.Len(t, all.Targets, 11)

	var names []string
	f := TargetFilter{Limit: 300}
	for pages := 1; ; pages++ {
		page, err := w.client.Targets(t.Context(), f)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Targets), f.Limit)
		for _, target := range page.Targets {
			names = append(names, target.Topic)
		}
		if f.Cursor = page.Cursor; f.Cursor == "" {
			require.Equal(t, 4, pages)
			break
		}
	}
	require.Len(t, names, admin.MaxPolicies)
	require.True(t, slices.IsSorted(names))
}

// A name is known by tasks of any state, or by a policy. A caller is told of no others' names.
func TestTargetsLikeAName(t *testing.T) {
	w := newWorld(t)
	for _, topic := range []string{"orders", "orders.eu", "newsletter", "https://shop.example"} {
		w.schedule(topic, "a", time.Now().Add(time.Hour).UnixMilli(), nil, nil)
	}
	_, err := w.client.ChangeTarget(t.Context(), "bills", TargetChange{Paused: new(true)})
	require.NoError(t, err)
	for like, want := range map[string][]string{
		"orders": {"orders"}, "bills": {"bills"}, "HTTPS://Shop.example": {"https://shop.example"},
		"newslettr": {"newsletter"}, "Newsletter": {"newsletter"}, "order": {"orders", "orders.eu"}, "orders.": {"orders", "orders.eu"}, "bils": {"bills"},
		"https://shop.exmple": {"https://shop.example"}, "payments": nil, "x": nil,
	} {
		found, err := w.client.Targets(t.Context(), TargetFilter{Like: like})
		require.NoError(t, err)
		var names []string
		for _, f := range found.Targets {
			names = append(names, f.Topic)
		}
		require.Equal(t, want, names, like)
	}
	found, err := w.client.Targets(t.Context(), TargetFilter{Like: "bills"})
	require.NoError(t, err)
	require.True(t, found.Targets[0].Paused)
	found, err = w.local.Targets(t.Context(), TargetFilter{Like: "newslettr", Allowed: func(topic string) bool { return topic == "orders" }})
	require.NoError(t, err)
	require.Empty(t, found.Targets)
}
