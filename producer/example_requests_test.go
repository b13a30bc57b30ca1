package producer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/producer"
	"github.com/notyet/notyet/schemas"
)

// tasks makes a producer over a Kafka inside this process.
func tasks() (p *producer.Producer, end func()) {
	cluster := kfake.MustCluster(kfake.SeedTopics(1, schemas.TopicIntake))
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		log.Fatal(err)
	}
	return producer.New(client, producer.Config{}), func() { client.Close(); cluster.Close() }
}

// show prints what records request.
func show(records []*kgo.Record, err error) {
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range records {
		for _, h := range r.Headers {
			fmt.Printf("%s: %s\n", h.Key, h.Value)
		}
	}
}

// A due time on the calendar, rather than a delay.
func ExampleProducer_Schedule() {
	p, end := tasks()
	defer end()
	ref, err := p.Schedule(context.Background(), producer.Task{
		Topic: "invoices",
		ID:    "2027-01",
		At:    time.Date(2027, time.January, 31, 8, 0, 0, 0, time.UTC),
		Value: []byte(`{"month":"2027-01"}`),
	})
	fmt.Println(ref.Topic, ref.ID, err)
	// Output: invoices 2027-01 <nil>
}

// A due time by the clocks of a place. Daylight saving skips this one, so it is the end of the gap.
func ExampleProducer_Schedule_localTime() {
	p, end := tasks()
	defer end()
	at, err := schemas.LocalTime("2027-03-28T02:30", "Europe/Berlin")
	if err != nil {
		log.Fatal(err)
	}
	_, err = p.Schedule(context.Background(), producer.Task{Topic: "invoices", At: at})
	fmt.Println(at.Format(time.RFC3339), err)
	// Output: 2027-03-28T03:00:00+02:00 <nil>
}

// A mistake in a task is found before anything is sent. The rejection names the header, and says the fix.
func ExampleProducer_Schedule_rejection() {
	p, end := tasks()
	defer end()
	_, err := p.Schedule(context.Background(), producer.Task{Topic: "invoices", Delay: -time.Second})
	var rejection *schemas.Rejection
	fmt.Println(errors.As(err, &rejection), err)
	// Output: true making task 0: notyet-delay "-1s" is negative: write a duration such as 90s, 36h, PT30M or P400D
}

// A batch is checked as a whole, sent together, and waited for once.
func ExampleProducer_ScheduleBatch() {
	p, end := tasks()
	defer end()
	refs, err := p.ScheduleBatch(context.Background(),
		producer.Task{Topic: "reminders", ID: "first", Delay: 24 * time.Hour},
		producer.Task{Topic: "reminders", ID: "second", Delay: 72 * time.Hour},
	)
	if err != nil {
		log.Fatal(err)
	}
	for _, ref := range refs {
		fmt.Println(ref.ID)
	}
	// Output:
	// first
	// second
}

// A process that knows a task by its id alone can cancel the task. The key keeps both requests in order.
func ExampleProducer_Cancel() {
	p, end := tasks()
	defer end()
	err := p.Cancel(context.Background(), producer.Ref{Topic: "reminders", ID: "order-4711", Key: []byte("customer-12")})
	fmt.Println(err)
	// Output: <nil>
}

// Deliver now what was to be delivered later.
func ExampleProducer_Fire() {
	p, end := tasks()
	defer end()
	err := p.Fire(context.Background(), producer.Ref{Topic: "reminders", ID: "order-4711", Key: []byte("customer-12")})
	fmt.Println(err)
	// Output: <nil>
}

// A timer delivers at eight on every working day in Berlin.
func ExampleProducer_SetTimer() {
	p, end := tasks()
	defer end()
	ref, err := p.SetTimer(context.Background(), producer.Timer{
		Topic: "reports",
		ID:    "morning",
		When:  schemas.Timer{Cron: "0 8 * * MON-FRI", Timezone: "Europe/Berlin"},
		Value: []byte("daily"),
	})
	fmt.Println(ref.ID, err)
	// Output: morning <nil>
}

// A timer that is disabled keeps its definition, and makes no runs until it is enabled.
func ExampleProducer_DisableTimer() {
	p, end := tasks()
	defer end()
	ref := producer.Ref{Topic: "reports", ID: "morning"}
	ctx := context.Background()
	fmt.Println(p.DisableTimer(ctx, ref), p.EnableTimer(ctx, ref))
	// Output: <nil> <nil>
}

// An HTTP request instead of a record: the installation must have callbacks enabled.
func ExampleTask_callback() {
	p, end := tasks()
	defer end()
	show(p.Records(producer.Task{URL: "https://shop.example/hooks/payment", ID: "order-4711", Delay: 15 * time.Minute, Value: []byte(`{"order":4711}`)}))
	// Output:
	// notyet-id: order-4711
	// notyet-delay: 15m0s
	// notyet-url: https://shop.example/hooks/payment
}

// The consumer must report. Without a report within 30 s the task is delivered again, at most three times in all.
func ExampleTask_report() {
	p, end := tasks()
	defer end()
	settings := schemas.DefaultSettings()
	settings.Ack, settings.AckTimeout, settings.MaxAttempts = schemas.AckReport, 30*time.Second, 3
	settings.Backoff = schemas.Backoff{First: 5 * time.Second}
	show(p.Records(producer.Task{Topic: "payments", ID: "4711", Delay: time.Hour, Settings: &settings}))
	// Output:
	// notyet-topic: payments
	// notyet-id: 4711
	// notyet-delay: 1h0m0s
	// notyet-ack: report
	// notyet-ack-timeout: 30s
	// notyet-max-attempts: 3
	// notyet-backoff: fixed:5s
}
