package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/schemas"
)

// Limits on waiting callers: how many at a time, how long, and how many answers about one id each
// keeps until its own is known.
const (
	maxWaiters  = 256
	maxWait     = 30 * time.Second
	maxHeld     = 100
	tailIdle    = 30 * time.Second // without a waiter, reading stops after this time
	tailTimeout = 5 * time.Second  // limit for finding the end of the results topic
)

// Answers finds the answers to requests on the results topic. All waiters share one reader. The
// reader starts with the first waiter and stops after a while without any. For events of other
// tasks it only checks the key.
type Answers struct {
	dial  func() (*kgo.Client, error)
	topic string
	log   *zap.Logger

	places   *share.Turns        // of waiters
	starting *semaphore.Weighted // held while a caller starts the reader, never by the reader
	mu       sync.Mutex          // guards the rest
	tail     *answerTail
	waiters  map[string][]*waiter // by task id, and by request once that is known
	lastUse  time.Time
	closed   bool
}

type answerTail struct {
	client *kgo.Client
	stop   context.CancelFunc
	done   chan struct{}
}

// waiter waits for the answer to one request. Until Kafka has told the request's position, the
// waiter keeps all possible answers: about the same id, or about ids made of positions.
type waiter struct {
	id      string // "": the request gives none
	request string // "": not known yet; guarded by Answers.mu, as held is
	held    []schemas.Event
	gone    func()             // gives the place back
	came    chan schemas.Event // has room for one
}

// NewAnswers reads the results topic with clients of dial, for committed records only.
func NewAnswers(topic string, dial func() (*kgo.Client, error), log *zap.Logger) *Answers {
	return &Answers{dial: dial, topic: topic, log: log, places: share.NewTurns(maxWaiters, maxWaiters/16, maxWaiters), starting: semaphore.NewWeighted(1), waiters: map[string][]*waiter{}}
}

// Close stops the reader. Waiting callers get no answer.
func (a *Answers) Close() {
	_ = a.starting.Acquire(context.Background(), 1) // who has it gives it back after tailTimeout
	defer a.starting.Release(1)
	a.mu.Lock()
	tail := a.tail
	a.tail, a.closed = nil, true
	a.mu.Unlock()
	tail.close()
}

func (t *answerTail) close() {
	if t != nil {
		t.stop()
		<-t.done
	}
}

// expect makes a waiter for the answer to a request about an id ("": the id made of its position),
// when it is the caller's turn. Call expect before the request is sent: the reader's position is
// then at or before the answer. The caller returns the waiter with leave. If Kafka prevents the
// reader from starting, the waiter gets no answer.
func (a *Answers) expect(ctx context.Context, id string) (*waiter, error) {
	gone, err := a.places.Take(ctx, access.From(ctx).Account(), 1)
	if err != nil {
		return nil, err
	}
	w := &waiter{id: id, gone: gone, came: make(chan schemas.Event, 1)}
	a.mu.Lock()
	a.waiters[id] = append(a.waiters[id], w)
	a.mu.Unlock()
	if err := a.start(ctx); err != nil {
		a.log.Warn("the results topic cannot be read, so a caller waits for nothing", zap.Error(err))
	}
	return w, nil
}

func (a *Answers) leave(w *waiter) {
	defer w.gone()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.remove(cmp.Or(w.request, w.id), w)
	a.lastUse = time.Now()
}

// remove needs the lock.
func (a *Answers) remove(name string, w *waiter) {
	a.waiters[name] = slices.DeleteFunc(a.waiters[name], func(other *waiter) bool { return other == w })
	if len(a.waiters[name]) == 0 {
		delete(a.waiters, name)
	}
}

// answer waits for the answer to the request at an intake position. false: ctx ended before.
func (a *Answers) answer(ctx context.Context, w *waiter, request string) (schemas.Event, bool) {
	a.mu.Lock()
	a.remove(w.id, w)
	w.request = request
	a.waiters[request] = append(a.waiters[request], w)
	i := slices.IndexFunc(w.held, func(e schemas.Event) bool { return e.Request == request })
	a.mu.Unlock()
	if i >= 0 {
		return w.held[i], true
	}
	select {
	case <-ctx.Done():
		return schemas.Event{}, false
	case e := <-w.came:
		return e, true
	}
}

// start makes sure of a reader, from the present end of the results topic or earlier.
func (a *Answers) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	if err := a.starting.Acquire(ctx, 1); err != nil { // another one has tried all the time
		return err
	}
	defer a.starting.Release(1)
	a.mu.Lock()
	running := a.tail != nil || a.closed
	a.mu.Unlock()
	if running {
		return nil
	}
	client, err := a.dial()
	if err != nil {
		return err
	}
	offsets, err := kadm.NewClient(client).ListEndOffsets(ctx, a.topic)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil {
		client.Close()
		return fmt.Errorf("looking where the results topic %s ends: %w", a.topic, err)
	}
	from := map[int32]kgo.Offset{}
	offsets.Each(func(o kadm.ListedOffset) { from[o.Partition] = kgo.NewOffset().At(o.Offset) })
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{a.topic: from})
	reading, stop := context.WithCancel(context.Background())
	tail := &answerTail{client: client, stop: stop, done: make(chan struct{})}
	a.mu.Lock()
	a.tail, a.lastUse = tail, time.Now()
	a.mu.Unlock()
	go a.read(reading, tail)
	return nil
}

// read passes events to the waiters, until a while without any.
func (a *Answers) read(ctx context.Context, tail *answerTail) {
	defer close(tail.done)
	defer tail.client.Close()
	var warned time.Time
	for ctx.Err() == nil {
		polling, cancel := context.WithTimeout(ctx, tailIdle/4)
		fetches := tail.client.PollFetches(polling)
		cancel()
		fetches.EachRecord(a.deliver)
		failed := false
		fetches.EachError(func(_ string, partition int32, err error) {
			if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				failed = true
				if time.Since(warned) >= time.Second {
					warned = time.Now()
					a.log.Warn("reading the results topic failed", zap.Int32("partition", partition), zap.Error(err))
				}
			}
		})
		if a.idle(tail) {
			return
		}
		if failed { // avoid a busy loop while an error persists; the answers of other partitions wait for it too
			loop.Rest(ctx, 100*time.Millisecond)
		}
	}
}

// idle stops an unneeded reader. The next waiter starts another.
func (a *Answers) idle(tail *answerTail) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiters) > 0 || time.Since(a.lastUse) < tailIdle {
		return false
	}
	if a.tail == tail {
		a.tail = nil
	}
	return true
}

func (a *Answers) deliver(r *kgo.Record) {
	id, request := string(r.Key), schemas.AnsweredRequest(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	if id == request { // made of the position
		id = ""
	}
	all := slices.Concat(a.waiters[request], a.waiters[id])
	if len(all) == 0 || request == "" {
		return
	}
	e, err := schemas.DecodeEvent(r)
	if err != nil {
		return
	}
	for _, w := range all {
		switch w.request {
		case "":
			if len(w.held) >= maxHeld {
				w.held = w.held[1:] // drop the oldest: the caller's own answer comes last
			}
			w.held = append(w.held, e)
		case request:
			select {
			case w.came <- e:
			default: // it came before
			}
		}
	}
}
