package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
)

// operate makes the steps of operations, until the returned function is called.
func (w *world) operate() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = NewOperator(Alone(w.local), zap.NewNop()).Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	w.t.Cleanup(stop)
	return stop
}

// async asks for an operation.
func (w *world) async(token, path, body string) Operation {
	w.t.Helper()
	code, answer := w.as(token, "POST", "/api/v1"+path+"?async=true", body)
	require.Equal(w.t, http.StatusAccepted, code, answer)
	var o Operation
	require.NoError(w.t, json.Unmarshal([]byte(answer), &o))
	require.Equal(w.t, admin.OperationRuns, o.State)
	return o
}

// becomes waits until an operation is what is wanted.
func (w *world) becomes(id int64, want func(Operation) bool) (o Operation) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		var err error
		o, err = w.client.Operation(w.t.Context(), id)
		return err == nil && want(o)
	}, time.Minute, 10*time.Millisecond)
	return o
}

func (w *world) ends(id int64) Operation {
	w.t.Helper()
	return w.becomes(id, func(o Operation) bool { return o.State != admin.OperationRuns })
}

func TestOperations(t *testing.T) {
	w := newWorld(t)
	w.decideCancels()
	w.remember()
	w.operate()
	due := time.Now().Add(time.Hour).UnixMilli()
	for i := range 7 {
		w.schedule("orders", fmt.Sprint("a", i), due+int64(i), nil, nil)
	}
	code, answer := w.as("operate", "POST", "/api/v1/tasks/cancel-many?async=true", `{"topic":"orders","id_prefix":"a","dry_run":true}`)
	require.Equal(t, http.StatusOK, code, "a dry run is answered at once")
	require.JSONEq(t, `{"cancelled":0,"too_late":0,"matched":7}`, answer)
	_, err := Alone(w.local).backfillJob(t.Context(), "orders", "often", &Backfill{DryRun: true})
	require.ErrorIs(t, err, errDry)
	w.schedule("bills", "a9", due, nil, nil)
	for _, id := range []string{"x", "y", "z"} {
		w.died("orders", id)
	}
	w.put(task.Change{Rejected: &task.DeadLetter{Kind: schemas.KindRejected, Topic: "orders", TaskID: "r", Reason: "bad"}})
	w.setTimer("orders", "often", schemas.Timer{Cron: "*/10 * * * *"}, nil)
	from := time.Now().Add(-2 * time.Hour).UnixMilli()
	for _, c := range []struct {
		token, path, body, what string
		done, changed           int64
		result                  string
	}{
		{"operate", "/tasks/cancel-many", `{"topic":"orders","id_prefix":"a"}`, "cancel-many", 7, 7, `{"cancelled":7,"too_late":0,"matched":7}`},
		{"operate", "/deadletters/replay", `{"topic":"orders"}`, "replay", 4, 3, ""},
		{"admin", "/deadletters/purge", `{"topic":"orders","replayed":true}`, "purge", 4, 4, `{"deleted":4,"next":0,"up_to":4}`},
		{"operate", "/timers/orders/often/backfill", fmt.Sprintf(`{"from":%d,"to":%d}`, from, from+time.Hour.Milliseconds()), "backfill", 6, 6, ""},
	} {
		o := w.async(c.token, c.path, c.body)
		require.Equal(t, c.what, o.What)
		require.Equal(t, "orders", o.Topic)
		require.Equal(t, c.token, o.Who)
		o = w.ends(o.ID)
		require.Equal(t, admin.OperationDone, o.State, "%s: %s", c.path, o.Why)
		require.Equal(t, []int64{c.done, c.done}, []int64{o.Done, o.Total}, "%s: %s", c.path, o.Result)
		if c.result != "" {
			require.JSONEq(t, c.result, string(o.Result))
		}
		switch c.what {
		case replaying:
			var all ReplayedMany
			require.NoError(t, json.Unmarshal(o.Result, &all))
			require.Equal(t, []int64{3, 1, 0}, []int64{all.Replayed, all.Skipped, all.Next})
			require.NotZero(t, all.At)
			require.Len(t, all.Letters, 4, "of both pages")
		case backfilling:
			var all Backfilled
			require.NoError(t, json.Unmarshal(o.Result, &all))
			require.Equal(t, 6, all.Made)
		}
		code, answer := w.do("DELETE", fmt.Sprint("/api/v1/operations/", o.ID), "")
		require.Equal(t, http.StatusConflict, code, answer)
		log, err := w.client.Audit(t.Context(), AuditFilter{Limit: 2})
		require.NoError(t, err)
		require.Equal(t, []string{"operation done", "operation"}, []string{log.Entries[0].What, log.Entries[1].What}, "who asked, and the outcome, once")
		for _, e := range log.Entries {
			require.Equal(t, []any{c.token, c.changed, "orders"}, []any{e.Who, e.Count, e.Topic}, e.What)
		}
		require.NotEmpty(t, o.Request)
	}
	log, err := w.client.Audit(t.Context(), AuditFilter{Limit: 100})
	require.NoError(t, err)
	require.Len(t, log.Entries, 8, "no step has one")
	got, err := w.local.Task(t.Context(), "orders", "x")
	require.NoError(t, err)
	require.Equal(t, "pending", got.State)
}

