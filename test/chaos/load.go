package chaos

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/test/chaos/history"
)

// load sends requests and notes their outcomes.
type load struct {
	client  *kgo.Client
	large   *kgo.Client // for records that the other client would not send
	rec     *history.Recorder
	seed    uint64
	longest int64 // latest due time of an ordinary task, ms
	older   bool  // a version before stop is at work: each stop is a cancel

	ops    atomic.Int64 // numbers in use
	tasks  atomic.Int64
	acked  atomic.Int64
	looker *looker

	extra chan []planned // requests of faults
	sent  sync.WaitGroup
}

func newLoad(client, large *kgo.Client, rec *history.Recorder, seed uint64, longest time.Duration) *load {
	return &load{client: client, large: large, rec: rec, seed: seed, longest: longest.Milliseconds(), looker: &looker{rec: rec}, extra: make(chan []planned, 16)}
}

// run begins rate lives a second until coming ends. Then it sends the remaining planned requests,
// and returns when all are answered or ctx has ended.
func (l *load) run(ctx, coming context.Context, rate int) {
	const step = 5 * time.Millisecond
	tick := time.NewTicker(step)
	defer tick.Stop()
	queue := &agenda{}
	begin, begun := time.Now(), int64(0)
	for {
		select {
		case more := <-l.extra:
			queue.add(more)
		case <-tick.C:
		}
		now := time.Now().UnixMilli()
		if coming.Err() == nil {
			for begun < int64(time.Since(begin).Seconds()*float64(rate)) {
				begun++
				l.tasks.Add(1)
				queue.add(life(l.seed, begun, now, l.longest))
			}
		} else if queue.Len() == 0 || ctx.Err() != nil {
			break
		}
		for queue.Len() > 0 && queue.all[0].at <= now {
			l.send(ctx, queue.next().op)
		}
	}
	l.sent.Wait()
}

// send is asynchronous. Records of one key stay in order.
func (l *load) send(ctx context.Context, op history.Op) {
	if l.older && op.Kind == history.Stop {
		op.Kind = history.Cancel
	}
	op.N = l.ops.Add(1)
	op.At = time.Now().UnixMilli()
	if op.Storm {
		l.looker.note(op)
	}
	padding := rand.New(rand.NewPCG(l.seed, uint64(-op.N))).IntN(200)
	if op.Topic == limitTopic {
		padding = limitPadding
	}
	client := l.client
	if op.Hostile != "" {
		client = l.large
	}
	l.sent.Add(1)
	client.Produce(ctx, record(&op, padding), func(_ *kgo.Record, err error) {
		defer l.sent.Done()
		switch {
		case err == nil:
			op.Outcome = history.OK
			l.acked.Add(1)
		case errors.Is(err, kgo.ErrMaxBuffered):
			op.Outcome = history.Failed
		default:
			op.Outcome = history.Unknown
		}
		l.rec.Op(op)
	})
}

// sendNow sends requests of a fault one by one; each is answered before the next is sent.
func (l *load) sendNow(ctx context.Context, op history.Op) {
	l.tasks.Add(1)
	l.send(ctx, op)
	client := l.client
	if op.Hostile != "" {
		client = l.large
	}
	_ = client.Flush(ctx) // its outcome is noted
}

// burst requests n tasks that are all due within the second that begins at due. It sends them
// evenly until two seconds before.
func (l *load) burst(n int, due int64) { l.dueTogether(n, due, "b", 0) }

// expiring requests n tasks with the longest ids that may be at most a second late, all due at one
// instant.
func (l *load) expiring(n int, due int64) { l.dueTogether(n, due, strings.Repeat("x", 240), 1000) }

func (l *load) dueTogether(n int, due int64, prefix string, maxLateness int64) {
	now := time.Now().UnixMilli()
	first := l.tasks.Add(int64(n)) - int64(n)
	more := make([]planned, n)
	for i := range more {
		k := first + int64(i)
		r := rand.New(rand.NewPCG(l.seed, uint64(k)^1<<62))
		more[i] = planned{at: now + int64(i)*max(due-2000-now, 0)/int64(n), op: history.Op{
			Kind: history.Schedule, Topic: floodTopic, ID: fmt.Sprintf("%s%d", prefix, k), Key: fmt.Sprintf("k%d", r.IntN(2000)), Due: due + r.Int64N(1000), Version: -1,
			MaxLateness: maxLateness, MayDie: maxLateness > 0,
		}}
	}
	l.extra <- more
}

// spread requests n tasks of a topic that may die, due evenly over a span from now on.
func (l *load) spread(topic string, n int, span time.Duration) {
	now := time.Now().UnixMilli()
	first := l.tasks.Add(int64(n)) - int64(n)
	more := make([]planned, n)
	for i := range more {
		more[i] = planned{at: now, op: history.Op{Kind: history.Schedule, Topic: topic, ID: fmt.Sprintf("m%d", first+int64(i)), Key: fmt.Sprintf("k%d", i%20),
			Due: now + 500 + int64(i)*span.Milliseconds()/int64(n), Version: -1, MayDie: true}}
	}
	l.extra <- more
}

// agenda is a heap by time. Requests of one time leave in the order of planning.
type agenda struct {
	all   []planned
	turns int
}

func (a *agenda) add(more []planned) {
	for _, p := range more {
		a.turns++
		p.turn = a.turns
		heap.Push(a, p)
	}
}

// next removes and returns the earliest request.
func (a *agenda) next() planned { return heap.Pop(a).(planned) }

func (a *agenda) Len() int { return len(a.all) }

func (a *agenda) Less(i, j int) bool {
	x, y := &a.all[i], &a.all[j]
	return x.at < y.at || x.at == y.at && x.turn < y.turn
}

func (a *agenda) Swap(i, j int) { a.all[i], a.all[j] = a.all[j], a.all[i] }
func (a *agenda) Push(x any)    { a.all = append(a.all, x.(planned)) }

func (a *agenda) Pop() any {
	last := len(a.all) - 1
	p := a.all[last]
	a.all = a.all[:last]
	return p
}
