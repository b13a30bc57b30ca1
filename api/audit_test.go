package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
)

// audited reads the log, and forgets it.
func (w *world) audited() []AuditEntry {
	w.t.Helper()
	log, err := w.client.Audit(w.t.Context(), AuditFilter{})
	require.NoError(w.t, err)
	local, err := w.local.Audit(w.t.Context(), AuditFilter{})
	require.NoError(w.t, err)
	require.Equal(w.t, local, log, "both ways of asking answer the same")
	_, _, err = admin.New(w.store).RetireAudit(w.t.Context(), 1<<60)
	require.NoError(w.t, err)
	return log.Entries
}

func TestEveryChangeNamesWhoMadeIt(t *testing.T) {
	w := newWorld(t)
	letter := func() string {
		record := &kgo.Record{Value: []byte("v")}
		w.put(task.Change{Rejected: &task.DeadLetter{Kind: schemas.KindRejected, Topic: "orders", TaskID: "dead", Reason: "bad", Body: schemas.EncodeRejected(record)}})
		letters, err := w.local.Letters(t.Context(), letters.Filter{}, "", false)
		require.NoError(t, err)
		return fmt.Sprint(letters.Letters[len(letters.Letters)-1].ID)
	}
	due := time.Now().Add(time.Hour).UnixMilli()
	for _, c := range []struct {
		path, body string
		want       AuditEntry
		filter     string
	}{
		{"/tasks", `{"topic":"orders","id":"a","at":DUE,"version":3}`, AuditEntry{What: "schedule", Topic: "orders", Task: "a"}, `{"intake":"in.a","due":DUE,"version":"3"}`},
		{"/tasks", `{"intake":"in.b","topic":"bills","at":DUE}`, AuditEntry{What: "schedule", Topic: "bills"}, `{"intake":"in.b","due":DUE}`},
		{"/tasks/cancel", `{"topic":"orders","id":"a/b"}`, AuditEntry{What: "cancel", Topic: "orders", Task: "a/b"}, `{"intake":"in.a"}`},
		{"/tasks/orders/a/stop", ``, AuditEntry{What: "stop", Topic: "orders", Task: "a"}, `{"intake":"in.a"}`},
		{"/tasks/orders/a/fire?wait=1ms", ``, AuditEntry{What: "fire", Topic: "orders", Task: "a"}, `{"intake":"in.a"}`},
		{"/deadletters/purge", `{"topic":"orders","ids":[LETTER]}`, AuditEntry{What: "purge", Topic: "orders"}, `{"ids":[LETTER],"topic":"orders"}`},
		{"/timers/orders/t/disable", ``, AuditEntry{What: "timer-disable", Topic: "orders", Task: "t"}, `{"intake":"in.a"}`},
		{"/audit", `{"what":"cancel","topic":"orders","task":"x"}`, AuditEntry{What: "cancel", Topic: "orders", Task: "x"}, `{}`},
	} {
		for _, user := range []string{"", "ann@host"} {
			id := letter()
			fill := strings.NewReplacer("LETTER", id, "DUE", fmt.Sprint(due))
			as := NewClient(ClientConfig{Addr: strings.TrimPrefix(w.url, "http://"), Token: w.tokens["admin"], User: user})
			var request any
			if c.body != "" {
				request = json.RawMessage(fill.Replace(c.body))
			}
			_, err := post[json.RawMessage](t.Context(), as, c.path, request, nil)
			require.NoError(t, err, c.path)
			found := w.audited()
			require.Len(t, found, 1, c.path)
			got, want := found[0], c.want
			require.JSONEq(t, fill.Replace(c.filter), string(got.Extra))
			require.NotZero(t, got.At)
			want.ID, want.At, want.Extra = got.ID, got.At, got.Extra
			want.Who, want.User, want.Via, want.Count = "admin", user, "api", 1
			if user != "" {
				want.Via = "cli"
			}
			require.Equal(t, want, got, c.path)
		}
	}
	letter()
	_, err := deadletter.Replay(t.Context(), w.client, letters.Filter{}, deadletter.Options{DryRun: true})
	require.NoError(t, err)
	code, _ := w.as("operate", "POST", "/api/v1/tasks/cancel", `{"topic":"orders","id":""}`)
	require.Equal(t, 422, code)
	code, _ = w.as("read", "POST", "/api/v1/tasks/cancel", `{"topic":"orders","id":"a"}`)
	require.Equal(t, 403, code)
	require.Empty(t, w.audited(), "nothing was changed")
}