// An operation goes on where it was when its process ended, and is stopped between two steps.
func TestOperationsGoOn(t *testing.T) {
	w := newWorld(t)
	w.decideCancels()
	w.local.changeFor, w.local.Cancels.Tasks, w.local.Cancels.Ahead = 0, 1, 1 // a task a step
	due := time.Now().Add(time.Hour).UnixMilli()
	for i := range 10 {
		w.schedule("orders", fmt.Sprint("a", i), due+int64(i), nil, nil)
	}
	stop := w.operate()
	o := w.async("operate", "/tasks/cancel-many", `{"topic":"orders"}`)
	w.becomes(o.ID, func(o Operation) bool { return o.Done >= 2 })
	stop()
	now, err := w.client.Operation(t.Context(), o.ID)
	require.NoError(t, err)
	require.Equal(t, admin.OperationRuns, now.State)
	require.EqualValues(t, 10, now.Total)

	w.schedule("others", "b", due, nil, nil) // the operation may have published a step that it has not stored
	one := &admin.Operation{What: cancelling, Topic: "others", Progress: admin.Progress{Request: []byte(`{"cancel":{"topic":"others"},"counted":true}`), Result: []byte("{}")}}
	_, err = NewOperator(Alone(w.local), zap.NewNop()).step(t.Context(), admin.OperationsIn(w.store), one)
	require.NoError(t, err)
	require.EqualValues(t, 1, one.Done)
	require.Zero(t, newOperation(*one).Total, "nobody has counted to the end")

	dies := NewOperator(Alone(w.local), zap.NewNop()) // behind a step, and before it has stored it
	var taken *admin.Operation
	require.Eventually(t, func() bool {
		taken, err = admin.OperationsIn(w.store).Take(t.Context(), "dies")
		return err == nil && taken != nil
	}, time.Minute, 10*time.Millisecond)
	_, err = dies.step(t.Context(), admin.OperationsIn(w.store), taken)
	require.NoError(t, err)
	stop = w.operate()
	now = w.ends(o.ID)
	require.Equal(t, admin.OperationDone, now.State, now.Why)
	var all CancelledMany
	require.NoError(t, json.Unmarshal(now.Result, &all))
	require.EqualValues(t, 10, all.Cancelled, "also those of steps that were not stored")
	left, err := w.client.CancelMany(t.Context(), CancelMany{Topic: "orders", DryRun: true})
	require.NoError(t, err)
	require.Zero(t, left.Matched)
	stop()

	w.schedule("bills", "b", due, nil, nil)
	o = w.async("operate", "/tasks/cancel-many", `{"topic":"bills"}`)
	now, err = w.client.StopOperation(t.Context(), o.ID)
	require.NoError(t, err)
	require.Equal(t, admin.OperationStopped, now.State)
	_, err = w.client.StopOperation(t.Context(), o.ID)
	require.Error(t, err)
	other := w.async("operate", "/tasks/cancel-many", `{"topic":"orders"}`)
	w.operate()
	w.ends(other.ID)
	got, err := w.local.Task(t.Context(), "bills", "b")
	require.NoError(t, err)
	require.Equal(t, "pending", got.State, "nothing was done for the stopped one")
	log, err := w.client.Audit(t.Context(), AuditFilter{What: "operation stopped", Limit: 10})
	require.NoError(t, err)
	require.Len(t, log.Entries, 1)
}

