// Command cron-table schedules the rows of a table, which a cron job looked through before for those
// that are due: the rows that are there when it moves, and then each change of a row.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/examples/migrate/sample"
	"github.com/notyet/notyet/producer"
)

// reminder is a row of the table.
type reminder struct {
	order    string
	remindAt time.Time
	version  int64 // rises with each change of the row
}

func main() { sample.Main("cron-table", run) }

func run(ctx context.Context, e sample.Env) error {
	topic := e.Topic("reminders")
	client, err := e.Client(ctx, topic)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	m := mover{producer.New(client, producer.Config{Intake: e.Intake}), topic}

	now := time.Now()
	table := []reminder{
		{"order-1", now.Add(5 * time.Second), 1},
		{"order-2", now.Add(5 * time.Second), 1},
		{"order-3", now.Add(5 * time.Second), 1},
		{"order-4", now.Add(-time.Hour), 1}, // overdue: the cron job was late
	}
	if err := m.saved(ctx, table...); err != nil {
		return err
	}
	// The rows may change while the move runs. Each change is published with the row's version, so that the order in which
	// requests arrive does not matter.
	if err := m.saved(ctx, reminder{"order-2", now.Add(6 * time.Second), 2}); err != nil { // postponed
		return err
	}
	if err := m.deleted(ctx, reminder{"order-3", time.Time{}, 2}); err != nil { // paid
		return err
	}
	// The move may be run again after a crash: what has changed since is newer than what it read.
	if err := m.saved(ctx, table[1:3]...); err != nil {
		return err
	}

	seen := ""
	return sample.Each(ctx, client, func(r *kgo.Record) (bool, error) {
		seen += string(r.Value)
		fmt.Printf("remind of %s\n", r.Value)
		if string(r.Value) == "order-3" {
			return false, fmt.Errorf("a reminder of an order that was paid: %s", seen)
		}
		return string(r.Value) != "order-2", nil
	})
}

type mover struct {
	later *producer.Producer
	topic string
}

// saved follows an INSERT or UPDATE of rows. In a program with a database it goes through an outbox:
// docs/outbox.md.
func (m mover) saved(ctx context.Context, rows ...reminder) error {
	tasks := make([]producer.Task, len(rows))
	for i, r := range rows {
		tasks[i] = producer.Task{Topic: m.topic, ID: r.order, At: r.remindAt, Version: &r.version, Key: []byte(r.order), Value: []byte(r.order)}
	}
	if _, err := m.later.ScheduleBatch(ctx, tasks...); err != nil {
		return fmt.Errorf("scheduling reminders: %w", err)
	}
	return nil
}

// deleted follows a DELETE of a row.
func (m mover) deleted(ctx context.Context, r reminder) error {
	if err := m.later.Cancel(ctx, producer.Ref{Topic: m.topic, ID: r.order, Key: []byte(r.order), Version: &r.version}); err != nil {
		return fmt.Errorf("cancelling a reminder: %w", err)
	}
	return nil
}
