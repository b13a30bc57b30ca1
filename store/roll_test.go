package store

import (
	"context"
	"database/sql/driver"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/election/roll"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/internal/dialect"
)

func (f *fixture) roll() *Roll {
	r := f.Roll()
	f.test.Cleanup(r.Close)
	return r
}

func (f *fixture) page(r *Roll) roll.Page {
	f.t.Helper()
	page, err := r.Read(f.ctx)
	require.NoError(f.t, err)
	return page
}

func TestRollKeepsWhoIsThere(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		r := s.roll()
		require.Empty(t, s.page(r).Candidates)
		a := roll.Candidate{Instance: "1", ID: "a", Beat: 5, Data: []byte("{}")}
		b := roll.Candidate{Instance: "2", ID: "b", Beat: 1, Data: []byte(`{"x":1}`)}
		require.NoError(t, r.Join(s.ctx, a))
		require.NoError(t, r.Join(s.ctx, b))
		a.Beat = 6
		require.NoError(t, r.Join(s.ctx, a), "again: a late answer")
		there, err := r.Beat(s.ctx, roll.Candidate{Instance: "2", Beat: 2, Data: []byte("{}")})
		require.NoError(t, err)
		require.True(t, there)
		all := s.page(r).Candidates
		require.Len(t, all, 2)
		require.Less(t, all[0].Seq, all[1].Seq)
		require.Equal(t, roll.Candidate{Instance: "1", ID: "a", Seq: all[0].Seq, Beat: 6, Data: []byte("{}")}, all[0])
		require.Equal(t, roll.Candidate{Instance: "2", ID: "b", Seq: all[1].Seq, Beat: 2, Data: []byte("{}")}, all[1])

		gone, err := r.Remove(s.ctx, roll.Candidate{Instance: "1", Beat: 5})
		require.NoError(t, err)
		require.False(t, gone, "it has shown a sign of life since")
		gone, err = r.Remove(s.ctx, roll.Candidate{Instance: "1", Beat: 6})
		require.NoError(t, err)
		require.True(t, gone)
		there, err = r.Beat(s.ctx, a)
		require.NoError(t, err)
		require.False(t, there, "a late beat makes no member")
		require.NoError(t, r.Leave(s.ctx, roll.Candidate{Instance: "2", Beat: 1}))
		require.Len(t, s.page(r).Candidates, 1, "a late word of one that has joined anew")
		require.NoError(t, r.Leave(s.ctx, roll.Candidate{Instance: "2", Beat: 2}))
		require.NoError(t, r.Leave(s.ctx, roll.Candidate{Instance: "2", Beat: 2}))
		require.Empty(t, s.page(r).Candidates)
	})
}

// Of several that lead, one writes: the one that knows what was written last, and is a member.
func TestRollPublishesForOneLeader(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		r := s.roll()
		a, b := roll.Candidate{Instance: "1", ID: "a", Data: []byte("{}")}, roll.Candidate{Instance: "2", ID: "b", Data: []byte("{}")}
		publish := func(by roll.Candidate, before, epoch int64) bool {
			t.Helper()
			won, err := r.Publish(s.ctx, by, before, epoch, []byte(by.ID))
			require.NoError(t, err)
			return won
		}
		require.False(t, publish(a, 0, 1), "it is no member")
		require.NoError(t, r.Join(s.ctx, a))
		require.NoError(t, r.Join(s.ctx, b))
		require.False(t, publish(a, 3, 4), "there is none")
		require.True(t, publish(a, 0, 4))
		require.False(t, publish(b, 0, 5), "another was faster")
		require.True(t, publish(b, 4, 6))
		require.False(t, publish(a, 4, 7))
		page := s.page(r)
		require.EqualValues(t, 6, page.Epoch)
		require.Equal(t, "b", string(page.Data))
		require.NoError(t, r.Leave(s.ctx, a))
		require.False(t, publish(a, 6, 8), "it has left")
	})
}

// Whatever tasks do to the pool, the election has a connection.
func TestRollHasAConnectionOfItsOwn(t *testing.T) {
	for _, b := range backends() {
		if b.sqlite {
			continue
		}
		cfg := b.migrated(t)
		cfg.MaxConns = 2
		s := open(t, cfg)
		require.NoError(t, s.Migrate(t.Context(), testSlots))
		for range 2 {
			conn, err := s.db.Conn(t.Context())
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
		}
		r := s.Roll()
		defer r.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NoError(t, r.Join(ctx, roll.Candidate{Instance: "1", ID: "a", Data: []byte("{}")}))
		page, err := r.Read(ctx)
		require.NoError(t, err)
		require.NotEmpty(t, page.Life)
	}
}

// beats is a server that answers each statement and counts connections.
type beats struct{ connections int }

func (b *beats) Connect(context.Context) (driver.Conn, error) { b.connections++; return beating{}, nil }
func (b *beats) Driver() driver.Driver                        { return nil }

type beating struct{ driver.Conn }

func (beating) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), nil
}
func (beating) Close() error { return nil }

// At the server's limit of connections, another process might take the place of a connection that is renewed.
func TestRollKeepsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &beats{}
		r := (&Store{dialect: dialect.MySQL{}, apart: server}).Roll()
		defer r.Close()
		for range 2 * 60 * 60 {
			_, err := r.Beat(t.Context(), roll.Candidate{})
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		require.Equal(t, 1, server.connections)
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
