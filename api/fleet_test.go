package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/shards"
	"github.com/notyet/notyet/task"
)

// fleet is an API over two databases. Targets that begin with b have moved from the first to the
// second.
type fleet struct {
	*world
	other   *world
	fleet   *Fleet
	missing [][]int
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{world: newWorld(t), other: withoutBroker(t)}
	f.other.local.Cancels, f.other.broker = f.local.Cancels, f.broker
	homes := new(shardmap.Known)
	homes.Learn(&shardmap.Map{Rules: []shardmap.Rule{{N: 1, Pattern: "b*", Shard: 1, Held: true, Followed: true}}})
	f.fleet = NewFleet([]*Member{NewMember(0, f.local), NewMember(1, f.other.local)}, homes)
	producer, err := kafka.NewProducer(kafka.Config{Brokers: []string{f.broker}}, zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)))
	require.NoError(t, err)
	t.Cleanup(producer.Close)
	mux := http.NewServeMux()
	Mount(mux, f.fleet, NewPublisher(producer, producer), Config{Version: "test", Intakes: fixed(Intake{Topic: "in.a", Limits: schemas.Limits{MaxDelay: 48 * time.Hour}})})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(access.With(r.Context(), access.Caller{Name: "admin", Role: access.Admin, Topics: access.Everything})))
	}))
	t.Cleanup(server.Close)
	f.url = server.URL
	f.client = NewClient(ClientConfig{Addr: strings.TrimPrefix(server.URL, "http://")})
	f.client.OnMissing = func(numbers []int) { f.missing = append(f.missing, numbers) }
	return f
}

// ask returns the status, the header Retry-After and the answer.
func (f *fleet) ask(method, path, body string) (int, string, string) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+"/api/v1"+path, strings.NewReader(body))
	require.NoError(f.t, err)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(f.t, err)
	defer answer.Body.Close()
	var text json.RawMessage
	require.NoError(f.t, json.NewDecoder(answer.Body).Decode(&text))
	return answer.StatusCode, answer.Header.Get("Retry-After"), string(text)
}

// walk reads all pages of a list through the API, and returns one name an item.
func (f *fleet) walk(path, items string, limit int, name func(item map[string]any) string) (out []string) {
	f.t.Helper()
	for cursor, pages := "", 0; ; pages++ {
		require.Less(f.t, pages, 100)
		code, _, answer := f.ask("GET", fmt.Sprintf("%s&limit=%d%s", path, limit, cursor), "")
		require.Equal(f.t, 200, code, answer)
		var page map[string]json.RawMessage
		require.NoError(f.t, json.Unmarshal([]byte(answer), &page))
		var found []map[string]any
		require.NoError(f.t, json.Unmarshal(page[items], &found), answer)
		require.LessOrEqual(f.t, len(found), limit)
		for _, item := range found {
			out = append(out, name(item))
		}
		next, _ := strings.CutPrefix(string(page["cursor"]), `"`)
		if next == "" {
			return out
		}
		cursor = "&cursor=" + strings.TrimSuffix(next, `"`)
	}
}

func named(of ...string) func(item map[string]any) string {
	return func(item map[string]any) string {
		var out []string
		for _, name := range of {
			out = append(out, fmt.Sprint(item[name]))
		}
		return strings.Join(out, "/")
	}
}

// worlds are the databases, by number.
func (f *fleet) worlds() []*world { return []*world{f.world, f.other} }

