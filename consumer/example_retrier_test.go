package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/consumer"
	"github.com/notyet/notyet/schemas"
)

// Have records of an ordinary topic, which notyet has never seen, handled again later: no retry
// topics, no timers.
func ExampleRetrier() {
	cluster := kfake.MustCluster(kfake.SeedTopics(1, "payments", "payments.dead", schemas.TopicIntake)) // a Kafka inside this process
	defer cluster.Close()
	brokers := kgo.SeedBrokers(cluster.ListenAddrs()...)
	client, err := kgo.NewClient(
		brokers,
		kgo.ConsumerGroup("ledger"),
		kgo.ConsumeTopics("payments"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.CloseAllowingRebalance()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "payments", Key: []byte("account-7"), Value: []byte("12.50")}).FirstErr(); err != nil {
		log.Fatal(err)
	}

	retrier, err := consumer.NewRetrier(client, consumer.RetrierConfig{
		DeadTopic:   "payments.dead",
		MaxAttempts: 5,
		Backoff:     schemas.Backoff{Exponential: true, First: 10 * time.Second, Max: time.Hour},
	})
	if err != nil {
		log.Fatal(err)
	}
	payments, err := consumer.New(client, consumer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	err = payments.Run(ctx, retrier.Wrap(func(_ context.Context, m consumer.Message) error {
		fmt.Printf("attempt %d of %s\n", retrier.Attempt(m.Record), m.Record.Value)
		stop() // enough for an example
		return errors.New("ledger busy")
	}))
	fmt.Println("ended:", err)

	intake, err := kgo.NewClient(brokers, kgo.ConsumeTopics(schemas.TopicIntake), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		log.Fatal(err)
	}
	defer intake.Close()
	for _, h := range intake.PollRecords(context.Background(), 1).Records()[0].Headers {
		if h.Key == schemas.HeaderTopic || h.Key == "retry-attempt" || h.Key == "retry-error" {
			fmt.Printf("%s: %s\n", h.Key, h.Value)
		}
	}
	// Output:
	// attempt 1 of 12.50
	// ended: <nil>
	// notyet-topic: payments
	// retry-attempt: 2
	// retry-error: ledger busy
}
