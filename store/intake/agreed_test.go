package intake

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store/admin"
)

func TestADatabaseBelongsToOneKafka(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		require.NoError(t, s.OnKafka(s.ctx, "one", false))
		require.NoError(t, s.OnKafka(s.ctx, "one", false))
		err := s.OnKafka(s.ctx, "two", false)
		require.ErrorIs(t, err, admin.ErrOtherKafka)
		require.ErrorContains(t, err, "one, and kafka.brokers lead to two")
		require.NoError(t, s.OnKafka(s.ctx, "two", true), "it has moved")
		require.ErrorIs(t, s.OnKafka(s.ctx, "one", false), admin.ErrOtherKafka)
	})
}

// A copy of the database gets its name from one command at a time.
func TestACopyHasAName(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		read := func() string {
			t.Helper()
			name, err := s.Copy(s.ctx)
			require.NoError(t, err)
			return name
		}
		require.Empty(t, read())
		require.NoError(t, s.NameCopy(s.ctx, "", "1 a"))
		require.Equal(t, "1 a", read())
		require.ErrorContains(t, s.NameCopy(s.ctx, "", "1 b"), `another command has named it "1 a" meanwhile`)
		require.NoError(t, s.NameCopy(s.ctx, "1 a", "2 c"))
		require.NoError(t, s.NameCopy(s.ctx, "1 a", "2 c"), "the answer of the first try was lost")
		require.Error(t, s.NameCopy(s.ctx, "1 a", "2 d"))
		require.Equal(t, "2 c", read())
	})
}

// An epoch that the database has forgotten is not given to anybody else.
func TestEpochsOfAnotherLifeAreLeftOut(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		next := func() int64 {
			t.Helper()
			epoch, err := s.NextEpoch(s.ctx)
			require.NoError(t, err)
			return epoch
		}
		s.restart() // into a life that has a name
		require.EqualValues(t, 1, next())
		require.EqualValues(t, 2, next())
		forgotten := next()
		s.offset++
		s.restart("UPDATE meta SET value = 1")
		require.Greater(t, next(), forgotten+1000)
		again := next()
		require.Equal(t, again+1, next(), "once a life")
	})
}

// An epoch that a program of the version before has allocated names no life.
func TestEpochsOfTheVersionBeforeGoOn(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		_, err := s.db.ExecContext(s.ctx, "INSERT INTO meta (name, value) VALUES (?, 41)", []byte("epoch"))
		require.NoError(t, err)
		epoch, err := s.NextEpoch(s.ctx)
		require.NoError(t, err)
		require.EqualValues(t, 42, epoch)
	})
}

func TestOneElectionAtATime(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		past := func(ms int64) {
			t.Helper()
			_, err := s.db.ExecContext(s.ctx, "UPDATE meta SET value = value - ? WHERE name = ?", ms, []byte("election.kind"))
			require.NoError(t, err)
		}
		require.NoError(t, s.Beat(s.ctx, admin.Service{ID: "a", Kind: "dispatcher", Member: "a"}))
		require.NoError(t, s.Beat(s.ctx, admin.Service{ID: "b", Kind: "dispatcher", Member: "b"}))
		require.NoError(t, s.ElectBy(s.ctx, "mysql"), "both start at once, before anything is noted")
		err := s.ElectBy(s.ctx, "zookeeper")
		require.ErrorIs(t, err, admin.ErrOtherElection)
		require.ErrorContains(t, err, "election.kind is zookeeper here, and mysql for dispatchers at work")
		past(admin.ServiceLease - 1000)
		require.ErrorIs(t, s.ElectBy(s.ctx, "zookeeper"), admin.ErrOtherElection)
		require.NoError(t, s.ElectBy(s.ctx, "mysql"), "its leader is still at work")
		past(admin.ServiceLease - 1000)
		require.ErrorIs(t, s.ElectBy(s.ctx, "zookeeper"), admin.ErrOtherElection, "and has said so")
		past(admin.ServiceLease)
		require.NoError(t, s.ElectBy(s.ctx, "zookeeper"), "all were restarted with the other kind, and are alive")
		require.ErrorIs(t, s.ElectBy(s.ctx, "mysql"), admin.ErrOtherElection)
		past(-2 * admin.ServiceLease)
		require.NoError(t, s.ElectBy(s.ctx, "mysql"), "the clock was set back")
	})
}