func TestFleetMergesLists(t *testing.T) {
	f := newFleet(t)
	ctx := t.Context()
	due := time.Now().Add(time.Hour).UnixMilli()
	targets := [][]string{{"a1", "a2"}, {"b1", "b2"}}
	var tasks, timers []string
	for i := range 12 {
		w, topic := f.worlds()[i%2], targets[i%2][i/2%2]
		id := fmt.Sprintf("%02d", i)
		w.tagged(topic, id, due+int64(i*1000), "shop:7")
		tasks = append(tasks, topic+"/"+id)
	}
	for i, w := range f.worlds() {
		for _, topic := range targets[i] {
			for _, id := range []string{"x", "y"} {
				w.setTimer(topic, id, schemas.Timer{Every: 30 * 24 * time.Hour}, nil)
				timers = append(timers, topic+"/"+id)
			}
		}
	}
	for i := range 9 {
		w, topic := f.worlds()[i%2], targets[i%2][0]
		require.NoError(t, admin.New(w.store).Audit(ctx, []admin.AuditEntry{{Actor: admin.Actor{Who: "w", Via: admin.ViaAPI}, What: "cancel", Topic: topic, TaskID: fmt.Sprint(i), Detail: "{}", Count: 1}}))
	}
	ids := f.walk("/audit?", "audit", 100, named("id"))
	slices.Sort(ids)
	require.Len(t, slices.Compact(ids), 9, "an id is of one database")
	log, err := f.client.Audit(ctx, AuditFilter{})
	require.NoError(t, err)
	require.True(t, slices.IsSortedFunc(log.Entries, func(a, b AuditEntry) int { return cmp.Compare(b.At, a.At) }), log.Entries)
	changed := f.walk("/audit?", "audit", 100, named("task"))
	for i, w := range f.worlds() {
		for _, topic := range targets[i] {
			_, err := admin.New(w.store).SetPolicy(ctx, topic, 1, func(admin.Policy) admin.Policy { return admin.Policy{Paused: true} })
			require.NoError(t, err)
		}
	}
	_, err = admin.New(f.store).SetPolicy(ctx, "b1", 1, func(admin.Policy) admin.Policy { return admin.Policy{Rate: 5} })
	require.NoError(t, err, "the former home of b1 has a policy too, which is not in force")

	of := func(topics ...string) (out []string) {
		for _, name := range tasks {
			if slices.Contains(topics, name[:2]) {
				out = append(out, name)
			}
		}
		return out
	}
	for limit := 1; limit <= 13; limit++ {
		task, ofTopic := named("topic", "id"), named("topic", "task")
		runs := func(names []string) []string { // of timers, which stand among the tasks
			return slices.DeleteFunc(names, func(name string) bool { return strings.Contains(name, "@") })
		}
		require.Equal(t, tasks, runs(f.walk("/tasks?", "tasks", limit, task)), limit)
		require.Equal(t, tasks, f.walk("/tasks?tag=shop:7", "tasks", limit, task), limit)
		require.Equal(t, of("a1"), runs(f.walk("/tasks?topic=a1", "tasks", limit, task)), limit)
		require.Equal(t, of("b2"), runs(f.walk("/tasks?topic=b2", "tasks", limit, task)), limit)
		require.Equal(t, of("b2"), f.walk("/tasks?topic=b2&tag=shop:7", "tasks", limit, task), limit)
		require.Equal(t, timers, f.walk("/timers?", "timers", limit, task), limit)
		require.Equal(t, timers[4:6], f.walk("/timers?topic=b1", "timers", limit, task), limit)
		require.Equal(t, []string{"a1/true", "a2/true", "b1/true", "b2/true"}, f.walk("/targets?", "targets", limit, named("topic", "paused")), limit)
		require.Equal(t, changed, f.walk("/audit?", "audit", limit, named("task")), limit)
		require.Equal(t, []string{"a1/8", "a1/6", "a1/4", "a1/2", "a1/0"}, f.walk("/audit?topic=a1", "audit", limit, ofTopic), limit)
	}
	require.Equal(t, []string{"b1/01"}, f.walk("/tasks?id=01", "tasks", 5, named("topic", "id")))
	require.Equal(t, []string{"b1/01"}, f.walk("/tasks?id=01&topic=b1", "tasks", 5, named("topic", "id")))
	require.Equal(t, []string{"b1"}, f.walk("/targets?like=b1", "targets", 5, named("topic")))
	require.Equal(t, []string{"a1", "b1"}, f.walk("/targets?like=c1", "targets", 5, named("topic")))
	require.Empty(t, f.missing)

	for _, path := range []string{"/tasks?", "/timers?", "/targets?", "/audit?"} {
		code, _, answer := f.ask("GET", path+"limit=1&cursor=AAAA", "")
		require.Equal(t, 422, code, answer)
	}
}

// TestFleetShowsAMovedTaskOnce: while a target moves, both databases have its rows.
func TestFleetShowsAMovedTaskOnce(t *testing.T) {
	f := newFleet(t)
	due := time.Now().Add(time.Hour).UnixMilli()
	for _, w := range f.worlds() {
		w.schedule("b1", "twin", due, nil, nil)
		w.setTimer("b1", "twin", schemas.Timer{Every: 30 * 24 * time.Hour}, nil)
	}
	f.world.schedule("b1", "left", due+1, nil, nil)
	for limit := 2; limit <= 3; limit++ { // here the databases have lanes of their own, so the two stand side by side
		require.Equal(t, []string{"twin"}, f.walk("/tasks?topic=b1&id-prefix=twin", "tasks", limit, named("id")))
	}
	require.Equal(t, []string{"b1/twin"}, f.walk("/timers?", "timers", 1, named("topic", "id")))
	got, err := f.client.Task(t.Context(), "b1", "left")
	require.NoError(t, err, "what the home does not have may be in the former one")
	require.Equal(t, "left", got.ID)
}

