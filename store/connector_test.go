package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// pair is a primary, and the server that takes its place in a planned switchover: nothing is forgotten. New connections lead to the new
// primary. Those that were made before stay with the old one, which answers reads and refuses writes.
type pair struct {
	driver  driver.Driver
	dir     string
	primary atomic.Int64
	lead    atomic.Int64 // where new connections go, when it is not the primary
	dialled func()       // when a connection is made, before anybody knows of it
}

type embedded interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

func newPair(t *testing.T) *pair {
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	return &pair{driver: db.Driver(), dir: t.TempDir(), dialled: func() {}}
}

func (p *pair) dsn(server int64) string {
	return fmt.Sprintf("%s/%d.db?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)", p.dir, server)
}

func (p *pair) Driver() driver.Driver { return p.driver }

func (p *pair) Connect(ctx context.Context) (driver.Conn, error) {
	server := p.lead.Load()
	c, err := p.driver.Open(p.dsn(server))
	if err != nil {
		return nil, err
	}
	if _, err := c.(embedded).ExecContext(ctx, fmt.Sprintf("CREATE TEMP TABLE life AS SELECT 'life %d' AS name", server), nil); err != nil {
		return nil, err
	}
	p.dialled()
	return &pairConn{embedded: c.(embedded), p: p, server: server}, nil
}

// switchOver makes the other server the primary.
func (p *pair) switchOver(t *testing.T) {
	t.Helper()
	db, err := sql.Open("sqlite", p.dsn(p.primary.Load()))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = db.Exec(fmt.Sprintf("VACUUM INTO '%s/%d.db'", p.dir, p.primary.Load()+1))
	require.NoError(t, err)
	p.lead.Store(p.primary.Add(1))
}

type pairConn struct {
	embedded
	p      *pair
	server int64
	closed bool
}

func (c *pairConn) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return c.Prepare(query)
}
func (c *pairConn) CheckNamedValue(*driver.NamedValue) error { return driver.ErrSkip }
func (c *pairConn) Ping(context.Context) error               { return nil }
func (c *pairConn) IsValid() bool                            { return !c.closed }
func (c *pairConn) ResetSession(context.Context) error       { return nil }

// ExecContext refuses writes as MySQL's driver does with RejectReadOnly.
func (c *pairConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.server != c.p.primary.Load() {
		c.closed = true
		return nil, driver.ErrBadConn
	}
	return c.embedded.ExecContext(ctx, query, args)
}

// BeginTx begins a transaction also where nobody can write.
func (c *pairConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.server != c.p.primary.Load() {
		opts.ReadOnly = true
	}
	opts.Isolation = 0
	return c.embedded.BeginTx(ctx, opts)
}

func (p *pair) open(t *testing.T) *Store {
	s, err := Open(t.Context(), Config{Connector: p, Life: "(SELECT name FROM temp.life)", MaxConns: 4}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// lives are those of so many connections at once.
func (s *Store) lives(t *testing.T, n int) (lives []string) {
	t.Helper()
	for range n {
		conn, err := s.db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		var life string
		require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT name FROM temp.life").Scan(&life))
		lives = append(lives, life)
	}
	return lives
}

func some(life string, n int) []string {
	return strings.Split(strings.Repeat(","+life, n)[1:], ",")
}

// After a switchover, whatever was written is what is read, over whichever connection: what is claimed at the new primary is not read
// from the old one, which shows tasks that were cancelled since.
func TestNoReadGoesToTheOldPrimary(t *testing.T) {
	for name, notices := range map[string]func(t *testing.T, s *Store){
		"a write is refused": func(t *testing.T, s *Store) {
			_, err := s.db.ExecContext(t.Context(), "UPDATE slots SET claimed = 7")
			require.NoError(t, err)
		},
		"a write of a transaction is refused": func(t *testing.T, s *Store) {
			tx, err := s.db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(t.Context(), "UPDATE slots SET claimed = 7")
			require.ErrorIs(t, err, driver.ErrBadConn)
			_ = tx.Rollback()
		},
		"another connection is made": func(t *testing.T, s *Store) {
			require.Equal(t, append(some("life 0", 3), "life 1"), s.lives(t, 4), "those in use are used on")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			s := p.open(t)
			require.NoError(t, s.Migrate(t.Context(), 1))
			require.Equal(t, some("life 0", 3), s.lives(t, 3))
			p.switchOver(t)
			notices(t, s)
			require.Equal(t, some("life 1", 4), s.lives(t, 4))
		})
	}
}

// Connections are made while the primary changes: one that was begun before, and ends at the old primary, is not used, and does not end the
// use of those to the new one.
func TestConnectionThatIsOutrunIsMadeAnew(t *testing.T) {
	p := newPair(t)
	s := p.open(t)
	require.NoError(t, s.Migrate(t.Context(), 1))
	s.db.SetMaxIdleConns(0)
	s.db.SetMaxIdleConns(4)
	var first atomic.Bool
	dialled, release := make(chan struct{}), make(chan struct{})
	kept, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	p.dialled = func() {
		if first.CompareAndSwap(false, true) {
			close(dialled)
			<-release
		}
	}
	slow := make(chan []string, 1)
	go func() { slow <- s.lives(t, 1) }()
	<-dialled
	p.switchOver(t)
	require.NoError(t, kept.Close())
	_, err = s.db.ExecContext(t.Context(), "UPDATE slots SET claimed = 7")
	require.NoError(t, err)
	require.Equal(t, some("life 1", 3), s.lives(t, 3))
	close(release)
	require.Equal(t, some("life 1", 1), <-slow)
	require.Equal(t, some("life 1", 4), s.lives(t, 4))
}

// A name that leads to a replica for a moment makes nobody believe that it is the primary.
func TestReplicaIsNoOtherLife(t *testing.T) {
	var l lives
	since, err := l.join("a", true, 0)
	require.NoError(t, err, "whoever begins while nobody can write, reads")
	require.EqualValues(t, 1, since)
	_, err = l.join("b", true, 1)
	require.ErrorIs(t, err, errReplica)
	since, err = l.join("b", false, 1)
	require.NoError(t, err)
	require.EqualValues(t, 2, since)
	_, err = l.join("a", false, 1)
	require.ErrorIs(t, err, errOutrun)
	again, err := l.join("b", true, 0)
	require.NoError(t, err)
	require.Equal(t, since, again)
}
