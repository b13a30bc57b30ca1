package consumer

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// Guard makes a handler idempotent by remembering the delivery keys of handled deliveries:
// SQLGuard, TTLGuard, or the caller's own. Several goroutines call both methods, also again with
// the same key.
//
// A Guard catches copies of one delivery: after a crash between handling and committing, a
// rebalance, a failover of notyet or a rewound consumer group. Two attempts of a task of
// "notyet-ack report" are two deliveries with a key each. A handler that succeeds after
// "notyet-ack-timeout" is therefore called again: make the timeout longer than the handler takes.
type Guard interface {
	// Seen reports whether the delivery was handled. If so, the handler is not called and "ok" is
	// reported again. An error counts as the handler's.
	Seen(ctx context.Context, deliveryKey string) (bool, error)

	// Done is called after the handler's success. An error goes to OnError; the delivery still
	// counts.
	Done(ctx context.Context, deliveryKey string) error
}

// DefaultGuardTTL is how long a TTLGuard remembers by default. A copy can come as long as its topic
// keeps it; Kafka's default retention is 7 days.
const DefaultGuardTTL = 7 * 24 * time.Hour

// TTLGuard remembers in a cache whose keys expire, such as Redis. It works through two functions,
// so no client library is forced on its user. With go-redis:
//
//	guard := consumer.TTLGuard{
//		Has: func(ctx context.Context, key string) (bool, error) {
//			n, err := rdb.Exists(ctx, key).Result()
//			return n > 0, err
//		},
//		Set: func(ctx context.Context, key string, ttl time.Duration) error {
//			return rdb.SetNX(ctx, key, 1, ttl).Err()
//		},
//	}
//
// A delivery is marked after it is handled, never before. A crash or an unavailable cache between
// handling and marking makes the delivery come again, and so does a forgetful cache (eviction,
// failover). An early mark could skip a delivery that nobody has handled. Two consumers with copies
// at the same instant both do the work. If the effect must happen once even then, and is in a
// database, use SQLGuard.InTx.
type TTLGuard struct {
	// Has reports whether the key exists.
	Has func(ctx context.Context, key string) (bool, error)

	// Set stores the key, to expire after ttl. Storing it again is harmless and need not extend it.
	Set func(ctx context.Context, key string, ttl time.Duration) error

	// Prefix precedes each delivery key. Handlers of one delivery in several groups need a prefix
	// each. Default "notyet:handled:".
	Prefix string

	// TTL is how long the guard remembers. Default DefaultGuardTTL.
	TTL time.Duration
}

// Seen implements Guard.
func (g TTLGuard) Seen(ctx context.Context, deliveryKey string) (bool, error) {
	seen, err := g.Has(ctx, g.key(deliveryKey))
	if err != nil {
		return false, fmt.Errorf("looking for a handled delivery: %w", err)
	}
	return seen, nil
}

// Done implements Guard.
func (g TTLGuard) Done(ctx context.Context, deliveryKey string) error {
	if err := g.Set(ctx, g.key(deliveryKey), cmp.Or(g.TTL, DefaultGuardTTL)); err != nil {
		return fmt.Errorf("marking a delivery as handled: %w", err)
	}
	return nil
}

func (g TTLGuard) key(deliveryKey string) string {
	return cmp.Or(g.Prefix, "notyet:handled:") + deliveryKey
}