// A command notes a request that it sends itself. Nobody may note what was never asked of Kafka, such as a purge.
func TestOnlyRequestsAreNoted(t *testing.T) {
	w := newWorld(t)
	for op := schemas.OpSchedule; op <= schemas.OpTimerDelete; op++ {
		code, answer := w.as("operate", "POST", "/api/v1/audit", fmt.Sprintf(`{"what":%q,"topic":"orders"}`, op))
		require.Equal(t, 204, code, answer)
	}
	require.Len(t, w.audited(), int(schemas.OpTimerDelete)+1)
	for _, what := range []string{"purge", "sign-in refused", "cancel many", `\u001b]0;x\u0007`, ""} {
		code, answer := w.as("operate", "POST", "/api/v1/audit", `{"what":"`+what+`","topic":"orders"}`)
		require.Equal(t, 422, code, answer)
		require.Contains(t, answer, "body.what")
	}
	require.Empty(t, w.audited())
}

// A change that goes through Kafka is noted first: without the database, nothing is sent.
func TestNothingIsSentThatIsNotNoted(t *testing.T) {
	w := newWorld(t)
	code, answer := w.do("POST", "/api/v1/tasks", `{"topic":"orders","id":"a","delay":"1h"}`)
	require.Equal(t, 202, code, answer)
	require.NoError(t, w.store.Close())
	for path, body := range map[string]string{"/tasks": `{"topic":"orders","id":"b","delay":"1h"}`, "/tasks/cancel": `{"topic":"orders","id":"b"}`, "/tasks/orders/b/fire?wait=1s": ""} {
		code, answer = w.do("POST", "/api/v1"+path, body)
		require.Equal(t, 503, code, answer)
		require.Contains(t, answer, "not sent")
	}
	all := w.records("in.a", 1)
	require.Len(t, all, 1)
	require.Equal(t, "a", id(t, all[0]))
}

func id(t *testing.T, r *kgo.Record) string {
	t.Helper()
	req, err := schemas.Decode(r, schemas.Limits{})
	require.NoError(t, err)
	return req.ID
}

// Callers share statements, and each learns what became of its own entry.
func TestAuditorSharesStatements(t *testing.T) {
	const callers = 2*auditPiece + 50
	started, release := make(chan int), make(chan error)
	a := &auditor{audit: func(_ context.Context, entries []admin.AuditEntry) error {
		started <- len(entries)
		return <-release
	}}
	var all sync.WaitGroup
	results := make(chan error, callers)
	call := func(n int) {
		for range n {
			all.Go(func() { results <- a.write(t.Context(), admin.AuditEntry{}) })
		}
	}
	call(1)
	require.Equal(t, 1, <-started)
	call(callers - 1)
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.waiting) == callers-1
	}, time.Minute, time.Millisecond)
	release <- nil
	require.Equal(t, auditPiece, <-started)
	release <- errors.New("away")
	require.Equal(t, auditPiece, <-started)
	release <- nil
	require.Equal(t, 49, <-started)
	release <- nil
	all.Wait()
	close(results)
	failed := 0
	for err := range results {
		if err != nil {
			require.ErrorIs(t, err, ErrAudit)
			require.ErrorContains(t, err, "away")
			failed++
		}
	}
	require.Equal(t, auditPiece, failed)
	require.Eventually(t, func() bool { // it answers before it ends
		a.mu.Lock()
		defer a.mu.Unlock()
		return !a.writing
	}, time.Minute, time.Millisecond)

	a.waiting = make([]*auditWrite, auditWaiting)
	require.ErrorIs(t, a.write(t.Context(), admin.AuditEntry{}), ErrAudit, "bounded")
}

func TestAuditCursorAndFilters(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		code, _ := w.as("operate", "POST", "/api/v1/tasks/cancel", fmt.Sprintf(`{"topic":"orders","id":"%d"}`, i))
		require.Equal(t, 202, code)
	}
	page, err := w.client.Audit(t.Context(), AuditFilter{Who: "operate", What: "cancel", Topic: "orders", Limit: 3})
	require.NoError(t, err)
	require.Len(t, page.Entries, 3)
	require.Equal(t, "4", page.Entries[0].Task)
	rest, err := w.client.Audit(t.Context(), AuditFilter{Cursor: page.Cursor})
	require.NoError(t, err)
	require.Len(t, rest.Entries, 2)
	require.Empty(t, rest.Cursor)
	require.NoError(t, admin.New(w.store).Audit(t.Context(), []admin.AuditEntry{{What: "cancel", Topic: "https://shop.example", TaskID: "u", Detail: "{}"}}))
	callback, err := w.client.Audit(t.Context(), AuditFilter{Topic: "HTTPS://shop.example:443"})
	require.NoError(t, err)
	require.Len(t, callback.Entries, 1, "in any form of the origin")
	one, err := w.client.Audit(t.Context(), AuditFilter{TaskID: "2"})
	require.NoError(t, err)
	require.Len(t, one.Entries, 1)
	for _, cursor := range []string{"x", "1", "1.2.3"} {
		code, answer := w.do("GET", "/api/v1/audit?cursor="+cursor, "")
		require.Equal(t, 422, code)
		require.Contains(t, answer, "cursor")
	}
}
