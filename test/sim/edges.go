package sim

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/test/chaos/history"
	"github.com/notyet/notyet/timer"
)

// edgeSeeds is the first seed with transactions on the intake, offsets that are committed to Kafka, and timers whose runs wait for reports:
// what earlier seeds draw stays as it is.
const edgeSeeds = 1 << 49

// edges are what a seed from edgeSeeds on has beside all else.
type edges struct {
	commits bool // scanners commit offsets to Kafka
	gaps    int  // how many transactions are made on the intake; most of them are aborted
	reports bool // runs of timers wait for reports, and some timers let no two runs overlap
}

func (p *plan) edge() {
	r := rand.New(rand.NewPCG(p.seed, 71))
	if p.forgets || p.hush != hushNone || p.hostile {
		return
	}
	// The client commits under a lock, for which virtual time does not wait: nothing may keep Kafka or a process from going on.
	if p.faults == 0 && !p.loses && p.aims == (aims{}) && r.IntN(2) == 0 {
		p.commit()
	}
	if p.leaderless == 0 {
		p.edges.gaps = pick(r, 0, 0, 1, 4)
	}
	if r.IntN(2) == 0 {
		p.edges.reports, p.timers = true, max(p.timers, 1+r.IntN(3))
	}
}

// commit has scanners commit offsets, and dispatchers compare the database with them.
func (p *plan) commit() {
	p.edges.commits, p.scanner.CommitEvery = true, 0
	p.dispatcher.Group, p.dispatcher.Read = scannerGroup, []string{schemas.TopicIntake, schemas.TopicReports, schemas.TopicCancels}
}

// transactions are what producers with transactions do to the intake: control records, aborted requests, and records that nobody may read
// before the transaction ends.
func (w *world) transactions() (all []trouble) {
	r := rand.New(rand.NewPCG(w.seed, 73))
	for i := range w.edges.gaps {
		t := trouble{kind: "open transaction", target: schemas.TopicIntake, at: time.Duration(r.Int64N(int64(w.load))), lasts: pick(r, time.Millisecond, 100*time.Millisecond, time.Second, 4*time.Second)}
		commits, records, draw := r.IntN(3) == 0, 1+r.IntN(5), rand.New(rand.NewPCG(r.Uint64(), 0))
		var client *kgo.Client
		t.begin = func() { client = w.beginTransaction(i, records, commits, draw) }
		t.end = func() { w.endTransaction(client, commits) }
		all = append(all, t)
	}
	return all
}

