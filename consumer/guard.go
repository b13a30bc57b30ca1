package consumer

import (
	"context"
	"fmt"
	"time"
)

// Guard makes a handler idempotent by remembering the delivery keys of what it has handled: SQLGuard, TTLGuard, or one of
// the caller's. Both methods are called from several goroutines and may be called again with the same key.
//
// What a Guard catches are copies of one delivery: after a crash between handling and committing, a rebalance, a failover
// of notyet, a rewound consumer group. Two attempts of a task of "notyet-ack report" are two deliveries with a key each,
// so a handler that succeeds after "notyet-ack-timeout" is over is asked again: make the timeout longer than the handler.
type Guard interface {
	// Seen tells whether the delivery was handled: then the handler is passed over and "ok" reported again. An error
	// is treated as the handler's.
	Seen(ctx context.Context, deliveryKey string) (bool, error)

	// Done is called when the handler has succeeded. An error goes to OnError; the delivery is done all the same.
	Done(ctx context.Context, deliveryKey string) error
}

// DefaultGuardTTL is how long a TTLGuard remembers unless told otherwise: as long as Kafka keeps records by default
// (7 days), for a copy in a topic can come as long as the topic keeps it.
const DefaultGuardTTL = 7 * 24 * time.Hour

// TTLGuard remembers in a cache whose keys expire, such as Redis, over two functions, so that no client library is
// forced upon anybody. With go-redis:
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
// A delivery is marked after it is handled, never before: a crash, or a cache that is away, between handling and marking
// has it handled again, and so does a cache that forgets (eviction, failover). It is never passed over unhandled, as it
// could be if a mark were set first. Two consumers that handle copies at the same instant both do: where the effect must
// be had once even then, and it is in a database, take SQLGuard.InTx.
type TTLGuard struct {
	// Has tells whether the key is there.
	Has func(ctx context.Context, key string) (bool, error)

	// Set puts the key, to expire after ttl; putting it again is harmless, and need not extend it.
	Set func(ctx context.Context, key string, ttl time.Duration) error

	// Prefix is put before delivery keys. Handlers of one delivery in several groups must each have their own. Default
	// "notyet:handled:".
	Prefix string

	// TTL is how long to remember. Default DefaultGuardTTL.
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
	ttl := g.TTL
	if ttl == 0 {
		ttl = DefaultGuardTTL
	}
	if err := g.Set(ctx, g.key(deliveryKey), ttl); err != nil {
		return fmt.Errorf("marking a delivery as handled: %w", err)
	}
	return nil
}

func (g TTLGuard) key(deliveryKey string) string {
	if g.Prefix == "" {
		return "notyet:handled:" + deliveryKey
	}
	return g.Prefix + deliveryKey
}
