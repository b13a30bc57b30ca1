package copies

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Kafka is silent for 20 s in a new life. It comes back, and the database is slow for one look: that must not end the hold, which the
// database alone may do after five looks without an answer.
func TestASlowLookAtTheDatabaseEndsNoHoldBesideASilentKafka(t *testing.T) {
	watching(t, func(w *watched) {
		w.commit(180)
		w.next.Store(180)
		w.runs(func() {
			w.after(time.Second, false, "all is well")
			mend := w.breaks(fault{network: "silent"})
			w.begins("second") // the database was set back
			w.next.Store(120)
			w.Renew(w.Life())
			w.after(20*time.Second, true, "Kafka is silent")
			w.failing.Store(true)
			mend()
			w.after(7*time.Second, true, "three looks without an answer of the database")
			w.failing.Store(false)
		})
	})
}

func TestSilenceOfKafkaDoesNotCountAsTheDatabases(t *testing.T) {
	v := verdict{fresh: true, known: true}
	for range 10 {
		require.False(t, v.silent(true))
	}
	v.silent(false)
	require.True(t, v.holds())
}
