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

// Send a reminder; ask for another attempt in a minute when the mail server is busy.
func Example() {
	cluster := kfake.MustCluster(kfake.SeedTopics(1, "reminders", schemas.TopicReports)) // a Kafka inside this process
	defer cluster.Close()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(cluster.ListenAddrs()...),
		kgo.ConsumerGroup("mailer"),
		kgo.ConsumeTopics("reminders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.CloseAllowingRebalance()

	// What notyet delivers: the business's record, and the delivery's headers behind its own.
	delivered := &kgo.Record{Topic: "reminders", Key: []byte("customer-12"), Value: []byte(`{"order":4711}`)}
	delivered.Headers = schemas.AppendDelivery(nil, schemas.Delivery{ID: "order-4711", Due: 1790000000000, Attempt: 1, Key: "AAEC"})
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := client.ProduceSync(ctx, delivered).FirstErr(); err != nil {
		log.Fatal(err)
	}

	deliveries, err := consumer.New(client, consumer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	err = deliveries.Run(ctx, func(_ context.Context, m consumer.Message) error {
		fmt.Printf("attempt %d of %s: %s\n", m.Delivery.Attempt, m.Delivery.ID, m.Record.Value)
		stop() // enough for an example; what has started is finished, reported and committed
		return consumer.RetryAfter(time.Minute, errors.New("mail server busy"))
	})
	fmt.Println("ended:", err)
	// Output:
	// attempt 1 of order-4711: {"order":4711}
	// ended: <nil>
}
