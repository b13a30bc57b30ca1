package dispatcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

// A database that is away holds up settling. What Kafka answers meanwhile is in the send log all the same, so a dispatcher that ends, and
// begins again, does not send it once more.
func TestOutcomesAreLoggedWhileTheDatabaseIsAway(t *testing.T) {
	for name, afterwards := range map[string]func(r *running, m *members){
		"stopped": func(r *running, _ *members) { require.NoError(t, r.end()) },
		"killed":  func(r *running, m *members) { r.crash(m) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "orders")
			orders := f.read("orders")
			dir, m := t.TempDir(), f.elect(5)
			cfg := Config{MemberID: "one", LookAhead: 10 * time.Second, BurstLookAhead: 10 * time.Second, DrainTimeout: time.Second}
			d := f.start(m, dir, cfg)
			due := time.Now().Add(2 * time.Second)
			f.schedule(ask("orders", "a", due, schemas.HeaderEvents, "none"), ask("orders", "b", due.Add(time.Second), schemas.HeaderEvents, "none"))
			f.eventually("both are staged", func() bool { return d.stagedTasks() == 2 })
			f.sql("ALTER TABLE slots RENAME TO slots_away")
			f.eventually("both are delivered", func() bool { return orders.count() == 2 })
			f.eventually("both are in the send log", func() bool {
				acked, err := d.sent.Acked(t.Context(), due.Add(-time.Minute), func(int64) bool { return true })
				return err == nil && len(acked) == 2
			})
			afterwards(d, m)
			f.sql("ALTER TABLE slots_away RENAME TO slots")

			f.start(f.elect(6), dir, cfg)
			f.eventually("all is settled", func() bool { return f.settledUpTo(due.Add(time.Second)) })
			require.Equal(t, map[string]int{"a": 1, "b": 1}, orders.copies())
		})
	}
}
