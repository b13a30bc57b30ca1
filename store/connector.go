package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// lives has a process talk to one life of the database at a time: see life.go. After a planned
// switchover, older connections go on to the old server, which answers reads without knowing of
// claims at the new one. So the first connection with another life ends the use of all older ones.
type lives struct {
	mu    sync.Mutex
	life  string       // of the connections in use
	since atomic.Int64 // rises when no connection that was made before is to be used any more
}

var (
	errOutrun  = errors.New("another server has become the database meanwhile")
	errReplica = errors.New("another server than before answers as the database, and it is read-only: make it the primary, or lead connections to the primary")
)

// join takes in a connection begun at a count, and returns the count of its first use.
func (l *lives) join(life string, readOnly bool, begun int64) (since int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case life == l.life:
		return l.since.Load(), nil
	case begun != l.since.Load(): // it may be to the server before
		return 0, errOutrun
	case readOnly && l.life != "":
		return 0, errReplica
	}
	l.life = life
	return l.since.Add(1), nil
}

// session is the driver's kind of connection.
type session interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

// conn is a connection for the life in which it began.
type conn struct {
	session
	lives *lives
	since int64
}

func (c *conn) current() bool { return c.since == c.lives.since.Load() }

// IsValid is asked before the connection goes back to the pool.
func (c *conn) IsValid() bool { return c.current() && c.session.IsValid() }

// ResetSession is called before the connection is used again.
func (c *conn) ResetSession(ctx context.Context) error {
	if !c.current() {
		return driver.ErrBadConn
	}
	return c.session.ResetSession(ctx)
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.session.ExecContext(ctx, query, args)
	return result, c.judge(err)
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.session.QueryContext(ctx, query, args)
	return rows, c.judge(err)
}

// judge ends the use of all connections where one is lost, or meets a read-only server.
func (c *conn) judge(err error) error {
	if errors.Is(err, driver.ErrBadConn) {
		c.lives.since.CompareAndSwap(c.since, c.since+1)
	}
	return err
}

// connector makes connections, each with the life in which it began.
type connector struct {
	driver.Connector
	begin []string // statements for each connection
	life  string   // a query of the life, and of whether the server is read-only
	lives *lives
}

// serverConnector makes connections of MySQL and MariaDB, with READ COMMITTED: range reads must not
// lock gaps and block other writers. A level for each transaction would cost a round trip.
func serverConnector(base driver.Connector) connector {
	return connector{base, []string{"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", noteLife}, "SELECT " + serverLife + ", @@global.read_only", new(lives)}
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	begun := c.lives.since.Load()
	made, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	real, ok := made.(session)
	if !ok {
		return nil, fmt.Errorf("%T is no connection of the database", made)
	}
	since, err := c.join(ctx, real, begun)
	if err == nil {
		return &conn{real, c.lives, since}, nil
	}
	_ = real.Close()
	if errors.Is(err, errOutrun) {
		return c.Connect(ctx)
	}
	return nil, err
}

// join begins a session, and finds out its life.
func (c connector) join(ctx context.Context, real session, begun int64) (since int64, err error) {
	for _, statement := range c.begin {
		if _, err := real.ExecContext(ctx, statement, nil); err != nil {
			return 0, fmt.Errorf("beginning a session of the database: %w", err)
		}
	}
	rows, err := real.QueryContext(ctx, c.life, nil)
	if err != nil {
		return 0, fmt.Errorf("asking the database since when it runs: %w", err)
	}
	row := make([]driver.Value, 2)
	err = rows.Next(row)
	life, readOnly := text(row[0]), text(row[1]) // its bytes are the driver's
	if err = errors.Join(err, rows.Close()); err != nil {
		return 0, fmt.Errorf("asking the database since when it runs: %w", err)
	}
	return c.lives.join(life, readOnly != "0" && readOnly != "OFF", begun)
}

func text(v driver.Value) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}
