// Command etf1 publishes the records of a program that used etf1/kafka-message-scheduler, unchanged
// but for the topic. The intake needs the alias: intake.aliases etf1.
package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/examples/migrate/sample"
)

func main() { sample.Main("etf1", run) }

func run(ctx context.Context, e sample.Env) error {
	videos := e.Topic("online-videos")
	client, err := e.Client(ctx, videos)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()

	at := time.Now().Add(5 * time.Second).Unix()
	cancel := schedule(e.Intake, videos, "vid-2", at, nil) // a null value cancels
	err = client.ProduceSync(ctx,
		schedule(e.Intake, videos, "vid-1", at, []byte("online")),
		schedule(e.Intake, videos, "vid-2", at, []byte("online")),
		cancel,
		schedule(e.Intake, videos, "vid-3", at+1, []byte("offline")),
	).FirstErr()
	if err != nil {
		return fmt.Errorf("publishing schedules: %w", err)
	}
	return sample.Each(ctx, client, func(r *kgo.Record) (bool, error) {
		if early := time.Until(time.Unix(at, 0)); early > 0 {
			return false, fmt.Errorf("%s came %v early", r.Key, early)
		}
		fmt.Printf("%s: %s\n", r.Key, r.Value)
		if string(r.Key) == "target of vid-2" {
			return false, fmt.Errorf("%s was cancelled", r.Key)
		}
		return string(r.Key) != "target of vid-3", nil
	})
}

// schedule is as it was: the scheduler's own headers, with the scheduled id as the record's key.
func schedule(intake, target, id string, epoch int64, value []byte) *kgo.Record {
	return &kgo.Record{Topic: intake, Key: []byte(id), Value: value, Headers: []kgo.RecordHeader{
		{Key: "scheduler-epoch", Value: []byte(strconv.FormatInt(epoch, 10))},
		{Key: "scheduler-target-topic", Value: []byte(target)},
		{Key: "scheduler-target-key", Value: []byte("target of " + id)},
		{Key: "customer-header", Value: []byte("dummy")},
	}}
}
