package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/test/lettertest"
	"github.com/notyet/notyet/test/recordtest"
	"github.com/notyet/notyet/timer"
)

// work is a few dozen tasks of every sort, and everything that was observed of them.
type work struct {
	*world
	target  string
	missing string // a topic that does not exist
	replays bool   // what fails is replayed

	mu       sync.Mutex
	wishes   map[string]*wish // by id
	timed    []action
	seen     []seen
	events   map[string][]told          // by id
	read     map[string]map[int32]int64 // by topic and partition: how far
	unknown  map[string]bool            // ids of requests that were not acknowledged, came twice, or came late: they may or may not have happened
	problems []string
	closed   map[string]look.View // by id: as the database had it when a process had died; nil: none has
}

// wish is the expected outcome of an id.
type wish struct {
	dues    map[string]int64 // by value: what may be delivered, and not before when
	ends    []string         // where it may end, as get says
	letters int              // dead letters that it leaves
}

type seen struct {
	at    int64
	value string
	schemas.Delivery
}

type told struct {
	at    int64
	state schemas.State
}

const (
	ackTimeout = 700 * time.Millisecond
	farAhead   = time.Hour
)

// delivered are the states of a delivered task: without a row of its own, or with one if its target
// was slow to answer.
var delivered = []string{"delivered", "succeeded"}

func newWork(w *world, replays bool) *work {
	k := &work{world: w, target: w.name + ".orders", missing: w.name + ".missing", replays: replays, wishes: map[string]*wish{}, events: map[string][]told{}, unknown: map[string]bool{}}
	k.read = map[string]map[int32]int64{k.target: {}, k.results: {}, k.intake: {}}
	if w.real {
		w.judging(2, k.target)
	}
	return k
}

// schedule returns a request whose value is the name of its content, with a header of its own.
func (k *work) schedule(id, value string, due int64, headers ...string) *kgo.Record {
	if k.wishes[id] == nil {
		k.wishes[id] = &wish{dues: map[string]int64{}}
	}
	k.wishes[id].dues[value] = due
	r := request(k.intake, k.topicOf(id), append([]string{schemas.HeaderID, id, schemas.HeaderAt, strconv.FormatInt(due, 10), "app", id}, headers...)...)
	return keyed(r, id, value)
}

// runMargin is how long after a request about a timer its run is due.
const runMargin = 5000 // ms

// timerOnce returns a request for a timer that has one run.
func (k *work) timerOnce(id string, at int64) *kgo.Record {
	run := timer.RunID(id, at)
	k.wishes[run] = &wish{dues: map[string]int64{"v": at}, ends: delivered}
	ms := strconv.FormatInt(at, 10)
	return keyed(request(k.intake, k.target, schemas.HeaderID, id, schemas.HeaderOp, "timer", schemas.HeaderEvery, "1s", schemas.HeaderFrom, ms, schemas.HeaderUntil, ms, "app", run), run, "v")
}

// noteClosed notes what is closed when a process has died: nobody may send that again.
func (k *work) noteClosed() {
	k.closed = map[string]look.View{}
	st := k.database()
	for id := range k.wishes {
		v, err := look.New(st).Get(k.t.Context(), k.topicOf(id), id)
		if !errors.Is(err, look.ErrNotFound) {
			require.NoError(k.t, err)
			k.closed[id] = v
		}
	}
}

func (k *work) topicOf(id string) string {
	if strings.HasPrefix(id, "missing-") {
		return k.missing
	}
	return k.target
}

func (k *work) ends(id string, letters int, states ...string) {
	k.wishes[id].ends, k.wishes[id].letters = states, letters
}

func (k *work) publishAt(at int64, r *kgo.Record) { k.timed = append(k.timed, action{at, r}) }

func (k *work) cancel(id string) *kgo.Record {
	return keyed(request(k.intake, k.target, schemas.HeaderID, id, schemas.HeaderOp, "cancel"), id, "")
}

