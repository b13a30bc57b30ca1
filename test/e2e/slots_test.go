package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/test/recordtest"
)

// TestSlotsChangeUnderLoad: three dispatchers go from 64 slots to 96 and to 48, and one of them is killed in the middle of the first change.
// Meanwhile tasks fall due, of which some are cancelled or replaced at that very moment, a target is paused, and timers run, of which some
// are disabled. NOTYET_CLUSTER_RATE says how many tasks fall due a second. Many more tasks are due much later: NOTYET_CLUSTER_TASKS says how
// many. The log says what it costs to move them, and how late others are meanwhile.
func TestSlotsChangeUnderLoad(t *testing.T) {
	r := &resized{cluster: oneDatabase(t, 64), later: clusterTasks(t, 20_000), rate: clusterNumber(t, "NOTYET_CLUSTER_RATE", 325)}
	r.db = r.open()
	r.judging(4, r.topic("load"), r.topic("paused"), r.topic("ticks"), r.topic("later"))
	r.spawn("scanner", "scanner")
	victim := r.spawn("one", "dispatcher")
	r.spawn("two", "dispatcher")
	r.spawn("three", "dispatcher")
	r.eventually("each has slots", time.Minute, func() bool { return r.owners() == 3 })
	r.warm()
	r.notyet("target", "pause", r.topic("paused"))
	ended := r.slotsOf("warm")
	r.keepForLater()

	r.begin = time.Now().Add(3 * time.Second)
	r.plan()
	performed := make(chan struct{})
	go func() {
		defer close(performed)
		r.send(r.actions)
	}()
	before := r.slotsOf("later")
	r.timersRan()
	grown := r.resize(96, func() {
		r.eventually("some slots are split, not all", time.Minute, func() bool { g := r.growth(); return g.Split > 0 })
		require.Less(t, r.growth().Whole, 64, "it was over before the kill")
		r.killed = time.Now().UnixMilli()
		victim.kill()
		r.disable(r.silenced[:len(r.silenced)/2])
	})
	after := r.slotsOf("later")
	moved := r.compare(before, after, 96, func(slot int) bool { return slot < 64 })
	require.InDelta(t, 1.0/3, moved, 0.02, "the share that moved")
	before = after
	shrunk := r.resize(48, func() { r.disable(r.silenced[len(r.silenced)/2:]) })
	after = r.slotsOf("later")
	half := r.compare(before, after, 48, func(slot int) bool { return slot >= 48 })
	require.Equal(t, ended, r.slotsOf("warm"), "what has ended stays where it was")
	<-performed
	require.NoError(t, r.client.Flush(t.Context()))
	r.drained()
	r.judge()
	r.sameInRedis()
	t.Logf("%d tasks are due later; 64 to 96 slots, with a kill: %s, %.1f %% moved; 96 to 48 slots: %s, %.1f %% moved", r.later, grown, 100*moved, shrunk, 100*half)
}

// resized is a cluster whose number of slots changes, and what was asked of it.
type resized struct {
	*cluster
	db    *sql.DB
	later int // tasks that are due in hours
	rate  int // tasks a second that fall due meanwhile

	begin   time.Time // of the span in which tasks fall due
	killed  int64
	changes []change
	actions []action

	due       map[string]int64    // of what is to be delivered, by topic/id
	keys      map[string]string   // of tasks whose order is judged, by topic/id
	cancelled map[string]bool     // ids of which a cancel was sent
	replaced  map[string]bool     // ids of which a second version was sent
	silenced  []string            // timers that are disabled while tasks move
	answers   map[string][]answer // by id
}

// change is a time, in Unix ms, in which the number of slots changed.
type change struct{ from, to int64 }

type answer struct {
	state schemas.State
	at    int64
}

// span is the time in which tasks fall due. There are more of them where more is to be moved.
func (r *resized) span() time.Duration {
	return 12*time.Second + time.Duration(r.later)*120*time.Microsecond
}

// claimedAhead is how long before its due time a run may be claimed at most: before a burst, and a little for the clocks.
const claimedAhead = 4 * time.Second

func (r *resized) topic(name string) string { return r.name + "." + name }

