// Package outbox schedules from inside a transaction: a task and the caller's own transaction go in;
// a request comes out exactly when the transaction is committed. docs/outbox.md says what to watch.
package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/producer"
)

// record is what the outbox keeps of a kgo.Record. A null key or value stays null in JSON.
type record struct {
	Topic      string
	Key, Value []byte
	Headers    []kgo.RecordHeader
}

// ScheduleIn writes the request for a task into the outbox, in the caller's transaction. A mistake in
// the task fails the transaction.
func ScheduleIn(ctx context.Context, tx *sql.Tx, p *producer.Producer, t producer.Task) error {
	records, err := p.Records(t)
	if err != nil {
		return err
	}
	for _, r := range records {
		data, err := json.Marshal(record{r.Topic, r.Key, r.Value, r.Headers})
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO notyet_outbox (record) VALUES (?)", data); err != nil {
			return err
		}
	}
	return nil
}

// Relay publishes what it finds in the outbox, deletes what Kafka has acknowledged, and returns how
// many records that were. It runs in a loop, in one process at a time.
func Relay(ctx context.Context, db *sql.DB, client *kgo.Client) (int, error) {
	rows, err := db.QueryContext(ctx, "SELECT id, record FROM notyet_outbox ORDER BY id LIMIT 500")
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	var ids []int64
	var records []*kgo.Record
	for rows.Next() {
		var id int64
		var data []byte
		var r record
		if err := rows.Scan(&id, &data); err != nil {
			return 0, err
		}
		if err := json.Unmarshal(data, &r); err != nil {
			return 0, err
		}
		ids = append(ids, id)
		records = append(records, &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers})
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return 0, err
	}
	for _, id := range ids { // those that were published, and not "up to the last": ids are not committed in their order
		if _, err := db.ExecContext(ctx, "DELETE FROM notyet_outbox WHERE id = ?", id); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// Publish publishes a record and schedules a task in one Kafka transaction. The client has a
// kgo.TransactionalID.
func Publish(ctx context.Context, client *kgo.Client, p *producer.Producer, order *kgo.Record, reminder producer.Task) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	records, err := p.Records(reminder)
	if err == nil {
		err = client.ProduceSync(ctx, append(records, order)...).FirstErr()
	}
	commit := kgo.TryCommit
	if err != nil {
		commit = kgo.TryAbort
	}
	return errors.Join(err, client.EndTransaction(ctx, commit))
}
