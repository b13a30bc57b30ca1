package e2e

import (
	"os"
	"testing"
)

// Kafka and the database alone: two dispatchers share the slots, one of them stops in the middle, and each task is delivered once all the
// same.
func TestKafkaAndTheDatabaseAlone(t *testing.T) {
	run := func(t *testing.T, real bool) {
		s := newStackIn(t, real, true, 8, usualSlots)
		s.scanner()
		s.dispatcher("one")
		two := s.dispatcher("two")
		s.deliversEachOnce(t, func() { two.shutdown(t) })
	}
	t.Run("embedded", func(t *testing.T) { run(t, false) })
	t.Run("real", func(t *testing.T) {
		if os.Getenv("NOTYET_KAFKA_BROKERS") == "" || os.Getenv("NOTYET_MYSQL_DSN") == "" {
			t.Skip("NOTYET_KAFKA_BROKERS or NOTYET_MYSQL_DSN is not set")
		}
		run(t, true)
	})
}
