package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/semaphore"

	"github.com/notyet/notyet/internal/access"
)

// turnWait is how long a request waits for its turn, wherever it has to.
const turnWait = 5 * time.Second

// ErrTurn means that a request waited for its turn in vain. Nothing was done.
var ErrTurn = errors.New("others are served before this request, and its turn did not come within " + turnWait.String() + ": nothing was done, try again in a second")

// turns admits a number of requests, or of bytes, at a time. Further requests wait in turn.
//
// A token has at most its share, and waits for the places of all only with as much as its share. So
// behind the requests of one token, however many, a request of another waits for no more than a share.
// The waiting requests of a token are bounded by its connections: see http.max-conns.
type turns struct {
	all   *semaphore.Weighted
	share int64

	mu     sync.Mutex
	tokens map[string]*tokenTurns // those with requests
}

// tokenTurns are the places of one token.
type tokenTurns struct {
	share    *semaphore.Weighted
	requests int // that have a place or wait for it
}

func newTurns(places, share int64) *turns {
	return &turns{all: semaphore.NewWeighted(places), share: share, tokens: map[string]*tokenTurns{}}
}

// take waits for n places, at most until the request's time for waiting has ended: see waiting. Places
// that are free are had after it, too. The caller gives the places back with leave.
func (t *turns) take(ctx context.Context, n int64) (leave func(), err error) {
	name := access.From(ctx).Name
	mine := t.enter(name)
	waits, cancel := context.WithDeadline(ctx, waitsUntil(ctx))
	defer cancel()
	if err := acquire(waits, mine.share, n); err != nil {
		t.exit(name, mine)
		return nil, turnError(ctx)
	}
	if err := acquire(waits, t.all, n); err != nil {
		mine.share.Release(n)
		t.exit(name, mine)
		return nil, turnError(ctx)
	}
	return func() {
		t.all.Release(n)
		mine.share.Release(n)
		t.exit(name, mine)
	}, nil
}

// acquire is Acquire for a context that may have ended: Acquire would give it nothing. TryAcquire passes
// nobody who waits.
func acquire(ctx context.Context, from *semaphore.Weighted, n int64) error {
	if from.TryAcquire(n) {
		return nil
	}
	return from.Acquire(ctx, n)
}

// enter returns the places of a token.
func (t *turns) enter(name string) *tokenTurns {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.tokens[name]
	if mine == nil {
		mine = &tokenTurns{share: semaphore.NewWeighted(t.share)}
		t.tokens[name] = mine
	}
	mine.requests++
	return mine
}

func (t *turns) exit(name string, mine *tokenTurns) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine.requests--; mine.requests == 0 {
		delete(t.tokens, name)
	}
}

// turnError is why a wait has ended: the caller is gone, or his time for waiting is over.
func turnError(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return ErrTurn
}

type waitKey struct{}

// waiting begins a request's time for waiting. It is one time for all places that the request needs.
func waiting(ctx context.Context) context.Context {
	return context.WithValue(ctx, waitKey{}, time.Now().Add(turnWait))
}

func waitsUntil(ctx context.Context) time.Time {
	if until, ok := ctx.Value(waitKey{}).(time.Time); ok {
		return until
	}
	return time.Now().Add(turnWait)
}

// waits begins the time for waiting of each request.
func waits(ctx huma.Context, next func(huma.Context)) {
	next(huma.WithContext(ctx, waiting(ctx.Context())))
}