func (r *resized) owners() int {
	all, err := r.store.Slots(r.t.Context())
	require.NoError(r.t, err)
	owners := map[string]bool{}
	for _, s := range all {
		owners[s.Owner] = true
	}
	if owners[""] {
		return 0
	}
	return len(owners)
}

func (r *resized) growth() admin.Growth {
	g, err := admin.New(r.store).Growth(r.t.Context())
	require.NoError(r.t, err)
	return g
}

// slotsOf returns where the tasks of a topic stand.
func (r *resized) slotsOf(name string) map[string]int {
	rows, err := r.db.QueryContext(r.t.Context(), "SELECT id, slot FROM tasks WHERE topic = ?", r.topic(name))
	require.NoError(r.t, err)
	defer rows.Close()
	out := map[string]int{}
	for rows.Next() {
		var id string
		var slot int
		require.NoError(r.t, rows.Scan(&id, &slot))
		out[id] = slot
	}
	require.NoError(r.t, rows.Err())
	return out
}

func (r *resized) number(query string, args ...any) (n int64) {
	require.NoError(r.t, r.db.QueryRowContext(r.t.Context(), query, args...).Scan(&n))
	return n
}

func (r *resized) produce(rec *kgo.Record) {
	r.client.Produce(context.Background(), rec, func(_ *kgo.Record, err error) {
		if err != nil {
			r.t.Error(err)
		}
	})
}

func (r *resized) send(all []action) {
	slices.SortStableFunc(all, func(a, b action) int { return int(a.at - b.at) })
	for _, a := range all {
		time.Sleep(time.Until(time.UnixMilli(a.at)))
		r.produce(a.record)
	}
}

// keepForLater stores tasks that are due long after the test, half of them in the window of the index. Each has a key of its own.
func (r *resized) keepForLater() {
	for i := range r.later {
		id := "later-" + strconv.Itoa(i)
		rec := request(r.intake, r.topic("later"), schemas.HeaderID, id, schemas.HeaderDelay, []string{"80m", "5h"}[i%2], schemas.HeaderEvents, "none")
		r.produce(keyed(rec, id, "later"))
	}
	require.NoError(r.t, r.client.Flush(r.t.Context()))
	r.eventually("all are stored", time.Minute+time.Duration(r.later)*time.Millisecond, func() bool {
		return r.number("SELECT COUNT(*) FROM tasks WHERE topic = ?", r.topic("later")) == int64(r.later)
	})
}

// plan decides what is asked for: tasks that fall due in the span, in no order, and what comes at the very moment.
func (r *resized) plan() {
	r.due, r.keys, r.cancelled, r.replaced = map[string]int64{}, map[string]string{}, map[string]bool{}, map[string]bool{}
	random := rand.New(rand.NewPCG(1, 2))
	ask := func(topic, id, key string, due int64, headers ...string) *kgo.Record {
		rec := request(r.intake, topic, append([]string{schemas.HeaderID, id, schemas.HeaderAt, strconv.FormatInt(due, 10)}, headers...)...)
		return keyed(rec, key, "1")
	}
	when := func() int64 { return r.begin.Add(time.Duration(random.Int64N(int64(r.span())))).UnixMilli() }
	now, load, paused := time.Now().UnixMilli(), r.topic("load"), r.topic("paused")
	asked := func(due int64) int64 { return max(now, due-10_000) } // long before it is due, and so many a second
	seconds := int(r.span() / time.Second)
	for i := range r.rate * 8 / 13 * seconds {
		id, key, due := fmt.Sprintf("plain-%d", i), fmt.Sprintf("k%d", random.IntN(200)), when()
		r.due[load+"/"+id] = due
		if due > now+6000 { // stored long before anything near it is claimed: its place is certain
			r.keys[load+"/"+id] = key
		}
		r.actions = append(r.actions, action{asked(due), ask(load, id, key, due, schemas.HeaderEvents, "none")})
	}
	for i := range r.rate * 2 / 13 * seconds {
		id, due := fmt.Sprintf("cancel-%d", i), when()
		r.cancelled[id] = true
		r.actions = append(r.actions, action{asked(due), ask(load, id, id, due)},
			action{due - 50 + random.Int64N(101), keyed(request(r.intake, load, schemas.HeaderID, id, schemas.HeaderOp, "cancel"), id, "")})
	}
	for i := range r.rate * 2 / 13 * seconds {
		id, due := fmt.Sprintf("replace-%d", i), when()
		r.replaced[id] = true
		second := ask(load, id, id, due+500, schemas.HeaderVersion, "2", schemas.HeaderEvents, "all")
		second.Value = []byte("2")
		r.due[load+"/"+id] = due + 500
		r.actions = append(r.actions, action{asked(due), ask(load, id, id, due, schemas.HeaderVersion, "1")}, action{due - 50 + random.Int64N(101), second})
	}
	for i := range r.rate / 13 * seconds {
		id, key, due := fmt.Sprintf("paused-%d", i), fmt.Sprintf("p%d", i%30), when()
		r.due[paused+"/"+id], r.keys[paused+"/"+id] = due, key
		r.actions = append(r.actions, action{asked(due), ask(paused, id, key, due, schemas.HeaderEvents, "none")})
	}
	r.planTimers(now)
}

