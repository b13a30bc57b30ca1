package api

import (
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

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/schemas"
)

// Limits on callers that wait for an answer: how many wait at a time, how long, and how many
// answers about one id each of them keeps until it knows which one is its own.
const (
	maxWaiters  = 256
	maxWait     = 30 * time.Second
	maxHeld     = 100
	tailIdle    = 30 * time.Second // without a waiter, reading stops after this time
	tailTimeout = 5 * time.Second  // limit for finding the end of the results topic
)

// Answers finds the answers to requests on the results topic. All waiters share one reader. It
// starts with the first waiter and stops when there has been none for a while. For events of other
// tasks it only checks the key.
type Answers struct {
	dial  func() (*kgo.Client, error)
	topic string
	log   *zap.Logger

	places   *turns              // of waiters
	starting *semaphore.Weighted // held while a caller starts the reader, never by the reader
	mu       sync.Mutex          // guards the rest
	tail     *answerTail
	waiters  map[string][]*waiter // by task id
	lastUse  time.Time
	closed   bool
}

// answerTail is one run of the reader.
type answerTail struct {
	client *kgo.Client
	stop   context.CancelFunc
	done   chan struct{}
}

// waiter keeps the answers about an id that arrived since the waiter was made.
type waiter struct {
	id   string
	gone func()          // gives the place back
	held []schemas.Event // guarded by Answers.mu
	came chan struct{}   // has room for one signal; says that held has grown
}

// NewAnswers reads the results topic with the clients that dial returns. These should read
// committed records only.
func NewAnswers(topic string, dial func() (*kgo.Client, error), log *zap.Logger) *Answers {
	return &Answers{dial: dial, topic: topic, log: log, places: newTurns(maxWaiters, maxWaiters/2), starting: semaphore.NewWeighted(1), waiters: map[string][]*waiter{}}
}

// Close stops the reader. Callers that still wait get no answer.
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

// expect makes a waiter for answers about an id, when it is the caller's turn. Call expect before the
// request is sent: the reader's position is then at or before the answer. The caller returns the waiter
// with leave. If Kafka prevents the reader from starting, the waiter gets no answer.
func (a *Answers) expect(ctx context.Context, id string) (*waiter, error) {
	gone, err := a.places.take(ctx, 1)
	if err != nil {
		return nil, err
	}
	w := &waiter{id: id, gone: gone, came: make(chan struct{}, 1)}
	a.mu.Lock()
	a.waiters[id] = append(a.waiters[id], w)
	a.mu.Unlock()
	if err := a.start(ctx); err != nil {
		a.log.Warn("the results topic cannot be read, so a caller waits for nothing", zap.Error(err))
	}
	return w, nil
}

// leave ends the wait.
func (a *Answers) leave(w *waiter) {
	defer w.gone()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiters[w.id] = slices.DeleteFunc(a.waiters[w.id], func(other *waiter) bool { return other == w })
	if len(a.waiters[w.id]) == 0 {
		delete(a.waiters, w.id)
	}
	a.lastUse = time.Now()
}

// answer waits for the event that answers the request at an intake position. It returns false if
// that did not come before ctx ended.
func (a *Answers) answer(ctx context.Context, w *waiter, request string) (schemas.Event, bool) {
	for {
		a.mu.Lock()
		held := w.held
		w.held = nil
		a.mu.Unlock()
		for _, e := range held {
			if e.Request == request {
				return e, true
			}
		}
		select {
		case <-ctx.Done():
			return schemas.Event{}, false
		case <-w.came:
		}
	}
}

// start makes sure that the reader runs, from the present end of the results topic or from an
// earlier position.
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

// read passes events to the waiters, until there has been none for a while.
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

// idle stops the reader if nobody needs it any more. The next waiter starts another.
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
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.waiters[string(r.Key)]
	if len(all) == 0 || schemas.AnsweredRequest(r) == "" {
		return
	}
	e, err := schemas.DecodeEvent(r)
	if err != nil {
		return
	}
	for _, w := range all {
		if len(w.held) >= maxHeld {
			w.held = w.held[1:] // drop the oldest: the caller's own answer comes last
		}
		w.held = append(w.held, e)
		select {
		case w.came <- struct{}{}:
		default:
		}
	}
}
