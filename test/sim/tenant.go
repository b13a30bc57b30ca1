package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/history"
	"github.com/notyet/notyet/test/recordtest"
)

// tenantSeeds is the first seed in which a tenant with intakes of its own attacks: what earlier
// seeds draw stays as it is.
const tenantSeeds = regimeSeeds + 5

// Intakes of the tenant that attacks. All that it asks for begins with tenantNames.
const (
	tenantIntake = "notyet.intake.tenant"
	slowIntake   = "notyet.intake.slow"   // of few requests a second
	promptIntake = "notyet.intake.prompt" // of another tenant
	tenantNames  = "tenant-"
)

// tenant is by what it attacks. The zero tenant does not.
type tenant struct {
	missing int // topics that do not exist, a task to each
	met     int // topics that nobody has met, likewise
	cancels int // of ids that no task has
	origins int // that answer one callback, and the others when the load is over
	names   int // quota of unknown targets
	rate    int // quota of requests a second of the cancels' intake
}

const (
	tenantPending = 20 // quota of pending tasks of the cancels' intake
	tenantCalls   = 12 // to each origin
	roomyTasks    = 100
	roomyBytes    = 1 << 20
	promptEach    = 200 * time.Millisecond
	promptOrigin  = "http://prompt.example" // another tenant's, which always answers
	promptNames   = "prompt-"
)

// drawTenant draws a tenant that attacks. A database that is set back forgets rejections.
func (p *plan) drawTenant() {
	r := rand.New(rand.NewPCG(p.seed, 631))
	if p.silent || p.forgets || p.hostile || p.hush != hushNone || p.column < maxBlob || p.setback.lost > 0 {
		return
	}
	if r.IntN(2) == 0 { // nothing else happens, so that whatever is late is so for the tenant
		p.faults, p.leaderless, p.deaf, p.moves, p.disks, p.loses, p.stepsBack, p.aims, p.brink, p.growth, p.stall, p.madeUp = 0, 0, 0, 0, false, false, 0, aims{}, brinkNone, nil, false, 0
		p.dispatcher.StageTasks, p.dispatcher.StageBytes = roomyTasks, roomyBytes
	}
	p.tenant = tenant{missing: pick(r, 0, 100, 400), met: pick(r, 0, 30, 150), names: pick(r, 5, 50, 500), rate: pick(r, 5, 20)}
	p.reports, p.ackTimeout = false, 10_000 // others' reports may be read behind hundreds of requests, in batches of three
	p.tenant.cancels = pick(r, 0, 30, 60) * p.tenant.rate
	if p.callbacks > 0 {
		p.tenant.origins = pick(r, 10, 40, 80)
	}
	if len(p.scanner.Intake) == 0 {
		p.scanner.Intake = []string{schemas.TopicIntake}
	}
	p.scanner.Intake = append(p.scanner.Intake, p.tenant.intakes()...)
	if p.scanner.Quotas == nil {
		p.scanner.Quotas = map[string]scanner.Quota{}
	}
	p.scanner.Quotas[tenantIntake] = scanner.Quota{UnknownTargets: p.tenant.names}
	p.scanner.Quotas[slowIntake] = scanner.Quota{RequestsPerSecond: p.tenant.rate, PendingTasks: tenantPending}
}

func (t tenant) attacks() bool { return t.rate > 0 }

// patience is how long the cancels of the tenant wait for their quota.
func (t tenant) patience() time.Duration {
	if !t.attacks() {
		return 0
	}
	return time.Duration(2*t.cancels/t.rate) * time.Second
}

// intakes are topics of requests that the history does not have.
func (t tenant) intakes() []string {
	if !t.attacks() {
		return nil
	}
	return []string{tenantIntake, slowIntake, promptIntake}
}

// topics are those that exist, and that nobody has met.
func (t tenant) topics() (names []string) {
	for i := range t.met {
		names = append(names, tenantTopic("met", i))
	}
	return names
}

func tenantTopic(kind string, i int) string { return fmt.Sprintf("%s%s-%d", tenantNames, kind, i) }

// attackAll has the tenant do all of it at once, at a moment of the load.
func (w *world) attackAll(begin time.Time) {
	if !w.tenant.attacks() {
		return
	}
	r := rand.New(rand.NewPCG(w.seed, 641))
	at := begin.Add(time.Duration(r.Int64N(int64(w.load / 2))))
	due := strconv.FormatInt(at.Add(time.Duration(500+r.IntN(1500))*time.Millisecond).UnixMilli(), 10)
	w.watchTenant(begin, at)
	w.swept.asking.Go(func() {
		time.Sleep(time.Until(at))
		w.note("a tenant attacks: %+v", w.tenant)
		for i := range w.tenant.cancels {
			w.strike(slowIntake, "cancel", i, schemas.HeaderOp, "cancel", schemas.HeaderTopic, plainTopics[0], schemas.HeaderVersion, "1")
		}
		for i := range w.tenant.missing {
			w.strike(tenantIntake, "missing", i, schemas.HeaderTopic, tenantTopic("missing", i), schemas.HeaderAt, due)
		}
		for i := range w.tenant.met {
			w.strike(tenantIntake, "met", i, schemas.HeaderTopic, tenantTopic("met", i), schemas.HeaderAt, due)
		}
		for i := range w.tenant.origins * tenantCalls {
			when := due
			if i < w.tenant.origins {
				when = strconv.FormatInt(at.UnixMilli(), 10)
			}
			w.strike(tenantIntake, "call", i, schemas.HeaderURL, fmt.Sprintf("http://%sorigin-%d.example/", tenantNames, i%w.tenant.origins), schemas.HeaderAt, when,
				schemas.HeaderMaxAttempts, "2", schemas.HeaderBackoff, "fixed:1s", schemas.HeaderAckTimeout, "25s")
		}
	})
	if w.tenant.origins > 0 {
		w.swept.asking.Go(func() { w.askPrompt(begin) })
	}
}

