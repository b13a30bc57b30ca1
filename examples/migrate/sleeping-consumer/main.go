// Command sleeping-consumer is what is left of a consumer that slept until each message was due: it
// handles what comes, because it comes when it is due.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/examples/migrate/sample"
	"github.com/notyet/notyet/producer"
)

func main() { sample.Main("sleeping-consumer", run) }

func run(ctx context.Context, e sample.Env) error {
	emails := e.Topic("emails")
	client, err := e.Client(ctx, emails)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()

	// The producer says when; before, it wrote a "send after" into the value.
	later := producer.New(client, producer.Config{Intake: e.Intake})
	due := map[string]time.Time{}
	for _, mail := range []struct {
		to    string
		delay time.Duration
	}{{"slow@example.com", 5 * time.Second}, {"quick@example.com", 300 * time.Millisecond}} {
		due[mail.to] = time.Now().Add(mail.delay)
		if _, err := later.Schedule(ctx, producer.Task{Topic: emails, At: due[mail.to], Key: []byte(mail.to), Value: []byte("hello")}); err != nil {
			return fmt.Errorf("scheduling: %w", err)
		}
	}

	// The consumer sends. It slept in front of slow@ before, and quick@, one partition for both, waited behind it.
	left := len(due)
	return sample.Each(ctx, client, func(r *kgo.Record) (bool, error) {
		if early := time.Until(due[string(r.Key)]); early > time.Millisecond {
			return false, fmt.Errorf("%s came %v early", r.Key, early)
		}
		fmt.Printf("mail to %s\n", r.Key)
		left--
		return left > 0, nil
	})
}