func TestOperationsFailAndAreRefused(t *testing.T) {
	w := newWorld(t)
	w.remember()
	w.setTimer("orders", "hourly", schemas.Timer{Cron: "30 * * * *"}, nil)
	o := w.async("operate", "/timers/orders/hourly/backfill", fmt.Sprintf(`{"from":%d}`, time.Now().Add(-2*time.Hour).UnixMilli()))
	w.timerOp(schemas.OpTimerDelete, "orders", "hourly")
	w.operate()
	o = w.ends(o.ID)
	require.Equal(t, admin.OperationFailed, o.State)
	require.Contains(t, o.Why, "timer")

	for _, c := range []struct {
		token, path, body string
		code              int
	}{
		{"operate", "/tasks/cancel-many", `{}`, 422},
		{"operate", "/tasks/cancel-many", `{"topic":"orders","cursor":"x"}`, 422},
		{"operate", "/deadletters/replay", `{}`, 422},
		{"operate", "/timers/orders/none/backfill", `{"from":1700000000000}`, 404},
		{"operate", "/deadletters/purge", `{"topic":"orders"}`, 403},
		{"operate of orders", "/tasks/cancel-many", `{"topic":"bills"}`, 403},
		{"operate of orders", "/deadletters/replay", `{"all":true}`, 403},
		{"read", "/tasks/cancel-many", `{"topic":"orders"}`, 403},
	} {
		code, answer := w.as(c.token, "POST", "/api/v1"+c.path+"?async=true", c.body)
		require.Equal(t, c.code, code, "%s: %s", c.path, answer)
	}
	purge := w.async("admin", "/deadletters/purge", `{"all":true}`)
	code, answer := w.as("operate", "DELETE", fmt.Sprint("/api/v1/operations/", purge.ID), "")
	require.Equal(t, 403, code, answer)
	code, answer = w.as("operate of orders", "GET", fmt.Sprint("/api/v1/operations/", purge.ID), "")
	require.Equal(t, 404, code, answer)
	code, answer = w.as("operate of orders", "GET", "/api/v1/operations?limit=1", "")
	require.Equal(t, 200, code, answer)
	require.Contains(t, answer, `"operations":[]`)
	require.Contains(t, answer, `"cursor"`)
}

func TestRunningOperationsAreBounded(t *testing.T) {
	w := newWorld(t)
	for range admin.RunningOperations {
		w.async("operate of orders", "/tasks/cancel-many", `{"topic":"orders"}`)
	}
	code, answer := w.as("operate of orders", "POST", "/api/v1/tasks/cancel-many?async=true", `{"topic":"orders"}`)
	require.Equal(t, http.StatusTooManyRequests, code, answer)
	w.async("operate of bills", "/tasks/cancel-many", `{"topic":"bills"}`)
}

// A backfill's step that is made again makes no run twice, and counts none twice.
func TestAStepThatIsMadeTwiceCountsOnce(t *testing.T) {
	w := newWorld(t)
	w.remember()
	w.setTimer("orders", "often", schemas.Timer{Cron: "*/10 * * * *"}, nil)
	from := time.Now().Add(-2 * time.Hour).UnixMilli()
	w.async("operate", "/timers/orders/often/backfill", fmt.Sprintf(`{"from":%d,"to":%d}`, from, from+time.Hour.Milliseconds()))
	o, db := NewOperator(Alone(w.local), zap.NewNop()), admin.OperationsIn(w.store)
	op, err := db.Take(t.Context(), "one")
	require.NoError(t, err)
	for range 2 {
		again := *op
		state, err := o.step(t.Context(), db, &again)
		require.NoError(t, err)
		require.Equal(t, admin.OperationDone, state)
		require.JSONEq(t, `{"made":6,"existing":0,"coming":0,"forgotten":0,"before_set":6}`, string(again.Result))
		require.EqualValues(t, 6, again.Done)
	}
}

// The process dies between a step and its storing. The step is made again, and finds no letter that
// it has replayed, also where letters are asked for that were replayed before.
func TestAStepThatIsMadeTwiceReplaysOnce(t *testing.T) {
	w := newWorld(t)
	w.remember()
	w.died("orders", "x")
	w.async("operate", "/deadletters/replay", `{"topic":"orders","replayed":true}`)
	o := NewOperator(Alone(w.local), zap.NewNop())
	db := admin.OperationsIn(w.store)
	op, err := db.Take(t.Context(), "one")
	require.NoError(t, err)
	for _, found := range []int{1, 0} {
		again := *op
		for state := ""; state != admin.OperationDone; {
			state, err = o.step(t.Context(), db, &again)
			require.NoError(t, err)
		}
		var all ReplayedMany
		require.NoError(t, json.Unmarshal(again.Result, &all))
		require.Len(t, all.Letters, found)
	}
}