// reject makes a dead letter at a time.
func (w *world) reject(topic, id string, at int64) {
	w.t.Helper()
	seq := task.Seq(w.source.ID, w.next)
	letter := task.Change{Seq: seq, Rejected: &task.DeadLetter{Seq: seq, Kind: schemas.KindRejected, Topic: topic, TaskID: id, Reason: "bad"}}
	_, err := intake.New(w.store).Apply(w.t.Context(), intake.Batch{Advance: []intake.Advance{{Source: w.source.ID, From: w.next, To: w.next + 1}}, Changes: []task.Change{letter}}, store.At(at))
	require.NoError(w.t, err)
	w.next++
}

func TestFleetLetters(t *testing.T) {
	f := newFleet(t)
	ctx := t.Context()
	began := time.Now().UnixMilli()
	var byID [2][]string
	var latest []string
	for i := range 9 {
		f.worlds()[i%2].reject([]string{"a1", "b1"}[i%2], fmt.Sprint(i), began+int64(i))
		byID[i%2] = append(byID[i%2], fmt.Sprint(i))
		latest = append([]string{fmt.Sprint(i)}, latest...)
	}
	for limit := 1; limit <= 10; limit++ {
		require.Equal(t, slices.Concat(byID[0], byID[1]), f.walk("/deadletters?", "deadletters", limit, named("task_id")), limit)
		require.Equal(t, latest, f.walk("/deadletters?newest=true", "deadletters", limit, named("task_id")), limit)
		require.Equal(t, byID[1], f.walk("/deadletters?topic=b1", "deadletters", limit, named("task_id")), limit)
	}
	page, err := f.client.Letters(ctx, letters.Filter{Topic: "b1", Limit: 1}, "", false)
	require.NoError(t, err)
	id := page.Letters[0].ID
	require.Equal(t, int64(1)<<44|1, id)
	letter, err := f.client.Letter(ctx, id)
	require.NoError(t, err)
	require.Equal(t, []any{"1", id}, []any{letter.TaskID, letter.ID})
	home, err := f.client.Letter(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, []any{"0", int64(1)}, []any{home.TaskID, home.ID}, "the home's ids stay")
	for _, none := range []int64{77, 2<<44 | 1, 1<<44 | 77} {
		_, err := f.client.Letter(ctx, none)
		require.ErrorIs(t, err, deadletter.ErrNotFound, none)
	}
	n, err := f.client.CountLetters(ctx, letters.Filter{})
	require.NoError(t, err)
	require.EqualValues(t, 9, n)
	n, err = f.fleet.CountLetters(ctx, letters.Filter{})
	require.NoError(t, err)
	require.EqualValues(t, 9, n)

	for who, pager := range map[string]deadletter.Pager{"local": f.fleet, "client": f.client} {
		var seen []int64
		result, err := deadletter.Replay(ctx, pager, letters.Filter{IDs: []int64{id, 1, 3, 2<<44 | 1}}, deadletter.Options{DryRun: true, Each: func(r intake.Replayed) { seen = append(seen, r.ID) }})
		require.NoError(t, err, who)
		require.EqualValues(t, 3, result.Skipped, "%s: a rejected request cannot be replayed: %v", who, result)
		require.Equal(t, []int64{1, 3, id}, seen, who)
		seen = nil
		_, err = deadletter.Replay(ctx, pager, letters.Filter{}, deadletter.Options{DryRun: true, Each: func(r intake.Replayed) { seen = append(seen, r.ID) }})
		require.NoError(t, err, who)
		require.Len(t, seen, 9, who)
	}
	page9, err := f.client.ReplayPage(ctx, letters.Filter{Limit: 5}, 0, true)
	require.NoError(t, err)
	f.other.reject("b1", "later", began+9)
	f.world.reject("a1", "later", began+9)
	require.Equal(t, []int64{1 << 44, 5}, []int64{page9.Next, page9.UpTo}, "the page ends with the first database")
	again, err := f.client.ReplayPage(ctx, letters.Filter{After: page9.Next - 1<<44 + 3}, page9.UpTo, true)
	require.NoError(t, err)
	require.Len(t, again.Letters, 2, "what died meanwhile is not of this run")

	purged, err := deadletter.Purge(ctx, f.client, letters.Filter{IDs: []int64{id}}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, purged)
	_, err = f.client.Letter(ctx, id)
	require.ErrorIs(t, err, deadletter.ErrNotFound)
	_, err = f.client.Letter(ctx, 1)
	require.NoError(t, err, "the letter of the home with the same number stays")
	purged, err = deadletter.Purge(ctx, f.client, letters.Filter{IDs: []int64{2<<44 | 2}}, nil)
	require.NoError(t, err)
	require.Zero(t, purged, "an id of no database is no letter, and not all of them")
	purged, err = deadletter.Purge(ctx, f.client, letters.Filter{}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 10, purged)
}

