package consumer_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/consumer"
	"github.com/notyet/notyet/schemas"
)

// Book a payment once per delivery, however often the delivery comes: booking and mark are one
// transaction.
func ExampleSQLGuard_InTx() {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // every connection to :memory: is a database of its own
	ctx := context.Background()
	if _, err := db.ExecContext(ctx, "CREATE TABLE bookings (amount INTEGER)"); err != nil {
		log.Fatal(err)
	}
	guard, err := consumer.NewSQLGuard(db, consumer.SQLGuardConfig{Dialect: consumer.SQLite})
	if err != nil {
		log.Fatal(err)
	}
	if err := guard.Create(ctx); err != nil {
		log.Fatal(err)
	}

	handle := guard.InTx(func(ctx context.Context, tx *sql.Tx, m consumer.Message) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO bookings VALUES (?)", string(m.Record.Value))
		return err
	})

	// Run calls it; here are two copies of one delivery.
	delivery := consumer.Message{
		Record:   &kgo.Record{Topic: "payments", Value: []byte("1250")},
		Delivery: &schemas.Delivery{ID: "payment-1", Attempt: 1, Key: "AAEC"},
	}
	fmt.Println(handle(ctx, delivery), handle(ctx, delivery))
	var n int
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM bookings").Scan(&n); err != nil {
		log.Fatal(err)
	}
	fmt.Println("bookings:", n)
	// Output:
	// <nil> <nil>
	// bookings: 1
}