// beginTransaction writes requests. Those that are to be aborted schedule tasks of nobody, and cancel tasks of others.
func (w *world) beginTransaction(i, records int, commits bool, r *rand.Rand) *kgo.Client {
	client, err := kafka.New(kafka.Config{Dial: w.network.DialContext}, zap.NewNop(), kgo.TransactionalID(fmt.Sprint("edge-", i)), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err == nil {
		err = client.BeginTransaction()
	}
	if err != nil {
		w.find("sim", "beginning a transaction: %v", err)
		return client
	}
	for j := range records {
		now := time.Now().UnixMilli()
		o := history.Op{Kind: history.Schedule, Topic: plainTopics[r.IntN(2)], ID: fmt.Sprintf("edge-%d-%d", i, j), Key: fmt.Sprintf("k%d", r.IntN(5)), Due: now + 1 + r.Int64N(w.longest), Version: -1}
		p := planned{op: o, apart: true}
		if commits {
			w.sendBy(client, p)
			continue
		}
		if r.IntN(2) == 0 {
			p.op = history.Op{Kind: history.Cancel, Topic: o.Topic, ID: fmt.Sprintf("t%d", r.IntN(20)), Key: o.Key, Version: -1}
		}
		p.op.N = 10*apart + int64(10*i+j) // nobody's
		client.Produce(context.Background(), record(&p), nil)
	}
	if err := client.Flush(context.Background()); err != nil {
		w.find("sim", "writing in a transaction: %v", err)
	}
	return client
}

func (w *world) endTransaction(client *kgo.Client, commits bool) {
	if client == nil {
		return
	}
	defer client.Close()
	if err := client.EndTransaction(context.Background(), kgo.TransactionEndTry(commits)); err != nil {
		w.find("sim", "ending a transaction: %v", err)
	}
}

// visibleEnds returns how many records behind stored offsets can be read: behind the last one, a transaction may have left marks.
func (w *world) visibleEnds(stored map[history.OffsetSample]int64) (n int64) {
	ends := map[history.OffsetSample]int64{}
	for _, a := range w.seen.all() {
		if a.r.Topic == schemas.TopicIntake || a.r.Topic == schemas.TopicReports {
			key := history.OffsetSample{Topic: a.r.Topic, Partition: a.r.Partition}
			ends[key] = max(ends[key], a.r.Offset+1)
		}
	}
	for key, end := range ends {
		n += max(end-stored[key], 0)
	}
	return n
}

// committed reads what the scanners have committed to Kafka.
func (w *world) committed(ctx context.Context) kadm.OffsetResponses {
	if !w.edges.commits {
		return nil
	}
	all, err := kadm.NewClient(w.client).FetchOffsets(ctx, scannerGroup)
	if err != nil && ctx.Err() == nil {
		w.find("sim", "reading committed offsets: %v", err)
	}
	return all
}

// judgeCommitted: at rest, what is committed to Kafka is what is stored, so that whoever watches the lag sees none.
func (w *world) judgeCommitted() {
	if !w.edges.commits {
		return
	}
	for began := time.Now(); ; time.Sleep(time.Second) {
		behind := w.notCommitted()
		if behind == "" {
			return
		}
		if time.Since(began) > 10*time.Second {
			w.find("I12", "%s", behind)
			return
		}
	}
}

func (w *world) notCommitted() string {
	all := w.committed(context.Background())
	sources, err := intake.New(w.admin).Sources(context.Background())
	if err != nil {
		w.find("sim", "reading the sources: %v", err)
	}
	for _, s := range sources {
		if slices.Contains(w.tenant.intakes(), s.Topic) { // nothing may come for it when another scanner has taken it over
			continue
		}
		if c, ok := all.Lookup(s.Topic, s.Partition); s.Next > 0 && (!ok || c.At != s.Next) {
			return fmt.Sprintf("at rest %d is committed of %s/%d, and %d is stored", c.At, s.Topic, s.Partition, s.Next)
		}
	}
	return ""
}

const tickAttempts = 2

// waits lets the runs of a timer wait for reports.
func (w *world) waits(q *tickRequest, r *rand.Rand) {
	if !w.edges.reports || r.IntN(4) == 0 {
		return
	}
	q.ackTimeout = pick[int64](r, 1500, 4000)
	q.def.Alone = r.IntN(3) > 0
}

// reportTick is what a consumer does about a run that may wait for a report.
func (w *world) reportTick(r *kgo.Record) {
	d, _, err := schemas.ParseDelivery(r)
	if err != nil || !w.edges.reports {
		return
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(d.ID))
	rnd := rand.New(rand.NewPCG(w.seed^uint64(d.Attempt)<<32, h.Sum64()))
	rep := schemas.Report{Topic: r.Topic, ID: d.ID, Attempt: d.Attempt, Status: schemas.StatusOK, RetryAfter: schemas.NoRetryAfter, Delivery: d.Key}
	after := time.Duration(0)
	switch p := rnd.IntN(100); {
	case p < 40:
	case p < 65:
		after = time.Duration(rnd.Int64N(3000)) * time.Millisecond
	case p < 75:
		rep.Status = schemas.StatusRetry
	case p < 85:
		rep.Status, rep.Error = schemas.StatusFail, "it is beyond me"
	default:
		return
	}
	time.AfterFunc(after, func() { w.client.Produce(context.Background(), schemas.EncodeReport(schemas.TopicReports, rep), nil) })
}

// use is the time for which a run was surely unfinished: from its first delivery to the first report that may have ended it, or to the end
// of its first wait.
type use struct {
	id       string
	from, to int64
}

// judgeAlone: no run is sent while another one of its timer is unfinished, where both must be alone. It goes by when the broker had them.
func (w *world) judgeAlone() {
	if !w.edges.reports {
		return
	}
	byTimer := map[string][]use{}
	ended := w.tickReports()
	for id, copies := range w.ticks.runs {
		first := slices.MinFunc(copies, func(a, b tickRun) int { return cmp.Compare(a.at, b.at) })
		q := w.tickSet(first.set)
		if q == nil || !q.def.Alone {
			continue
		}
		u := use{id: id, from: first.at, to: first.at + q.ackTimeout - w.stepsBack.Milliseconds()}
		if at, ok := ended[id]; ok {
			u.to = min(u.to, at)
		}
		of, _, _ := timer.SplitRunID(id)
		byTimer[of] = append(byTimer[of], u)
	}
	for _, all := range byTimer {
		slices.SortFunc(all, func(a, b use) int { return cmp.Or(cmp.Compare(a.from, b.from), strings.Compare(a.id, b.id)) })
		longest := use{}
		for _, u := range all {
			if u.from < longest.to {
				w.find("timers", "run %s was sent at %d, and run %s of %d was unfinished until %d at least", u.id, u.from, longest.id, longest.from, longest.to)
			}
			if u.to > longest.to {
				longest = u
			}
		}
	}
}

// tickReports are the times of the first report about each run.
func (w *world) tickReports() map[string]int64 {
	out := map[string]int64{}
	for _, a := range w.seen.all() {
		if a.r.Topic != schemas.TopicReports {
			continue
		}
		rep, err := schemas.DecodeReport(a.r)
		if err != nil || rep.Topic != tickTopic {
			continue
		}
		if was, ok := out[rep.ID]; !ok || a.at < was {
			out[rep.ID] = a.at
		}
	}
	return out
}

// tickSet is the request whose value a run has.
func (w *world) tickSet(value string) *tickRequest {
	n, err := strconv.Atoi(value)
	i := slices.IndexFunc(w.ticks.requests, func(q *tickRequest) bool { return q.n == n && q.op == "timer" })
	if err != nil || i < 0 {
		return nil
	}
	return w.ticks.requests[i]
}