// A database that does not answer for a moment is not left out: the operation goes on with it. Nor do
// the others wait for it.
func TestAnOperationWaitsForItsDatabases(t *testing.T) {
	f := newFleet(t)
	ctx := t.Context()
	f.reject("a1", "dead", time.Now().UnixMilli())
	f.other.reject("b1", "dead", time.Now().UnixMilli())
	operator, db := NewOperator(f.fleet, zap.NewNop()), admin.OperationsIn(f.store)
	code, _, answer := f.ask("POST", "/deadletters/purge?async=true", `{"all":true}`)
	require.Equal(t, http.StatusAccepted, code, answer)
	op, err := db.Take(ctx, "one")
	require.NoError(t, err)
	f.fleet.members[1].Set(nil)
	state, err := operator.step(ctx, db, op)
	require.NoError(t, err, "nobody waits for the total")
	for err == nil {
		state, err = operator.step(ctx, db, op)
	}
	require.ErrorContains(t, err, "databases [1] do not answer")
	require.EqualValues(t, 1, op.Done, "those of the other one are deleted meanwhile")
	require.Equal(t, admin.OperationRuns, state)
	op.Why = err.Error()
	require.NoError(t, db.EndStep(ctx, op, state))
	op, err = db.Take(ctx, "one")
	require.NoError(t, err)
	require.Nil(t, op, "not at once")

	f.fleet.members[1].Set(f.other.local)
	code, _, answer = f.ask("POST", "/deadletters/purge?async=true", `{"all":true}`)
	require.Equal(t, http.StatusAccepted, code, answer)
	for range 3 {
		operator.next(ctx)
	}
	second, err := db.Read(ctx, 2)
	require.NoError(t, err)
	require.Equal(t, admin.OperationDone, second.State, second.Why)
	log, err := f.fleet.Audit(ctx, AuditFilter{Limit: 2})
	require.NoError(t, err)
	for _, e := range log.Entries {
		require.EqualValues(t, 1, e.Count, e.What)
	}
	require.Len(t, log.Entries, 2)
}

// Commands that have the database themselves are refused as requests are.
func TestNamesAreCheckedWithoutHandlers(t *testing.T) {
	w := newWorld(t)
	f, long := Alone(w.local), strings.Repeat("x", 300)
	_, err := f.BeginCancelMany(t.Context(), CancelMany{Topic: long})
	require.ErrorContains(t, err, "topic")
	_, err = f.CancelMany(t.Context(), CancelMany{Topic: long})
	require.ErrorContains(t, err, "topic")
	_, err = f.BeginReplay(t.Context(), letters.Filter{Topic: long})
	require.ErrorContains(t, err, "topic")
	_, err = f.BeginPurge(t.Context(), letters.Filter{Topic: "a/b"})
	require.ErrorContains(t, err, "topic")
}

// Nobody has asked for what comes after the request, nor in pages.
func TestWhatAnOperationIsAbout(t *testing.T) {
	w := newWorld(t)
	w.remember()
	w.died("orders", "x")
	o := w.async("admin", "/deadletters/purge", `{"topic":"orders","replayed":true}`)
	w.reject("orders", "later", time.Now().Add(time.Minute).UnixMilli())
	w.operate()
	o = w.ends(o.ID)
	require.EqualValues(t, 1, o.Done)
	code, answer := w.as("admin", "POST", "/api/v1/deadletters/purge?async=true", `{"topic":"orders","limit":5}`)
	require.Equal(t, http.StatusUnprocessableEntity, code, answer)
	require.Contains(t, answer, "limit")
}

// An operation of a later release waits for a service that knows it, and can be seen and stopped meanwhile.
func TestAnOperationOfALaterReleaseWaits(t *testing.T) {
	w := newWorld(t)
	db := admin.OperationsIn(w.store)
	later, err := db.Begin(t.Context(), admin.Operation{What: "later", Progress: admin.Progress{Result: []byte("{}")}}, func(int64) ([]byte, error) { return []byte(`{"later":{}}`), nil })
	require.NoError(t, err)
	require.False(t, NewOperator(Alone(w.local), zap.NewNop()).next(t.Context()))
	got, err := w.client.Operation(t.Context(), later.ID)
	require.NoError(t, err)
	require.Equal(t, admin.OperationRuns, got.State)
	require.Contains(t, got.Why, "later release")
	_, err = Alone(w.local).StopOperation(t.Context(), later.ID)
	require.NoError(t, err)
}

func TestTenantsOfOperationsHaveShortNames(t *testing.T) {
	long := strings.Repeat("x", 300)
	a, b := tenantOf(access.Caller{Tenant: long + "a"}), tenantOf(access.Caller{Tenant: long + "b"})
	require.NotEqual(t, a, b)
	require.Len(t, a, 255)
	require.Equal(t, "short", tenantOf(access.Caller{Tenant: "short"}))
}
