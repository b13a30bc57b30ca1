package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/notyet/notyet/consumer"
)

var errBusy = errors.New("the mail server is busy")

// An order that does not exist will not exist at the next attempt either: the task becomes a dead letter at once.
func ExampleFail() {
	var handle consumer.Handler = func(context.Context, consumer.Message) error {
		return consumer.Fail(errors.New("there is no order 4711"))
	}
	fmt.Println(handle(context.Background(), consumer.Message{}))
	// Output: there is no order 4711
}

// The server said when it has time again, and the next attempt waits for that rather than for the task's backoff.
func ExampleRetryAfter() {
	err := consumer.RetryAfter(90*time.Second, errBusy)
	fmt.Println(err, errors.Is(err, errBusy))
	// Output: the mail server is busy true
}

// The shop is closed: the message comes again in the morning, and the attempt does not count.
func ExampleSnooze() {
	err := consumer.Snooze(9*time.Hour, errors.New("the shop is closed"))
	fmt.Println(err)
	// Output: the shop is closed
}

// Without its database the handler can handle no message. Run ends, and the message comes again when the consumer is started again.
func ExampleStop() {
	err := consumer.Stop(errors.New("the database is down"))
	fmt.Println(err)
	// Output: the database is down
}

// A guard over any cache whose keys expire. This one is a map.
func ExampleTTLGuard() {
	cache := map[string]bool{}
	guard := consumer.TTLGuard{
		Has: func(_ context.Context, key string) (bool, error) { return cache[key], nil },
		Set: func(_ context.Context, key string, _ time.Duration) error { cache[key] = true; return nil },
	}
	ctx := context.Background()
	before, _ := guard.Seen(ctx, "AAEC")
	_ = guard.Done(ctx, "AAEC")
	after, _ := guard.Seen(ctx, "AAEC")
	fmt.Println(before, after)
	// Output: false true
}