// plan plans three seconds of tasks from begin on: what to publish when.
func (k *work) plan(begin int64) {
	now := time.Now().UnixMilli()
	for i := range 30 {
		id := fmt.Sprintf("plain-%d", i)
		k.publishAt(now, k.schedule(id, "v", begin+int64(i)*100))
		k.ends(id, 0, delivered...)
	}
	// Before the look-ahead, within it, and after the due time.
	for i, lead := range []int64{-600, -400, -250, -200, -150, -50, 0, 50} {
		due := begin + 200 + int64(i)*330
		id := fmt.Sprintf("cancel-%d", i)
		k.publishAt(now, k.schedule(id, "v", due))
		k.publishAt(due+lead, k.cancel(id))
		k.ends(id, 0, append([]string{"cancelled"}, delivered...)...)
		id = fmt.Sprintf("replace-%d", i)
		k.publishAt(now, k.schedule(id, "1", due+100, schemas.HeaderVersion, "1"))
		k.publishAt(due+100+lead, k.schedule(id, "2", due+500, schemas.HeaderVersion, "2", schemas.HeaderEvents, "all"))
		k.ends(id, 0, delivered...)
	}
	far := now + farAhead.Milliseconds()
	for i := range 4 {
		id := fmt.Sprintf("far-%d", i)
		k.publishAt(begin+int64(i)*600, k.schedule(id, "v", far+int64(i)))
		k.ends(id, 0, "pending")
		id = fmt.Sprintf("farcancel-%d", i)
		k.publishAt(now, k.schedule(id, "v", far+int64(i)))
		k.publishAt(begin+int64(i)*700, k.cancel(id))
		k.ends(id, 0, "cancelled")
		id = fmt.Sprintf("farreplace-%d", i)
		k.publishAt(now, k.schedule(id, "1", far+int64(i), schemas.HeaderVersion, "1"))
		k.publishAt(begin+int64(i)*700, k.schedule(id, "2", far+int64(i)+1000, schemas.HeaderVersion, "2"))
		k.ends(id, 0, "pending")
	}
	for i := range 3 {
		at := begin + int64(i)*800
		k.publishAt(at, k.timerOnce(fmt.Sprintf("tick-%d", i), at+runMargin))
	}
	k.planReported(now, begin)
	k.publishAt(begin, keyed(request(k.intake, k.target, schemas.HeaderID, "bad", schemas.HeaderAt, "soon"), "bad", ""))
	k.wishes["bad"] = &wish{letters: 1}
}

// planReported adds tasks whose consumer reports or does not: see report.
func (k *work) planReported(now, begin int64) {
	reported := []string{schemas.HeaderAck, "report", schemas.HeaderAckTimeout, ackTimeout.String(), schemas.HeaderBackoff, "fixed:100ms", schemas.HeaderMaxAttempts}
	for i := range 2 {
		for n, kind := range []string{"ok", "silent", "retry", "fail", "never"} {
			id, attempts := fmt.Sprintf("%s-%d", kind, i), "16"
			if kind == "never" {
				attempts = "2"
			}
			k.publishAt(now, k.schedule(id, "v", begin+int64(i)*800+int64(n)*50, append(slices.Clone(reported), attempts)...))
			switch {
			case kind == "never", kind == "fail" && !k.replays:
				k.ends(id, 1, "dead")
			case kind == "fail":
				k.ends(id, 1, "succeeded")
			default:
				k.ends(id, 0, "succeeded")
			}
		}
		if k.real { // embedded Kafka makes a topic that is asked for
			id := fmt.Sprintf("missing-%d", i)
			k.publishAt(now, k.schedule(id, "v", begin+int64(i)*500))
			k.ends(id, 1, "dead")
		}
	}
}

// report returns the status that the consumer reports; 0 means no report.
func report(d schemas.Delivery) schemas.Status {
	kind, _, _ := strings.Cut(d.ID, "-")
	switch {
	case kind == "ok", kind == "silent" && d.Attempt > 1, kind == "retry" && d.Attempt > 1, kind == "fail" && d.Replay > 0:
		return schemas.StatusOK
	case kind == "retry":
		return schemas.StatusRetry
	case kind == "fail":
		return schemas.StatusFail
	}
	return 0
}