func (w *world) strike(intake, kind string, i int, headers ...string) {
	id := tenantTopic(kind, i)
	w.produceApart(&kgo.Record{Topic: intake, Key: []byte(id), Headers: recordtest.Headers(append(headers, schemas.HeaderID, id)...)})
}

// produceApart sends a request that the history does not have.
func (w *world) produceApart(r *kgo.Record) {
	w.client.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
		if err != nil {
			w.find("sim", "Kafka did not take a request of a tenant: %v", err)
		}
	})
}

// prompts are callbacks of another tenant, to an origin that always answers.
type prompts struct {
	mu   sync.Mutex
	due  map[string]int64
	came map[string]int64 // when the first request did
}

func (w *world) askPrompt(begin time.Time) {
	for i := 0; time.Since(begin) < w.load; i++ {
		id, due := promptNames+strconv.Itoa(i), time.Now().Add(time.Second).UnixMilli()
		w.prompts.mu.Lock()
		w.prompts.due[id] = due
		w.prompts.mu.Unlock()
		w.produceApart(&kgo.Record{Topic: promptIntake, Key: []byte(id), Headers: recordtest.Headers(schemas.HeaderURL, promptOrigin, schemas.HeaderID, id, schemas.HeaderAt, strconv.FormatInt(due, 10))})
		time.Sleep(promptEach)
	}
}

// calledApart is the receiver of the tenant's origins, and of the one that always answers.
func (w *world) calledApart(r *http.Request, id string, at int64) (mine bool) {
	switch {
	case strings.HasPrefix(id, promptNames):
		w.prompts.mu.Lock()
		defer w.prompts.mu.Unlock()
		if _, again := w.prompts.came[id]; !again {
			w.prompts.came[id] = at
		}
		return true
	case !isTenants(id):
		return false
	}
	w.prompts.mu.Lock()
	first := !w.oneMore[r.Host]
	w.oneMore[r.Host] = true
	w.prompts.mu.Unlock()
	if rest := time.Until(w.start.Add(w.load)); !first && rest > 0 {
		select {
		case <-time.After(rest):
		case <-r.Context().Done():
		}
	}
	return true
}

func isTenants(name string) bool { return strings.HasPrefix(name, tenantNames) }

// watchTenant looks twice a second at what the tenant has in the database: no more rows than it may have pending and four times its rate
// allows, with a second's that a scanner lets through as it starts.
func (w *world) watchTenant(begin, at time.Time) {
	w.walking.Go(func() {
		for time.Since(begin) < w.load {
			time.Sleep(time.Second / 2)
			most := int64(tenantPending + 4*w.tenant.rate*(2+int(max(time.Since(at), 0)/time.Second)))
			if rows := w.countRows("SELECT COUNT(*) FROM tasks t JOIN sources s ON s.src = t.seq >> 48 WHERE s.topic = ?", []byte(slowIntake)); rows > most {
				w.find("bound", "the tenant has %d rows, and its quotas allow %d", rows, most)
				return
			}
		}
	})
}

// tenantLate is how late others' tasks and callbacks may be beside a tenant that attacks, in ms, beyond a look-ahead.
const tenantLate = 2000

// judgeTenant: while nothing is broken, a tenant that attacks delays no other's tasks and callbacks. In a small room, what others ask for
// themselves holds them up longer.
func (w *world) judgeTenant(h *history.History) {
	if !w.tenant.attacks() {
		return
	}
	ops, seen := map[int64]*history.Op{}, map[int64]bool{}
	for i := range h.Ops {
		ops[h.Ops[i].N] = &h.Ops[i]
	}
	most := tenantLate + w.ahead()
	small := w.dispatcher.StageTasks < roomyTasks || w.dispatcher.StageBytes < roomyBytes || w.madeUp > 0
	for _, d := range h.Deliveries {
		o := ops[d.Op]
		if o == nil || d.Attempt != 1 || seen[d.Op] || !slices.Contains(plainTopics, d.Topic) || !strings.HasPrefix(o.ID, "t") {
			continue
		}
		seen[d.Op] = true
		if ready := max(d.Due, o.Accepted); d.At-ready > most && !small && w.whole(h, &d, ready, d.At) {
			w.find("tenant", "%s/%s was ready at %d, and delivered %d ms late, beside a tenant that attacks", d.Topic, d.ID, ready, d.At-ready)
			return
		}
	}
	w.judgePrompts(h, most, small)
}

func (w *world) judgePrompts(h *history.History, most int64, small bool) {
	w.prompts.mu.Lock()
	defer w.prompts.mu.Unlock()
	for id, due := range w.prompts.due {
		at, came := w.prompts.came[id]
		switch {
		case !came && w.deaf == 0:
			w.find("tenant", "the callback %s of another tenant never came", id)
		case at < due:
			w.find("tenant", "the callback %s of another tenant came %d ms early", id, due-at)
		case at-due > most && !small && w.deaf == 0 && w.whole(h, nil, due, at):
			w.find("tenant", "the callback %s of another tenant came %d ms late, beside a tenant that attacks", id, at-due)
		default:
			continue
		}
		return
	}
}

// whole says that no fault, and nothing that one left behind, may have held up a delivery in a span. d may be nil: a callback.
func (w *world) whole(h *history.History, d *history.Delivery, from, to int64) bool {
	const aftermath = 60_000
	return len(w.growth) == 0 && w.moves == 0 && w.stepsBack == 0 && !slices.ContainsFunc(h.Faults, func(f history.Fault) bool {
		return (f.HoldsUp(d) || f.Rewinds) && f.Start <= to && f.End+aftermath >= from
	})
}