func TestFleetSums(t *testing.T) {
	f := newFleet(t)
	ctx := t.Context()
	due := time.Now().Add(30 * time.Minute).Truncate(time.Minute).UnixMilli()
	for i, w := range f.worlds() {
		topic := []string{"a1", "b1"}[i]
		w.schedule(topic, "soon", due, nil, nil)
		w.schedule(topic, "late", time.Now().Add(-time.Hour-time.Duration(i)*time.Minute).UnixMilli(), nil, nil)
		w.reject(topic, "dead", time.Now().UnixMilli())
		require.NoError(t, admin.New(w.store).Beat(ctx, admin.Service{ID: "all", Kind: "all", Member: fmt.Sprint("m", i), Figures: []byte(`{"v":1,"window_ms":60000,"last":{"n":{"delivered":60},"lateness":[60]},"targets":["` + topic + `"]}`)}))
		require.NoError(t, admin.New(w.store).SaveMinute(ctx, "all", last(time.Now())-5, []byte(`{"v":1,"n":{"delivered":60},"targets":[{"t":"b1","n":[20,6,4,1]},{"t":"`+topic+`","n":[30]}]}`)))
	}
	f.other.schedule("b1", "soon too", due+1, nil, nil)

	counted, err := f.client.Forecast(ctx, ForecastFilter{From: due - 60_000, To: due + 120_000})
	require.NoError(t, err)
	require.Equal(t, Forecast{Steps: []ForecastStep{{due, 3}}}, counted)
	counted, err = f.client.Forecast(ctx, ForecastFilter{Topic: "b1", From: due - 60_000, To: due + 120_000})
	require.NoError(t, err)
	require.Equal(t, Forecast{Steps: []ForecastStep{{due, 2}}}, counted)

	o, err := f.client.Overview(ctx, 60, "")
	require.NoError(t, err)
	require.Empty(t, o.Missing)
	require.Equal(t, Reporting{1, 1}, o.Services, "one process, which stands in both")
	require.EqualValues(t, 2, o.Overdue.Count)
	require.InDelta(t, time.Now().Add(-61*time.Minute).UnixMilli(), o.Overdue.Oldest, 30_000)
	require.Equal(t, []LetterKind{{"rejected", 2, false}}, o.DeadLetters)
	require.Equal(t, []string{"a1", "b1"}, o.Targets.Unresponsive)
	require.InDelta(t, 2.0, o.Now.Delivered, 0.001)
	require.Len(t, o.Series, 1)
	require.InDelta(t, 2.0, o.Series[0].Delivered, 0.001)
	require.Equal(t, "8 of 8 slots have no living owner", o.alerts()["NotyetUnownedSlots"])

	traffic := map[string]int64{}
	for _, of := range o.Traffic {
		traffic[of.Topic] = of.Series[0].Delivered
	}
	require.Equal(t, map[string]int64{"a1": 30, "b1": 90}, traffic, "of both databases together")

	own := access.With(ctx, access.Caller{Name: "b", Role: access.Read, Topics: []string{"b*"}})
	mine, err := f.fleet.overviewOf(own, access.From(own))
	require.NoError(t, err)
	require.EqualValues(t, 1, mine.Overdue.Count)
	require.Equal(t, []LetterKind{{"rejected", 1, false}}, mine.DeadLetters)
	require.Equal(t, []string{"b1"}, mine.Targets.Unresponsive)

	c, err := f.client.Cluster(ctx)
	require.NoError(t, err)
	require.Len(t, c.Services, 1)
	require.Equal(t, []int{0, 1}, c.Shards)
	require.Len(t, c.Slots, 8)
	require.Equal(t, []int{0, 1}, []int{c.Slots[3].Shard, c.Slots[4].Shard})
}

