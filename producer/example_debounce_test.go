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

// Write a counter to a database once a user has been quiet for 5 seconds, with the sum of all that
// happened, and at the latest 30 seconds after the first of it: one task per user, which every
// request merges into.
func Example_debounce() {
	cluster := kfake.MustCluster(kfake.SeedTopics(1, schemas.TopicIntake)) // a Kafka inside this process
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	tasks := producer.New(client, producer.Config{})

	settings := schemas.DefaultSettings()
	settings.IfExists = schemas.Merge
	settings.Merge = schemas.MergeSum // numbers in JSON objects are added
	settings.MaxWait = 30 * time.Second
	settings.Events = schemas.EventsNone
	uploaded := func(bytes int) producer.Task {
		return producer.Task{
			Topic:    "quota.updates",
			ID:       "user-7",
			Key:      []byte("user-7"), // requests about one task in order
			Delay:    5 * time.Second,  // counted anew from each
			Value:    fmt.Appendf(nil, `{"bytes":%d}`, bytes),
			Settings: &settings,
		}
	}
	refs, err := tasks.ScheduleBatch(context.Background(), uploaded(100), uploaded(250), uploaded(50))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(refs), "requests about", refs[0].ID, "and one delivery to come: {\"bytes\":400}")
	// Output:
	// 3 requests about user-7 and one delivery to come: {"bytes":400}
}
