// Command retry-topics is a consumer whose failed records come back later: after 200 ms, 400 ms and
// 800 ms, and then go to a dead letter topic. There is no topic for each pause, and no consumer that
// waits. It writes plain headers, as a client in any language does; Go programs can use
// consumer.Retrier instead. docs/migrate/retry-topics.md has the same in Java, for Spring.
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/examples/migrate/sample"
)

// As @RetryableTopic(attempts = "4", backoff = @Backoff(delay = 200, multiplier = 2)).
const (
	attempts   = 4
	firstPause = 200 * time.Millisecond
)

func main() { sample.Main("retry-topics", run) }

func run(ctx context.Context, e sample.Env) error {
	payments, dead := e.Topic("payments"), e.Topic("payments-dlt")
	client, err := e.Client(ctx, payments, dead)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	err = client.ProduceSync(ctx,
		&kgo.Record{Topic: payments, Key: []byte("card-1"), Value: []byte("busy twice")},
		&kgo.Record{Topic: payments, Key: []byte("card-2"), Value: []byte("never works")},
		&kgo.Record{Topic: payments, Key: []byte("card-3"), Value: []byte("works")},
	).FirstErr()
	if err != nil {
		return fmt.Errorf("publishing payments: %w", err)
	}
	ended := map[string]bool{}
	return sample.Each(ctx, client, func(r *kgo.Record) (bool, error) {
		if r.Topic == dead {
			fmt.Printf("%s is a dead letter after attempt %s: %s\n", r.Key, sample.Header(r, "retry-attempt"), sample.Header(r, "retry-error"))
			ended[string(r.Key)] = true
			return len(ended) < 3, nil
		}
		attempt := attemptOf(r)
		if err := charge(string(r.Value), attempt); err != nil {
			fmt.Printf("%s failed at attempt %d\n", r.Key, attempt)
			// Commit only after Kafka has the copy: that is sample.Each's next step.
			return true, client.ProduceSync(ctx, later(e.Intake, dead, r, err)).FirstErr()
		}
		fmt.Printf("%s is charged at attempt %d\n", r.Key, attempt)
		ended[string(r.Key)] = true
		return len(ended) < 3, nil
	})
}

// charge is the business.
func charge(payment string, attempt int) error {
	if payment == "never works" || payment == "busy twice" && attempt < 3 {
		return errors.New("bank busy")
	}
	return nil
}

func attemptOf(r *kgo.Record) int {
	n, err := strconv.Atoi(sample.Header(r, "retry-attempt"))
	if err != nil {
		return 1
	}
	return n
}

// later returns the request to deliver the record again after its pause, or its dead letter.
func later(intake, dead string, r *kgo.Record, cause error) *kgo.Record {
	attempt := attemptOf(r)
	origin := sample.Header(r, "retry-origin")
	if origin == "" {
		origin = fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset)
	}
	out := &kgo.Record{Topic: dead, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers { // its own; what notyet added to the last delivery must not be sent back
		if !strings.HasPrefix(h.Key, "notyet-") && !strings.HasPrefix(h.Key, "retry-") {
			out.Headers = append(out.Headers, h)
		}
	}
	set := func(name, value string) {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	set("retry-origin", origin)
	set("retry-error", cause.Error())
	if attempt >= attempts {
		set("retry-attempt", strconv.Itoa(attempt))
		return out
	}
	set("retry-attempt", strconv.Itoa(attempt+1))
	out.Topic = intake
	set("notyet-topic", r.Topic)
	set("notyet-id", "retry/"+origin) // published twice after a crash, it is still one delivery
	set("notyet-delay", (firstPause << (attempt - 1)).String())
	set("notyet-events", "none")
	return out
}