func TestFleetChangesATargetInItsHome(t *testing.T) {
	f := newFleet(t)
	ctx := t.Context()
	yes := true
	_, err := f.client.ChangeTarget(ctx, "b1", TargetChange{Paused: &yes})
	require.NoError(t, err)
	for i, w := range f.worlds() {
		policies, err := admin.New(w.store).Policies(ctx)
		require.NoError(t, err)
		require.Len(t, policies, i)
	}
	f.other.setTimer("b1", "t", schemas.Timer{Every: 30 * 24 * time.Hour}, nil)
	run, err := f.client.RunTimer(ctx, "b1", "t", RunTimer{})
	require.NoError(t, err)
	got, err := f.client.Task(ctx, "b1", run.ID)
	require.NoError(t, err)
	require.Equal(t, "b1", got.Topic)
	_, err = look.New(f.store).Get(ctx, "b1", run.ID)
	require.ErrorIs(t, err, look.ErrNotFound)
	filled, err := f.client.BackfillTimer(ctx, "b1", "t", Backfill{From: At(time.Now().Add(-time.Hour).UnixMilli())})
	require.NoError(t, err)
	require.Zero(t, filled.Made)
	_, err = f.client.AuditTimer(ctx, "b1", "t", TimerAuditFilter{})
	require.NoError(t, err)
	require.Subset(t, f.walk("/audit?", "audit", 2, named("topic", "what")), []string{"b1/timer-run", "b1/target"})

	code, _, answer := f.ask("POST", "/tasks", `{"topic":"b1","id":"new","delay":"1h"}`)
	require.Equal(t, 202, code, answer)
	noted, err := look.New(f.other.store).ListAudit(ctx, look.AuditFilter{What: "schedule"})
	require.NoError(t, err)
	require.Len(t, noted.Entries, 1, "noted where its target lives")

	for _, path := range []string{"/slots", "/slots?shard=2"} {
		code, _, answer := f.ask("GET", path, "")
		require.Equal(t, 422, code, answer)
		require.Contains(t, answer, "name one of [0 1]")
	}
	code, _, answer = f.ask("PUT", "/slots", `{"slots":6}`)
	require.Equal(t, 422, code, answer)
	now, err := f.client.SetSlots(ctx, 1, 6)
	require.NoError(t, err)
	require.Equal(t, 6, now.Target)
	for shard, slots := range []int{4, 6} {
		now, err := f.client.Slots(ctx, shard)
		require.NoError(t, err)
		require.Equal(t, slots, now.Target)
	}
}

// decide does what the scanners of both databases do with cancels of many, until the test ends.
func (f *fleet) decide() {
	for _, w := range f.worlds() {
		in, topic := intake.New(w.store), [16]byte{3}
		source, err := in.Source(f.t.Context(), schemas.TopicCancels, topic, 0, 0)
		require.NoError(f.t, err)
		c, err := kgo.NewClient(kgo.SeedBrokers(w.broker), kgo.ConsumeTopics(schemas.TopicCancels), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
		require.NoError(f.t, err)
		ctx, stop := context.WithCancel(f.t.Context())
		ended := make(chan struct{})
		f.t.Cleanup(func() { stop(); <-ended; c.Close() })
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				for _, r := range c.PollFetches(ctx).Records() {
					many, err := task.DecodeCancels(r.Value)
					assert.NoError(f.t, err)
					_, err = in.Apply(ctx, intake.Batch{
						Advance: []intake.Advance{{Source: source.ID, From: r.Offset, To: r.Offset + 1}}, Changes: []task.Change{{Seq: task.Seq(source.ID, r.Offset), Cancels: &many}},
					}, func() int64 { return time.Now().UnixMilli() })
					assert.True(f.t, err == nil || ctx.Err() != nil, err)
				}
			}
		}()
	}
}

// A pause of a target that has moved, as this process has not heard yet, is in force in its new home.
func TestFleetPausesATargetThatHasJustMoved(t *testing.T) {
	f := newFleet(t)
	dbs := shards.Databases{0: shards.New(f.local.store), 1: shards.New(f.other.local.store)}
	f.fleet.homes = new(shardmap.Known)
	_, err := dbs.Move(t.Context(), shardmap.Rule{Pattern: "c", Former: 0, Shard: 1})
	require.NoError(t, err)
	paused := true
	_, err = f.fleet.ChangeTarget(t.Context(), "c", TargetChange{Paused: &paused})
	require.NoError(t, err)
	policies, err := admin.New(f.other.local.store).Policies(t.Context())
	require.NoError(t, err)
	require.Len(t, policies, 1)
	policies, err = admin.New(f.local.store).Policies(t.Context())
	require.NoError(t, err)
	require.Empty(t, policies)

	rule := shardmap.Rule{N: 2, Pattern: "c", Former: 1, Shard: 0, Token: "0123456789abcdef"}
	_, err = dbs[1].Announce(t.Context(), rule, 0)
	require.NoError(t, err)
	go func() {
		time.Sleep(200 * time.Millisecond)
		_, _ = dbs[1].Leave(t.Context(), rule.Token)
	}()
	_, err = f.fleet.ChangeTarget(t.Context(), "c", TargetChange{Paused: &paused})
	require.NoError(t, err)
	policies, err = admin.New(f.local.store).Policies(t.Context())
	require.NoError(t, err)
	require.Len(t, policies, 1, "it waited for the move")
}