// perform publishes everything at its time, and consumes and reports, until the test ends. It
// closes the channel when all is published.
func (k *work) perform() <-chan struct{} {
	reader := k.reader([]string{k.target, k.results, k.intake})
	ctx, cancel := context.WithCancel(context.Background())
	var consuming sync.WaitGroup
	consuming.Go(func() {
		for ctx.Err() == nil {
			reader.PollFetches(ctx).EachRecord(k.take)
		}
	})
	published := make(chan struct{})
	consuming.Go(func() {
		defer close(published)
		slices.SortStableFunc(k.timed, func(a, b action) int { return int(a.at - b.at) })
		for _, a := range k.timed {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(time.UnixMilli(a.at))):
			}
			k.client.Produce(ctx, a.record, k.accepted)
		}
		_ = k.client.Flush(ctx)
	})
	k.t.Cleanup(func() { cancel(); consuming.Wait() })
	return published
}

// replaceUntil replaces a task of an hour ahead, again and again: each time is another batch for the scanner.
func (k *work) replaceUntil(done func() bool) {
	k.t.Helper()
	const id = "farreplace-0"
	k.publishUntil(done, func() *kgo.Record {
		next := strconv.Itoa(len(k.wishes[id].dues) + 1)
		return k.schedule(id, next, time.Now().Add(farAhead).UnixMilli(), schemas.HeaderVersion, next)
	})
}

// tickUntil asks for another timer again and again.
func (k *work) tickUntil(done func() bool) {
	k.t.Helper()
	n := 3
	k.publishUntil(done, func() *kgo.Record {
		n++
		return k.timerOnce(fmt.Sprintf("tick-%d", n), time.Now().UnixMilli()+runMargin)
	})
}

func (k *work) publishUntil(done func() bool, next func() *kgo.Record) {
	k.t.Helper()
	require.Eventually(k.t, func() bool {
		if done() {
			return true
		}
		k.mu.Lock()
		r := next()
		k.mu.Unlock()
		k.client.Produce(k.t.Context(), r, k.accepted)
		return false
	}, 2*time.Minute, 100*time.Millisecond)
}

func (k *work) accepted(r *kgo.Record, err error) {
	if err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.unknown[string(r.Key)] = true
	}
}

func (k *work) take(r *kgo.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read[r.Topic][r.Partition] = r.Offset + 1
	switch r.Topic {
	case k.intake:
		k.takeRequest(r)
		return
	case k.results:
		e, err := schemas.DecodeEvent(r)
		if err != nil {
			k.problems = append(k.problems, err.Error())
		}
		k.events[e.ID] = append(k.events[e.ID], told{r.Timestamp.UnixMilli(), e.State})
		return
	}
	d, rest, err := schemas.ParseDelivery(r)
	switch {
	case err != nil:
		k.problems = append(k.problems, err.Error())
		return
	case k.wishes[d.ID] == nil:
		k.problems = append(k.problems, "a phantom: "+d.ID)
		return
	case len(rest) != 1 || rest[0].Key != "app" || string(rest[0].Value) != d.ID || string(r.Key) != d.ID:
		k.problems = append(k.problems, "changed on the way: "+d.ID)
	}
	k.seen = append(k.seen, seen{r.Timestamp.UnixMilli(), string(r.Value), d})
	if status := report(d); status != 0 {
		rep := schemas.Report{Topic: k.target, ID: d.ID, Attempt: d.Attempt, Status: status, RetryAfter: schemas.NoRetryAfter}
		k.client.Produce(context.Background(), schemas.EncodeReport(k.reports, rep), nil)
	}
}

// takeRequest notes a timer that a busy machine gave to Kafka after the instant of its run: rightly, it has none.
func (k *work) takeRequest(r *kgo.Record) {
	id := string(r.Key)
	if recordtest.Header(r, schemas.HeaderOp) == "timer" && r.Timestamp.UnixMilli() > k.wishes[id].dues["v"] {
		k.unknown[id] = true
	}
}

