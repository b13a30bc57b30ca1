package dispatcher

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/store"
)

func TestTheElectionIsToldOfADatabaseThatDoesNotAnswer(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m := f.elect(1)
	f.start(m, t.TempDir(), Config{MemberID: "d"})
	f.says(m, true)
	f.sql("ALTER TABLE targets RENAME TO away")
	f.says(m, false)
	f.sql("ALTER TABLE away RENAME TO targets")
	f.says(m, true)
}

// A topic that does not answer is the same for all. Brokers of which none answers this process are not.
func TestTheElectionIsToldOfKafka(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m := f.elect(1)
	d := f.stepped(m, Config{MemberID: "d"})
	require.NoError(t, d.health.check(t.Context()))
	f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.NotEnoughReplicas, Count: -1})
	require.NoError(t, d.health.check(t.Context()))
	f.cluster.Close()
	require.ErrorContains(t, d.health.check(t.Context()), "kafka")
}

// A claim that succeeds says nothing of settlements.
func TestTheElectionIsToldOfSettlementsThatFail(t *testing.T) {
	f := newFixture(t, 1, "orders")
	d := f.stepped(f.elect(1), Config{MemberID: "d"})
	refused := errors.New("the table is read-only")
	d.health.settles.noteWrite(t.Context(), refused)
	d.health.claims.noteWrite(t.Context(), nil)
	require.ErrorIs(t, d.health.check(t.Context()), refused)
}

func TestWritesThatCountAsFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lastCall
		refused := errors.New("the server is read-only")
		l.noteWrite(t.Context(), refused)
		require.ErrorIs(t, l.failure(wroteWithin), refused)
		l.noteWrite(t.Context(), store.ErrFenced)
		require.NoError(t, l.failure(wroteWithin), "a database that refuses an epoch has answered")

		l.noteWrite(t.Context(), refused)
		time.Sleep(wroteWithin)
		require.NoError(t, l.failure(wroteWithin), "a process that has left must come back to find out")
	})
}