func TestFleetCancelsMany(t *testing.T) {
	f := newFleet(t)
	ctx := t.Context()
	f.decide()
	due := time.Now().Add(time.Hour).UnixMilli()
	for i := range 3 {
		f.schedule("a1", fmt.Sprint(i), due+int64(i), nil, nil)
		f.other.schedule("b1", fmt.Sprint(i), due+int64(i), nil, nil)
	}
	counted, err := f.client.CancelMany(ctx, CancelMany{All: true, DryRun: true})
	require.NoError(t, err)
	require.Equal(t, CancelledMany{Matched: 6}, counted)
	done, err := f.client.CancelMany(ctx, CancelMany{Topic: "b1", IDPrefix: "1"})
	require.NoError(t, err)
	require.Equal(t, CancelledMany{Cancelled: 1, Matched: 1}, done)
	done, err = f.client.CancelMany(ctx, CancelMany{All: true})
	require.NoError(t, err)
	require.Equal(t, CancelledMany{Cancelled: 5, Matched: 5}, done)

	for _, w := range f.worlds() {
		w.schedule("a2", "twin", due, nil, nil)
		w.local.changeFor = 0
	}
	first, err := f.client.CancelMany(ctx, CancelMany{All: true, DryRun: true})
	require.NoError(t, err)
	require.NotEmpty(t, first.Cursor, "the time is over before the second database")
	rest, err := f.client.CancelMany(ctx, CancelMany{All: true, DryRun: true, Cursor: first.Cursor})
	require.NoError(t, err)
	require.Equal(t, int64(2), first.Matched+rest.Matched)
	require.Empty(t, rest.Cursor)
}

// Tasks that leave a database are not there for the cancels: nobody cancels many meanwhile.
func TestFleetCancelsNoneOfTargetsThatMove(t *testing.T) {
	f := newFleet(t)
	f.fleet.homes = new(shardmap.Known)
	ctx := t.Context()
	f.decide()
	due := time.Now().Add(time.Hour).UnixMilli()
	f.schedule("a1", "x", due, nil, nil)
	f.schedule("a2", "x", due, nil, nil)
	dbs := shards.Databases{0: shards.New(f.local.store), 1: shards.New(f.other.local.store)}
	rule := shardmap.Rule{N: 1, Pattern: "a1", Former: 0, Shard: 1, Token: "0123456789abcdef"}
	refused := func() {
		for _, body := range []string{`{"topic": "a1"}`, `{"all": true}`} {
			status, after, answer := f.ask(http.MethodPost, "/tasks/cancel-many", body)
			require.Equal(t, http.StatusServiceUnavailable, status, answer)
			require.NotEmpty(t, after)
		}
		ends, err := f.fleet.cancelsEnds(ctx)
		require.NoError(t, err)
		require.Empty(t, ends, "nothing is published")
	}
	_, err := dbs[1].Announce(ctx, rule, 0) // the new home is asked first
	require.NoError(t, err)
	refused()
	_, err = dbs[0].Announce(ctx, rule, 0)
	require.NoError(t, err)
	_, err = dbs[0].Leave(ctx, rule.Token)
	require.NoError(t, err)
	refused()
	done, err := f.client.CancelMany(ctx, CancelMany{Topic: "a2"})
	require.NoError(t, err)
	require.Equal(t, CancelledMany{Cancelled: 1, Matched: 1}, done)
	ends, err := f.fleet.cancelsEnds(ctx)
	require.NoError(t, err)
	require.Len(t, ends, 1)
	require.NoError(t, dbs.Tend(ctx))
	require.NoError(t, dbs.Follow(ctx))
	done, err = f.client.CancelMany(ctx, CancelMany{Topic: "a1"})
	require.NoError(t, err)
	require.Equal(t, int64(1), done.Cancelled)
}

// A service looks at the rules once a second. A task whose target has left since is found all the same.
func TestFleetFindsWhatHasJustMoved(t *testing.T) {
	f := newFleet(t)
	f.fleet.homes = new(shardmap.Known)
	ctx := t.Context()
	f.schedule("a1", "x", time.Now().Add(time.Hour).UnixMilli(), nil, nil)
	dbs := shards.Databases{0: shards.New(f.local.store), 1: shards.New(f.other.local.store)}
	rule := shardmap.Rule{N: 1, Pattern: "a1", Former: 0, Shard: 1, Token: "0123456789abcdef"}
	for _, n := range []int{1, 0} {
		_, err := dbs[n].Announce(ctx, rule, 0)
		require.NoError(t, err)
	}
	_, err := dbs[0].Leave(ctx, rule.Token)
	require.NoError(t, err)
	require.NoError(t, dbs.Tend(ctx))
	require.NoError(t, dbs.Follow(ctx))
	status, _, answer := f.ask(http.MethodGet, "/tasks/a1/x", "")
	require.Equal(t, http.StatusOK, status, answer)
}