// Who wakes over Redis is not heard by those that listen to a topic.
func TestOneIndexAtATime(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		require.NoError(t, s.Beat(s.ctx, admin.Service{ID: "host-1", Kind: "scanner"}))
		_, err := s.db.ExecContext(s.ctx, "UPDATE services SET spreads = 0")
		require.NoError(t, err)
		err = s.IndexBy(s.ctx, "mysql")
		require.ErrorIs(t, err, admin.ErrOtherIndex)
		require.ErrorContains(t, err, "index.kind is mysql here, and redis for host-1:", "one of the version before notes nothing")
		require.NoError(t, s.Leave(s.ctx, "host-1"))
		require.NoError(t, s.IndexBy(s.ctx, "mysql"))
		err = s.IndexBy(s.ctx, "redis")
		require.ErrorIs(t, err, admin.ErrOtherIndex)
		require.ErrorContains(t, err, "index.kind is redis here, and mysql for services at work")
		require.NoError(t, s.ElectBy(s.ctx, "zookeeper"), "an election of another kind may go with it")
		_, err = s.db.ExecContext(s.ctx, "UPDATE meta SET value = value - ? WHERE name = ?", admin.ServiceLease, []byte("index.kind"))
		require.NoError(t, err)
		require.NoError(t, s.IndexBy(s.ctx, "redis"), "all were killed")
		for _, id := range []string{"host-2", "host-3"} {
			require.NoError(t, s.Beat(s.ctx, admin.Service{ID: id, Kind: "all"}))
		}
		require.NoError(t, s.Leave(s.ctx, "host-2"))
		require.ErrorIs(t, s.IndexBy(s.ctx, "mysql"), admin.ErrOtherIndex)
		require.NoError(t, s.Leave(s.ctx, "host-3"))
		require.NoError(t, s.IndexBy(s.ctx, "mysql"), "all have ended")
		kind, err := s.IndexedBy(s.ctx)
		require.NoError(t, err)
		require.Equal(t, "mysql", kind)
	})
}

// Of two targets that scanners have for an intake topic, requests would go to one or the other by chance.
func TestOneTargetOfAnIntakeAtATime(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		long := strings.Repeat("l", 249)
		require.NoError(t, s.IntakeFor(s.ctx, long, strings.Repeat("t", 249)))
		require.NoError(t, s.Beat(s.ctx, admin.Service{ID: "host-1", Kind: "scanner"}))
		require.NoError(t, s.Beat(s.ctx, admin.Service{ID: "host-2", Kind: "dispatcher"}))
		require.NoError(t, s.IntakeFor(s.ctx, "later", "orders"))
		require.NoError(t, s.IntakeFor(s.ctx, "later", "orders"))
		for _, other := range []string{"", "bills"} {
			require.ErrorIs(t, s.IntakeFor(s.ctx, "later", other), admin.ErrOtherTarget)
		}
		require.ErrorContains(t, s.IntakeFor(s.ctx, "later", ""), "the target of later in intake.topics is none here, and orders for scanners at work: set the same one everywhere")
		require.NoError(t, s.IntakeFor(s.ctx, "intake", ""), "another topic")
		require.ErrorIs(t, s.IntakeFor(s.ctx, "intake", "orders"), admin.ErrOtherTarget)
		require.NoError(t, s.Leave(s.ctx, "host-1"))
		require.NoError(t, s.IntakeFor(s.ctx, "intake", "orders"), "the last scanner has ended; a dispatcher reads no intake")
		require.NoError(t, s.IntakeFor(s.ctx, "later", ""))

		require.NoError(t, s.Beat(s.ctx, admin.Service{ID: "old", Kind: "all"}))
		_, err := s.db.ExecContext(s.ctx, "UPDATE services SET spreads = 0")
		require.NoError(t, err)
		require.ErrorContains(t, s.IntakeFor(s.ctx, "more", "orders"), "none for old:", "one of the version before knows no targets")
		require.NoError(t, s.Leave(s.ctx, "old"))
		require.NoError(t, s.IntakeFor(s.ctx, "more", "orders"), "a dispatcher of that version reads no intake")

		_, err = s.db.ExecContext(s.ctx, "INSERT INTO meta (name, value, data) VALUES (?, 0, ?)", []byte("shard.number"), []byte("0"))
		require.NoError(t, err)
		require.NoError(t, s.IntakeFor(s.ctx, "more", "orders"))
		err = s.IntakeFor(s.ctx, "more", "bills")
		require.ErrorIs(t, err, admin.ErrOtherTarget)
		require.ErrorContains(t, err, "the target of more in intake.topics is bills here, and was orders: it cannot change, since the installation has several databases")
	})
}

// Dispatchers of the version before elect through ZooKeeper, and note nothing.
func TestDispatchersOfTheVersionBeforeElectThroughZooKeeper(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		require.NoError(t, s.Beat(s.ctx, admin.Service{ID: "a", Kind: "dispatcher", Member: "a"}))
		require.NoError(t, s.Beat(s.ctx, admin.Service{ID: "s", Kind: "scanner"}))
		_, err := s.db.ExecContext(s.ctx, "UPDATE services SET spreads = 0")
		require.NoError(t, err)
		require.ErrorContains(t, s.ElectBy(s.ctx, "mysql"), "zookeeper for a:")
		require.NoError(t, s.Leave(s.ctx, "a"))
		require.NoError(t, s.ElectBy(s.ctx, "mysql"), "a scanner elects nobody")
	})
}
