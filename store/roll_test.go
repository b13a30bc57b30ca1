package store

import (
	"context"
	"database/sql/driver"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/election/roll"
	"github.com/notyet/notyet/store/internal/dialect"
)

func (f *fixture) roll() *Roll {
	r := f.Roll()
	f.t.Cleanup(r.Close)
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
		cfg := b.fresh(t)
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