// A move is announced, and takes long: the next tasks are in no line. Nobody says that there is none.
func TestFleetKnowsWhatIsAboutToMove(t *testing.T) {
	f := newFleet(t)
	ctx := t.Context()
	f.schedule("a1", "x", time.Now().Add(time.Hour).UnixMilli(), nil, nil)
	dbs := shards.Databases{0: shards.New(f.local.store), 1: shards.New(f.other.local.store)}
	rule := shardmap.Rule{N: 1, Pattern: "a1", Former: 0, Shard: 1, Token: "0123456789abcdef"}
	for _, n := range []int{1, 0} {
		_, err := dbs[n].Announce(ctx, rule, 0)
		require.NoError(t, err)
	}
	status, _, answer := f.ask(http.MethodGet, "/tasks/a1/x", "")
	require.Equal(t, http.StatusOK, status, answer)
	status, _, answer = f.ask(http.MethodGet, "/tasks/a2/x", "")
	require.Equal(t, http.StatusNotFound, status, "another target stays: %s", answer)
	page, err := look.New(f.local.store).List(ctx, look.ListFilter{Topic: "a1"})
	require.NoError(t, err)
	left, err := intake.Moves{Intake: intake.New(f.local.store)}.TakeOut(ctx, intake.Following{N: 1, Token: rule.Token}, 0, []int64{page.Tasks[0].Seq})
	require.NoError(t, err)
	require.Equal(t, 1, left)
	status, _, answer = f.ask(http.MethodGet, "/tasks/a1/x", "")
	require.Equal(t, http.StatusServiceUnavailable, status, answer)
	for n := range dbs {
		_, err = dbs[n].Withdraw(ctx, rule.Token)
		require.NoError(t, err)
	}
	status, _, answer = f.ask(http.MethodGet, "/tasks/a1/x", "")
	require.Equal(t, http.StatusOK, status, answer)
	for _, other := range []shardmap.Rule{shardmap.Removal(1), {Pattern: "*", Former: 1, Shard: 0}} { // neither takes a1 away
		other.N, other.Token = 1, "fedcba9876543210"
		_, err := dbs[0].Announce(ctx, other, 0)
		require.NoError(t, err)
		status, _, answer = f.ask(http.MethodGet, "/tasks/a1/none", "")
		require.Equal(t, http.StatusNotFound, status, answer)
		_, err = dbs[0].Withdraw(ctx, other.Token)
		require.NoError(t, err)
	}
}

// TestCancelsOfOneDatabase: the same task with the same seq stands in another one. Scanners of both
// read the cancels.
func TestCancelsOfOneDatabase(t *testing.T) {
	f := newFleet(t)
	ctx := t.Context()
	f.decide()
	due := time.Now().Add(time.Hour).UnixMilli()
	for _, w := range f.worlds() {
		w.schedule("b1", "twin", due, nil, nil)
	}
	done, err := f.other.local.CancelMany(ctx, CancelMany{Topic: "b1"})
	require.NoError(t, err)
	require.Equal(t, CancelledMany{Cancelled: 1, Matched: 1}, done)
	require.Eventually(t, func() bool { // the other has read the record too
		var next int64
		for _, s := range must(intake.New(f.store).Sources(ctx))(t) {
			if s.Topic == schemas.TopicCancels {
				next = s.Next
			}
		}
		return next == 1
	}, time.Minute, 10*time.Millisecond)
	left, err := look.New(f.store).Get(ctx, "b1", "twin")
	require.NoError(t, err)
	require.Equal(t, "pending", left.State)
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		require.NoError(t, err)
		return v
	}
}