// unread lists the topics that have more records than were read.
func (k *work) unread() []string {
	ends, err := kadm.NewClient(k.client).ListEndOffsets(k.t.Context(), k.target, k.results, k.intake)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	k.mu.Lock()
	defer k.mu.Unlock()
	ends.Each(func(o kadm.ListedOffset) {
		if k.read[o.Topic][o.Partition] < o.Offset {
			out = append(out, fmt.Sprintf("%s/%d goes on to %d", o.Topic, o.Partition, o.Offset))
		}
	})
	return out
}

// settle waits until every task is in a final state and has its event, and everything published is
// read. It looks at all of them only when none is open of those that were.
func (k *work) settle() {
	k.t.Helper()
	st := k.database()
	every := slices.Collect(maps.Keys(k.wishes))
	ids, why := every, []string(nil)
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); {
		all := len(ids) == len(every)
		if ids, why = k.open(st, ids); len(ids) == 0 {
			if all {
				why = k.unread()
				if len(why) == 0 {
					return
				}
			}
			ids = every
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-k.t.Context().Done():
		}
	}
	require.Fail(k.t, "stuck", "%s", strings.Join(why, "\n"))
}

// open returns which tasks are not in a final state, or lack its event, and why.
func (k *work) open(st *store.Store, ids []string) (still, why []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		w, before := k.wishes[id], len(why)
		state, want := "rejected", []schemas.State{schemas.StateRejected}
		if id != "bad" {
			v, err := look.New(st).Get(k.t.Context(), k.topicOf(id), id)
			if state = v.State; err != nil {
				state = err.Error()
			}
			if !slices.Contains(w.ends, state) && !k.unknown[id] {
				why = append(why, id+" is "+state)
			}
			if newest := int64(len(w.dues)); newest > 1 && err == nil && *v.Version != newest && !k.unknown[id] {
				why = append(why, fmt.Sprintf("%s has version %d", id, *v.Version))
			}
			want = map[string][]schemas.State{"delivered": {schemas.StateSucceeded}, "succeeded": {schemas.StateSucceeded}, "dead": {schemas.StateDead}}[state]
		}
		if strings.Contains(id, "cancel") {
			want = []schemas.State{schemas.StateCancelled, schemas.StateTooLate}
		}
		isTold := func(states ...schemas.State) bool {
			return slices.ContainsFunc(k.events[id], func(e told) bool { return slices.Contains(states, e.state) })
		}
		if len(want) > 0 && !isTold(want...) && !k.unknown[id] {
			why = append(why, fmt.Sprintf("%s is %s, and nobody was told", id, state))
		}
		if strings.HasPrefix(id, "replace-") && !isTold(schemas.StateScheduled) && !k.unknown[id] {
			why = append(why, id+" is replaced, and nobody was told") // a scanner tells what another left after 5 to 10 s
		}
		if len(why) > before {
			still = append(still, id)
		}
	}
	return still, why
}

// requestedTwice notes requests that the intake holds twice. When it is killed, embedded Kafka
// loses its state of a producer, which then sends unacknowledged records again. Both copies count.
func (k *work) requestedTwice() {
	ends, err := kadm.NewClient(k.client).ListEndOffsets(k.t.Context(), k.intake)
	require.NoError(k.t, err)
	left := 0
	ends.Each(func(o kadm.ListedOffset) { left += int(o.Offset) })
	count := map[string]int{}
	k.stack.read(k.reader([]string{k.intake}), time.Minute, func(r *kgo.Record) bool {
		left--
		id := string(r.Key)
		name := id + "/" + recordtest.Header(r, schemas.HeaderOp) + "/" + string(r.Value)
		if count[name]++; count[name] > 1 {
			k.unknown[id] = true
		}
		return left == 0
	})
}