// planTimers decides which timers run each second: some throughout the span, and others until they are disabled.
func (r *resized) planTimers(now int64) {
	from, until := r.begin.Add(time.Second).Truncate(time.Second), r.begin.Add(r.span()).Truncate(time.Second)
	timer := func(id string, headers ...string) {
		rec := request(r.intake, r.topic("ticks"), append([]string{schemas.HeaderID, id, schemas.HeaderOp, "timer", schemas.HeaderEvery, "1s", schemas.HeaderMisfire, "all",
			schemas.HeaderFrom, from.UTC().Format(time.RFC3339)}, headers...)...)
		r.actions = append(r.actions, action{now, keyed(rec, id, "run")})
	}
	for i := range 20 {
		id := fmt.Sprintf("ticking-%d", i)
		timer(id, schemas.HeaderUntil, until.UTC().Format(time.RFC3339))
		for at := from; !at.After(until); at = at.Add(time.Second) {
			r.due[r.topic("ticks")+"/"+id+"@"+strconv.FormatInt(at.UnixMilli(), 10)] = at.UnixMilli()
		}
	}
	for i := range 40 {
		r.silenced = append(r.silenced, fmt.Sprintf("silenced-%d", i))
		timer(r.silenced[i])
	}
}

// timersRan waits until each timer that is disabled later has run.
func (r *resized) timersRan() {
	ran := map[string]bool{}
	r.read(r.reader([]string{r.topic("ticks")}), time.Minute, func(rec *kgo.Record) bool {
		timer, _, _ := strings.Cut(recordtest.Header(rec, schemas.HeaderID), "@")
		ran[timer] = slices.Contains(r.silenced, timer)
		return !slices.ContainsFunc(r.silenced, func(id string) bool { return !ran[id] })
	})
}

// disable disables timers, of which the runs of the next 90 s are stored.
func (r *resized) disable(timers []string) {
	for _, id := range timers {
		r.produce(keyed(request(r.intake, r.topic("ticks"), schemas.HeaderID, id, schemas.HeaderOp, "timer-disable"), id, ""))
	}
	require.NoError(r.t, r.client.Flush(r.t.Context()))
}

// resize changes the number of slots, lets something happen in the middle of it, and returns what the change has cost.
func (r *resized) resize(to int, meanwhile func()) string {
	began, before := time.Now(), r.cpu()
	r.notyet("slots", "set", strconv.Itoa(to))
	meanwhile()
	r.eventually(fmt.Sprintf("%d slots", to), 10*time.Minute+time.Duration(r.later)*time.Millisecond, func() bool { g := r.growth(); return g.Settled() && g.Base == to })
	took, spent := time.Since(began), 0.0
	r.changes = append(r.changes, change{began.UnixMilli(), began.Add(took).UnixMilli()})
	for pid, seconds := range r.cpu() {
		spent += seconds - before[pid]
	}
	return fmt.Sprintf("%v, CPU of the services %.1f s", took.Round(100*time.Millisecond), spent)
}

// cpu returns the seconds of CPU that the living services have used, by their processes.
func (r *resized) cpu() map[int]float64 {
	seconds := map[int]float64{}
	for _, p := range r.all {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if err != nil || len(fields) < 13 {
			continue
		}
		for _, ticks := range fields[11:13] { // user and system, in hundredths
			n, err := strconv.Atoi(ticks)
			require.NoError(r.t, err)
			seconds[p.cmd.Process.Pid] += float64(n) / 100
		}
	}
	return seconds
}