func TestFleetWithoutADatabase(t *testing.T) {
	f := newFleet(t)
	ctx := t.Context()
	due := time.Now().Add(time.Hour).UnixMilli()
	f.schedule("a1", "here", due, nil, nil)
	f.other.schedule("b1", "there", due, nil, nil)
	f.reject("a1", "dead", time.Now().UnixMilli())
	require.NotEmpty(t, f.walk("/tasks?", "tasks", 1, named("id")), "a first look: cursors need a secret of the home")
	f.fleet.members[1].Set(nil)

	for _, path := range []string{"/tasks", "/tasks?tag=x", "/tasks?id=here", "/timers", "/targets", "/audit", "/deadletters", "/deadletters?newest=true", "/deadletters/count", "/forecast", "/cluster"} {
		code, _, answer := f.ask("GET", path, "")
		require.Equal(t, 200, code, answer)
		var partial Partial
		require.NoError(t, json.Unmarshal([]byte(answer), &partial))
		require.Equal(t, []int{1}, partial.Missing, path)
	}
	for path, body := range map[string]string{"/tasks/cancel-many": `{"all":true,"dry_run":true}`, "/deadletters/replay": `{"kind":"dead","dry_run":true}`, "/deadletters/purge": `{"kind":"dead"}`} {
		code, _, answer := f.ask("POST", path, body)
		require.Equal(t, 200, code, answer)
		require.Contains(t, answer, `"missing":[1]`, path)
	}
	require.Equal(t, []string{"here"}, f.walk("/tasks?", "tasks", 1, named("id")))
	o, err := f.client.Overview(ctx, 60, "")
	require.NoError(t, err)
	require.Equal(t, []Missing{{"database 1", "it does not answer: what it holds is in none of these figures"}}, o.Missing)
	require.EqualValues(t, 1, o.DeadLetters[0].Count)

	_, err = f.client.Tasks(ctx, TaskFilter{})
	require.NoError(t, err)
	require.Equal(t, [][]int{{1}}, f.missing, "a command is told")

	for _, path := range []string{"/tasks/b1/there", "/tasks?topic=b1", "/tasks?topic=b1&id=there", "/timers/b1/t", "/timers?topic=b1", "/forecast?topic=b1", "/audit?topic=b1", "/timers/b1/t/audit", "/slots?shard=1"} {
		code, retry, answer := f.ask("GET", path, "")
		require.Equal(t, []any{503, "1"}, []any{code, retry}, path+answer)
		require.Contains(t, answer, "database 1 does not answer", path)
	}
	for _, c := range [][3]string{{"PUT", "/targets/b1", `{"paused":true}`}, {"POST", "/timers/b1/t/run", `{}`}, {"POST", "/timers/b1/t/backfill", `{"from":1800000000000}`}, {"POST", "/tasks/cancel-many", `{"topic":"b1"}`}, {"POST", "/tasks", `{"topic":"b1","id":"x","delay":"1h"}`}, {"PUT", "/slots?shard=1", `{"slots":6}`}} {
		code, retry, answer := f.ask(c[0], c[1], c[2])
		require.Equal(t, []any{503, "1"}, []any{code, retry}, c[1]+answer)
		require.Contains(t, answer, "database 1 does not answer", c[1])
	}
	code, _, answer := f.ask("GET", "/tasks/a1/here", "")
	require.Equal(t, 200, code, answer)

	f.fleet.members[0].Set(nil)
	for _, path := range []string{"/tasks", "/deadletters", "/deadletters/count", "/overview", "/cluster", "/tasks/a1/here"} {
		code, _, answer := f.ask("GET", path, "")
		require.Equal(t, 503, code, answer)
	}
	f.fleet.members[1].Set(f.other.local)
	require.Equal(t, []string{"there"}, f.walk("/tasks?", "tasks", 1, named("id")), "the home is away, and the others answer")
}

// A pause holds for all tasks of a target: those that still follow it are in its former home.
func TestAPauseHoldsForTasksThatFollow(t *testing.T) {
	f := newFleet(t)
	homes := new(shardmap.Known)
	homes.Learn(&shardmap.Map{Rules: []shardmap.Rule{{N: 1, Pattern: "b*", Shard: 1, Held: true}}})
	yes := true
	for range 2 {
		_, err := NewFleet([]*Member{NewMember(0, f.local), NewMember(1, f.other.local)}, homes).ChangeTarget(t.Context(), "b1", TargetChange{Paused: &yes})
		require.NoError(t, err)
	}
	for _, w := range []*world{f.world, f.other} {
		all, err := admin.New(w.store).Policies(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.True(t, all[0].Paused)
	}
	_, err := f.fleet.ChangeTarget(t.Context(), "b2", TargetChange{Paused: &yes})
	require.NoError(t, err)
	all, err := admin.New(f.store).Policies(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1, "its tasks have all followed")
}

func TestAnErrorThatIsNoAnswer(t *testing.T) {
	m := NewMember(1, nil)
	for err, away := range map[error]bool{
		errors.New("invalid connection"): true, context.DeadlineExceeded: true, fmt.Errorf("listing tasks: %w", context.DeadlineExceeded): true,
		look.ErrNotFound: false, look.ErrNoTimer: false, look.ErrState: false, wrong("tag", "", "x"): false, ErrBusy: false, ErrUnknownOutcome: false, ErrUndecided: false, kafkaError{errors.New("x")}: false,
	} {
		require.Equal(t, away, m.isAway(err), err)
	}
	require.True(t, m.isAway(share.ErrTurn), "who was before waits for a database that has just not answered")
	require.False(t, NewMember(1, nil).isAway(share.ErrTurn), "others are served before")
}