// judge checks everything that was observed. It returns the extra copies: the first copy, once for
// each repetition.
func (k *work) judge() []seen {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.real {
		k.requestedTwice()
	}
	t := k.t
	require.Empty(t, k.problems)
	if len(k.unknown) > 0 {
		t.Logf("not acknowledged, late, or twice in the intake: %v", k.unknown)
	}
	type name struct {
		id, value       string
		attempt, replay int
	}
	first, keys := map[name]seen{}, map[string]name{}
	var extra []seen
	slices.SortFunc(k.seen, func(a, b seen) int { return int(a.at - b.at) })
	for _, s := range k.seen {
		n := name{s.ID, s.value, s.Attempt, s.Replay}
		due, ok := k.wishes[s.ID].dues[s.value]
		require.True(t, ok, "%s carries %q", s.ID, s.value)
		if s.Replay == 0 {
			require.Equal(t, due, s.Due, "%s", s.ID)
		}
		require.GreaterOrEqual(t, s.at, s.Due, "early: %s", s.ID)
		if known, ok := keys[s.Key]; ok {
			require.Equal(t, known, n, "one delivery key for two deliveries")
		}
		keys[s.Key] = n
		if f, ok := first[n]; ok && k.unknown[s.ID] {
			continue
		} else if ok {
			require.Equal(t, f.Key, s.Key, "copies of one delivery must carry one key: %s", s.ID)
			extra = append(extra, f)
			continue
		}
		first[n] = s
		if s.Attempt > 1 {
			before, ok := first[name{s.ID, s.value, s.Attempt - 1, s.Replay}]
			require.True(t, ok, "attempt %d of %s before the one before", s.Attempt, s.ID)
			if report(before.Delivery) == 0 {
				require.GreaterOrEqual(t, s.at, before.at+ackTimeout.Milliseconds(), "attempt %d of %s before its report was overdue", s.Attempt, s.ID)
			}
		}
	}
	for id := range k.wishes {
		delivered := func(value string) bool { _, ok := first[name{id, value, 1, 0}]; return ok }
		k.judgeAnswers(id, delivered)
	}
	k.judgeLetters()
	return extra
}

// judgeAnswers compares the answers with the deliveries.
func (k *work) judgeAnswers(id string, delivered func(value string) bool) {
	t, w := k.t, k.wishes[id]
	answers := map[schemas.State]int64{}
	for _, e := range k.events[id] {
		if at, ok := answers[e.state]; !ok || e.at < at {
			answers[e.state] = e.at
		}
	}
	_, cancelled := answers[schemas.StateCancelled]
	_, tooLate := answers[schemas.StateTooLate]
	switch {
	case k.unknown[id] || id == "bad":
	case strings.Contains(id, "cancel"):
		require.NotEqual(t, cancelled, tooLate, "%s was answered %v", id, answers)
		require.Equal(t, tooLate, delivered("v"), "%s was answered %v", id, answers)
	case slices.Contains(w.ends, "pending"):
		require.False(t, delivered("v") || delivered("1") || delivered("2"), "%s is an hour ahead", id)
	case strings.HasPrefix(id, "missing-"):
	case strings.HasPrefix(id, "replace-"):
		require.True(t, delivered("2"), "lost: %s", id)
		for _, s := range k.seen {
			if s.ID == id && s.value == "1" {
				require.LessOrEqual(t, s.at, answers[schemas.StateScheduled], "%s: version 1 after version 2 was acknowledged", id)
			}
		}
	default:
		require.True(t, delivered("v"), "lost: %s", id)
	}
}

// judgeLetters counts the dead letters of each id.
func (k *work) judgeLetters() {
	letters, err := lettertest.All(k.t.Context(), letters.New(k.store), letters.Filter{Replayed: true, Limit: 1000})
	require.NoError(k.t, err)
	have := map[string]int{}
	for _, l := range letters {
		have[l.TaskID]++
		if k.replays && strings.HasPrefix(l.TaskID, "fail-") {
			require.NotZero(k.t, l.ReplayedAt, "%s", l.TaskID)
		}
	}
	for id, w := range k.wishes {
		if !k.unknown[id] {
			require.Equal(k.t, w.letters, have[id], "dead letters of %s", id)
		}
	}
	// A timer that comes to its end before it is set is rejected.
	for run := range k.unknown {
		if id, _, isRun := strings.Cut(run, "@"); isRun {
			delete(have, id)
		}
	}
	for id := range have {
		require.Contains(k.t, k.wishes, id, "a foreign dead letter")
	}
}