// compare verifies that each task stands where it belongs and that none has moved for nothing, and returns the share that moved.
func (r *resized) compare(before, after map[string]int, n int, leaves func(slot int) bool) float64 {
	require.Len(r.t, after, len(before))
	moved := 0
	for id, was := range before {
		is := after[id]
		require.Equal(r.t, slots.Of(r.topic("later"), []byte(id), id, n), is, id)
		if is != was {
			moved++
			require.True(r.t, leaves(was), "%s moved from %d to %d", id, was, is)
		}
	}
	return float64(moved) / float64(len(before))
}

// drained waits until nothing is left of what falls due in the test, resumes the paused target, and waits again.
func (r *resized) drained() {
	left := func() bool {
		return r.number("SELECT COUNT(*) FROM tasks t JOIN slots s ON s.slot = t.slot WHERE t.pos > s.done AND t.pos < ?", time.Now().Add(30*time.Minute).UnixMilli())+
			r.number("SELECT COUNT(*) FROM outbox")+r.number("SELECT COUNT(*) FROM waiting") == 0
	}
	time.Sleep(time.Until(r.begin.Add(r.span() + time.Second)))
	r.eventually("nothing is left but what is held", time.Minute, left)
	time.Sleep(claimedAhead + time.Second) // in which runs of disabled timers would come
	require.Empty(r.t, r.arrivals(r.topic("paused")))
	r.notyet("target", "resume", r.topic("paused"))
	r.eventually("nothing is held", time.Minute, func() bool {
		return r.number("SELECT COUNT(*) FROM tasks t JOIN slots s ON s.slot = t.slot WHERE t.pos > s.done AND t.topic = ?", r.topic("paused")) == 0
	})
}

// judge reads what came of all that was asked for.
func (r *resized) judge() {
	r.answers = map[string][]answer{}
	for _, rec := range r.arrivals(r.results) {
		e, err := schemas.DecodeEvent(rec)
		require.NoError(r.t, err)
		r.answers[e.ID] = append(r.answers[e.ID], answer{e.State, rec.Timestamp.UnixMilli()})
	}
	copies := map[string][]arrival{} // by topic/id, of replaced ones with /version
	for _, name := range []string{"load", "paused", "ticks"} {
		last := map[string]int64{} // due time by key
		for _, rec := range r.arrivals(r.topic(name)) {
			d, _, err := schemas.ParseDelivery(rec)
			require.NoError(r.t, err)
			id := rec.Topic + "/" + d.ID
			require.GreaterOrEqual(r.t, rec.Timestamp.UnixMilli(), d.Due, "early: %s", id)
			if key, ordered := r.keys[id]; ordered && len(copies[id]) == 0 {
				require.GreaterOrEqual(r.t, d.Due, last[key], "%s was overtaken by a later task of its key", id)
				last[key] = d.Due
			}
			if r.replaced[d.ID] {
				id += "/" + string(rec.Value)
			}
			copies[id] = append(copies[id], arrival{at: rec.Timestamp.UnixMilli(), key: d.Key})
		}
	}
	r.judgeSilenced(copies)
	r.judgeAtTheMoment(copies)
	for id := range r.due {
		require.NotEmpty(r.t, copies[id], "lost: %s", id)
	}
	extra := 0
	for id, all := range copies {
		_, asked := r.due[strings.TrimSuffix(id, "/1")]
		require.True(r.t, asked || r.cancelled[id[strings.LastIndexByte(id, '/')+1:]], "nobody may get %s", id)
		for _, again := range all[1:] {
			extra++
			require.Equal(r.t, all[0].key, again.key, id)
			require.InDelta(r.t, r.killed, all[0].at, 3000, "%s came again, far from the kill", id)
		}
	}
	r.t.Logf("%d deliveries, lost 0, early 0, %d copies beside the kill", len(copies), extra)
	r.tellLateness(copies)
}

