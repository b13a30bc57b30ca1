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

// Remind a customer in three days, unless the order is paid before.
func Example() {
	cluster := kfake.MustCluster(kfake.SeedTopics(1, schemas.TopicIntake)) // a Kafka inside this process
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx := context.Background()
	tasks := producer.New(client, producer.Config{})
	reminder, err := tasks.Schedule(ctx, producer.Task{
		Topic: "reminders",
		ID:    "order-4711",
		Delay: 72 * time.Hour,
		Key:   []byte("customer-12"),
		Value: []byte(`{"order":4711}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("scheduled", reminder.ID, "for", reminder.Topic)

	if err := tasks.Cancel(ctx, reminder); err != nil {
		log.Fatal(err)
	}
	fmt.Println("asked to cancel it")

	_, err = tasks.Schedule(ctx, producer.Task{Topic: "re minders", Delay: time.Second})
	fmt.Println(err)
	// Output:
	// scheduled order-4711 for reminders
	// asked to cancel it
	// making task 0: notyet-topic "re minders" is not a topic name: write 1 to 249 of a-z A-Z 0-9 . _ - (not . or .. alone)
}
