// Command asynq does with notyet what a program with hibiken/asynq does: tasks with an id, a time, a
// limit of retries, and a handler whose error means another attempt.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/notyet/notyet/consumer"
	"github.com/notyet/notyet/examples/migrate/sample"
	"github.com/notyet/notyet/producer"
	"github.com/notyet/notyet/schemas"
)

func main() { sample.Main("asynq", run) }

func run(ctx context.Context, e sample.Env) error {
	queue := e.Topic("email.welcome") // a topic a type of task, where asynq has one queue for many
	client, err := e.Client(ctx, queue)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	if err := enqueue(ctx, producer.New(client, producer.Config{Intake: e.Intake}), queue); err != nil {
		return err
	}

	server, err := consumer.New(client, consumer.Config{ReportsTopic: e.Reports}) // asynq.NewServer
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var ended atomic.Int32
	end := func(err error) error {
		if ended.Add(1) == 2 {
			stop() // what has started is finished, reported and committed
		}
		return err
	}
	return server.Run(ctx, func(_ context.Context, m consumer.Message) error { // asynq.HandlerFunc
		attempt, user := m.Delivery.Attempt, string(m.Record.Value)
		fmt.Printf("attempt %d for %s\n", attempt, user)
		switch {
		case user == "nobody":
			return end(consumer.Fail(errors.New("no such user"))) // asynq.SkipRetry
		case attempt < 3:
			return errors.New("mail server busy") // another attempt
		}
		return end(nil)
	})
}

func enqueue(ctx context.Context, client *producer.Producer, queue string) error {
	s := schemas.DefaultSettings()
	s.Ack = schemas.AckReport                                  // a handler decides, as asynq's does
	s.MaxAttempts = 6                                          // asynq.MaxRetry(5)
	s.Backoff = schemas.Backoff{First: 100 * time.Millisecond} // Config.RetryDelayFunc
	s.AckTimeout = 30 * time.Second                            // asynq.Timeout(30 * time.Second)
	s.IfExists = schemas.Keep                                  // asynq.TaskID: the first one wins
	for _, user := range []string{"ada", "nobody", "ada"} {
		// client.Enqueue(asynq.NewTask("email:welcome", payload), asynq.TaskID("welcome:ada"), asynq.ProcessIn(time.Second), …)
		_, err := client.Schedule(ctx, producer.Task{Topic: queue, ID: "welcome:" + user, Delay: time.Second, Key: []byte(user), Value: []byte(user), Settings: &s})
		if err != nil {
			return fmt.Errorf("scheduling: %w", err)
		}
	}
	return nil
}
