package producer_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/producer"
	"github.com/notyet/notyet/schemas"
)

// Publish that an order is paid, cancel its reminder and ask for a review in a week: all of it or
// nothing.
func ExampleProducer_Records() {
	cluster := kfake.MustCluster(kfake.SeedTopics(1, schemas.TopicIntake, "orders.paid")) // a Kafka inside this process
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.TransactionalID("orders-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	tasks := producer.New(client, producer.Config{})

	paid := func(ctx context.Context, order string) error {
		records, err := tasks.Records(producer.Task{Topic: "reviews", ID: order, Key: []byte(order), Delay: 7 * 24 * time.Hour})
		if err != nil {
			return err
		}
		cancel, err := tasks.CancelRecords(producer.Ref{Topic: "reminders", ID: order, Key: []byte(order)})
		if err != nil {
			return err
		}
		records = append(records, cancel...)
		records = append(records, &kgo.Record{Topic: "orders.paid", Key: []byte(order)})

		if err := client.BeginTransaction(); err != nil {
			return err
		}
		end := kgo.TryCommit
		sent := client.ProduceSync(ctx, records...).FirstErr()
		if sent != nil {
			end = kgo.TryAbort
		}
		// Never with a context that may end: whether the transaction took effect would not be
		// known.
		if err := client.EndTransaction(context.WithoutCancel(ctx), end); err != nil {
			return err
		}
		return sent
	}
	if err := paid(context.Background(), "order-4711"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("paid, reminder cancelled, review asked for")
	// Output:
	// paid, reminder cancelled, review asked for
}