// tellLateness logs how late the tasks of no special kind were, by what happened when they were due.
func (r *resized) tellLateness(copies map[string][]arrival) {
	late := map[string][]int64{}
	for id, due := range r.due {
		if !strings.HasPrefix(id, r.topic("load")+"/plain-") {
			continue
		}
		when := "calm"
		change := slices.IndexFunc(r.changes, func(c change) bool { return due >= c.from && due <= c.to })
		switch {
		case due > r.killed-1000 && due < r.killed+7000:
			when = "killed"
		case change >= 0:
			when = []string{"growing", "shrinking"}[change]
		}
		late[when] = append(late[when], copies[id][0].at-due)
	}
	for when, all := range late {
		slices.Sort(all)
		at := func(share float64) int64 { return all[int(share*float64(len(all)-1))] }
		r.t.Logf("late in ms, %s: %d tasks, p50 %d, p99 %d, p99.9 %d, most %d", when, len(all), at(0.5), at(0.99), at(0.999), at(1))
	}
}

// judgeSilenced judges the runs of timers that were disabled: after the answer come those alone that were claimed before.
func (r *resized) judgeSilenced(copies map[string][]arrival) {
	for _, id := range r.silenced {
		at := slices.IndexFunc(r.answers[id], func(a answer) bool { return a.state == schemas.StateTimerDisabled })
		require.GreaterOrEqual(r.t, at, 0, "%s was not answered", id)
		runs := 0
		for run := range copies {
			if text, its := strings.CutPrefix(run, r.topic("ticks")+"/"+id+"@"); its {
				due, err := strconv.ParseInt(text, 10, 64)
				require.NoError(r.t, err)
				require.Less(r.t, due, r.answers[id][at].at+claimedAhead.Milliseconds(), "%s came, and %s was disabled", run, id)
				r.due[run] = due
				runs++
			}
		}
		require.NotZero(r.t, runs, id)
	}
}

// judgeAtTheMoment judges cancels and replacements. It renames the second versions in copies to their tasks.
func (r *resized) judgeAtTheMoment(copies map[string][]arrival) {
	told := map[schemas.State]int{}
	for id := range r.cancelled {
		var all []answer
		for _, a := range r.answers[id] {
			if a.state == schemas.StateCancelled || a.state == schemas.StateTooLate {
				all = append(all, a)
			}
		}
		require.NotEmpty(r.t, all, "the cancel of %s was not answered", id)
		told[all[0].state]++
		came := len(copies[r.topic("load")+"/"+id])
		if all[0].state == schemas.StateCancelled {
			require.Zero(r.t, came, "%s was delivered, and its cancel was answered with cancelled", id)
		} else {
			require.NotZero(r.t, came, "%s was not delivered, and its cancel came too late", id)
		}
	}
	for id := range r.replaced {
		name := r.topic("load") + "/" + id
		for _, a := range r.answers[id] {
			if a.state == schemas.StateScheduled {
				for _, old := range copies[name+"/1"] {
					require.LessOrEqual(r.t, old.at, a.at, "%s: version 1 came after version 2 was acknowledged", id)
				}
			}
		}
		copies[name] = copies[name+"/2"]
		delete(copies, name+"/2")
	}
	r.t.Logf("cancels at the moment: %v", told)
}

// sameInRedis waits until the index holds exactly what the database holds of the near future.
func (r *resized) sameInRedis() {
	until := time.Now().Add(90 * time.Minute).UnixMilli()
	difference := func() int {
		want := map[index.Entry]bool{}
		rows, err := r.db.QueryContext(r.t.Context(), "SELECT t.slot, t.pos, t.seq FROM tasks t JOIN slots s ON s.slot = t.slot WHERE t.pos > s.done AND t.pos <= ?", until)
		require.NoError(r.t, err)
		defer rows.Close()
		for rows.Next() {
			var e index.Entry
			require.NoError(r.t, rows.Scan(&e.Slot, &e.Pos, &e.Seq))
			want[e] = true
		}
		require.NoError(r.t, rows.Err())
		require.GreaterOrEqual(r.t, len(want), r.later/2)
		n := 0
		for slot := range 96 {
			entries, err := r.index.(*index.Index).Members(r.t.Context(), slot)
			require.NoError(r.t, err)
			for _, e := range entries {
				if e.Pos <= until && !want[e] {
					n++
				}
				delete(want, e)
			}
		}
		return n + len(want)
	}
	r.eventually("Redis and the database agree", 2*time.Minute, func() bool { return difference() == 0 })
}
