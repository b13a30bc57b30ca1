package sim

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// database stands for a MySQL server: one file in memory, of which every process has connections of its own. Its writers
// queue for one lock, and give up as they do on MySQL.
type database struct {
	*server
	driver  driver.Driver
	dsn     string
	write   chan struct{} // holds a token while somebody writes
	silent  time.Duration // what a call waits for an answer at most
	latency time.Duration // of a call while all is well
	back    atomic.Int64  // how far its clock is behind, ns
	stalls  atomic.Bool   // somebody has rows of slots locked that tasks are to leave: see growth.go
	column  int           // how many bytes of events one row takes
	memo    *memo
	life    *atomic.Int64 // how often it has forgotten: see setback.go
	truth   *truth        // nil: nobody watches
}

const (
	lockPatience = 10 * time.Second // innodb_lock_wait_timeout
	idleTimeout  = 5 * time.Second  // wait_timeout, which ends the transaction of a process that is paused
	maxBlob      = 1<<24 - 1        // MEDIUMBLOB
)

func newDatabase(path string, seed uint64) (*database, error) {
	dsn := path + "?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(0)"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	return &database{server: newServer("database", seed), driver: db.Driver(), dsn: dsn, write: make(chan struct{}, 1), silent: 20 * time.Second, memo: &memo{}, life: new(atomic.Int64)}, nil
}

// clock is the database's.
func (d *database) clock() time.Time { return time.Now().Add(-time.Duration(d.back.Load())) }

// of makes the connections of a process.
func (d *database) of(p *process) driver.Connector { return connector{d, p} }

type connector struct {
	d *database
	p *process
}

func (c connector) Driver() driver.Driver { return c.d.driver }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.p.gate(); err != nil {
		return nil, err
	}
	now := c.d.state(c.p)
	if now.refuse || c.d.chance(now.before) {
		return nil, errRefused
	}
	if err := pause(ctx, now.delay); err != nil {
		return nil, err
	}
	if !c.d.awaitAnswer(ctx, c.p, true) {
		return nil, errSilent
	}
	real, err := c.d.driver.Open(c.d.dsn)
	if err != nil {
		return nil, err
	}
	if c.d.truth != nil {
		if err := c.d.truth.watch(real.(realConn)); err != nil {
			return nil, err
		}
	}
	life, err := c.d.begin(real.(realConn))
	if err != nil {
		return nil, err
	}
	return &dbConn{d: c.d, p: c.p, real: real.(realConn), life: life}, nil
}

// awaitAnswer waits while the server is frozen, as long as anybody would.
func (d *database) awaitAnswer(ctx context.Context, p *process, answers bool) bool {
	if d.await(p, answers, closedAlready, nil) {
		return true
	}
	bound, cancel := context.WithTimeout(ctx, d.silent)
	defer cancel()
	return d.await(p, answers, bound.Done(), p.dead)
}

type realConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

// dbConn is one connection. database/sql sees to it that it is used by one caller at a time.
type dbConn struct {
	d      *database
	p      *process
	real   realConn
	life   int64
	tx     driver.Tx
	locked chan struct{} // the lock that it has; nil: none
	broken bool
	closed bool
}

func (c *dbConn) Prepare(string) (driver.Stmt, error)                         { return nil, errors.New("not used on SQLite") }
func (c *dbConn) PrepareContext(context.Context, string) (driver.Stmt, error) { return c.Prepare("") }
func (c *dbConn) CheckNamedValue(*driver.NamedValue) error                    { return driver.ErrSkip }
func (c *dbConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}
func (c *dbConn) IsValid() bool { return !c.broken && !c.outlived() }

func (c *dbConn) ResetSession(context.Context) error {
	if c.broken || c.outlived() || !c.p.alive() {
		return driver.ErrBadConn
	}
	return nil
}

func (c *dbConn) Ping(ctx context.Context) error {
	_, err := c.call(ctx, func() error { return nil }, false)
	return err
}

func (c *dbConn) Close() error {
	c.abandon()
	if c.closed {
		return nil
	}
	c.closed = true
	return c.real.Close()
}

// abandon is what the server does about a connection that is gone: what was not committed never was.
func (c *dbConn) abandon() {
	c.broken = true
	if c.tx != nil {
		_ = c.tx.Rollback()
		c.tx = nil
	}
	c.unlock()
}

func (c *dbConn) unlock() {
	if c.locked != nil {
		<-c.locked
		c.locked = nil
	}
}

// lock queues for the right to write.
func (c *dbConn) lock(ctx context.Context) error {
	timer := time.NewTimer(lockPatience)
	defer timer.Stop()
	write := c.d.write
	select {
	case write <- struct{}{}:
		c.locked = write
		return nil
	case <-ctx.Done():
		c.abandon()
		return ctx.Err()
	case <-c.p.dead:
		c.abandon()
		return errDead
	case <-timer.C:
		return &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded (simulated)"}
	}
}

// call does one thing on the server, as its condition and the process's let it. lasting says that its effect stays when
// the connection breaks afterwards.
func (c *dbConn) call(ctx context.Context, effect func() error, lasting bool) (happened bool, err error) {
	if c.broken {
		return false, driver.ErrBadConn
	}
	if err := c.gate(ctx); err != nil {
		return false, err
	}
	now := c.d.state(c.p)
	if now.refuse || c.d.chance(now.before) {
		c.abandon()
		return false, errLost
	}
	if c.d.chance(now.odd) {
		return false, c.odd()
	}
	if pause(ctx, now.delay+c.d.latency) != nil {
		c.abandon()
		return false, ctx.Err()
	}
	if !c.answered(ctx, false) {
		return false, c.gaveUp(ctx, effect, lasting)
	}
	if c.outlived() {
		c.abandon()
	}
	if c.broken {
		return false, errLost
	}
	if err := effect(); err != nil {
		return false, err
	}
	if now := c.d.state(c.p); c.d.chance(now.after) {
		c.abandon()
		return true, errLost
	}
	if !c.answered(ctx, true) {
		c.abandon()
		return true, cause(ctx)
	}
	return true, c.gate(ctx)
}

// answered waits while the server is frozen, as long as anybody would. A server that this process alone has lost goes on: it ends a
// transaction that is silent for long.
func (c *dbConn) answered(ctx context.Context, answers bool) bool {
	if c.locked != nil && c.d.lostBy(c.p) {
		idle, cancel := context.WithTimeout(ctx, idleTimeout)
		defer cancel()
		if c.d.awaitAnswer(idle, c.p, answers) {
			return true
		}
		c.abandon()
	}
	return c.d.awaitAnswer(ctx, c.p, answers)
}

// odd is an error of the driver or the server: the connection is gone, or the transaction was ended, or the server became read-only.
func (c *dbConn) odd() error {
	switch err := c.d.pick(mysql.ErrInvalidConn, driver.ErrBadConn, deadlock, lockWait, readOnly); err {
	case deadlock:
		if c.tx != nil {
			_ = c.tx.Rollback()
			c.tx = nil
			c.unlock()
		}
		return err
	case lockWait, readOnly:
		return err
	default:
		c.abandon()
		return err
	}
}

var (
	lockWait error = &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded (simulated)"}
	deadlock error = &mysql.MySQLError{Number: 1213, Message: "Deadlock found when trying to get lock (simulated)"}
	readOnly error = &mysql.MySQLError{Number: 1290, Message: "The MySQL server is running with the --read-only option (simulated)"}
)

func cause(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errSilent
}

// gaveUp is about a call whose caller has lost patience with a frozen server. The server may have it in its queue, and do
// it when it is well: a commit, or a statement that is its own transaction.
func (c *dbConn) gaveUp(ctx context.Context, effect func() error, lasting bool) error {
	if c.broken {
		return cause(ctx)
	}
	c.broken = true
	if !lasting || !c.d.chance(0.5) {
		c.abandon()
		return cause(ctx)
	}
	real := *c // the server's end of the connection
	c.tx, c.locked, c.closed = nil, nil, true
	go func() {
		c.d.await(c.p, false, nil, nil)
		if !real.outlived() {
			_ = effect()
		}
		real.abandon()
		_ = real.real.Close()
	}()
	return cause(ctx)
}

// gate is the process's. A transaction that is silent for long is ended by the server. One whose context ends returns, though its
// process is paused: database/sql waits for that under a lock, for which virtual time does not wait.
func (c *dbConn) gate(ctx context.Context) error {
	if c.locked == nil && c.tx == nil {
		return c.p.gate()
	}
	idle, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	err := c.p.gateWithin(idle.Done())
	if errors.Is(err, errSilent) {
		c.abandon()
		switch err = c.p.gateWithin(ctx.Done()); {
		case err == nil:
			err = errLost
		case ctx.Err() != nil:
			err = ctx.Err()
		}
	}
	if errors.Is(err, errDead) {
		c.abandon()
	}
	return err
}

func (c *dbConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.broken {
		return nil, driver.ErrBadConn
	}
	if !opts.ReadOnly {
		if err := c.lock(ctx); err != nil {
			return nil, err
		}
	}
	opts.Isolation = 0
	_, err := c.call(ctx, func() (err error) {
		c.tx, err = c.real.BeginTx(context.Background(), opts)
		return err
	}, false)
	if err != nil {
		c.abandon()
		return nil, err
	}
	return dbTx{c}, nil
}

type dbTx struct{ c *dbConn }

func (t dbTx) Commit() error {
	c := t.c
	tx := c.tx
	if tx == nil {
		return errLost
	}
	done, err := c.call(context.Background(), func() error {
		defer c.d.memo.changed()
		slots := c.d.truth.before(c.real, c.p)
		err := tx.Commit()
		if err == nil {
			c.d.truth.committed(slots)
		}
		return err
	}, true)
	if done {
		c.tx = nil
	}
	if !c.closed {
		if err != nil {
			c.abandon()
		}
		c.unlock()
	}
	return err
}

func (t dbTx) Rollback() error {
	c := t.c
	if c.tx != nil {
		_ = c.tx.Rollback()
		c.tx = nil
	}
	c.unlock()
	return nil
}

func (c *dbConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (res driver.Result, err error) {
	if err := c.d.tooLong(query, args); err != nil {
		return nil, err
	}
	if c.tx == nil {
		if c.broken {
			return nil, driver.ErrBadConn
		}
		if err := c.lock(ctx); err != nil {
			return nil, err
		}
		defer func() {
			if !c.closed {
				c.unlock()
			}
		}()
	}
	_, err = c.call(ctx, func() (err error) {
		if c.d.stalls.Load() && strings.HasPrefix(query, "UPDATE slots SET moved") {
			return lockWait
		}
		res, err = c.real.ExecContext(context.Background(), query, args)
		if c.tx == nil {
			c.d.truth.committed(c.d.truth.before(c.real, c.p))
			c.d.memo.changed()
		}
		return err
	}, c.tx == nil)
	return res, c.seen(ctx, err)
}

func (c *dbConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	writes := c.tx == nil && !strings.HasPrefix(strings.TrimSpace(strings.ToUpper(query[:min(len(query), 20)])), "SELECT")
	if writes {
		if err := c.lock(ctx); err != nil {
			return nil, err
		}
		defer func() {
			if !c.closed {
				c.unlock()
			}
		}()
	}
	if c.d.truth != nil && strings.Contains(query, " FROM slots") {
		c.p.looksAtSlots()
	}
	_, err = c.call(ctx, func() (err error) {
		really := func() (driver.Rows, error) { return c.real.QueryContext(context.Background(), query, args) }
		if c.tx != nil || writes {
			if rows, err = really(); writes {
				c.d.memo.changed()
			}
			return err
		}
		rows, err = c.d.memo.ask(query, args, really)
		return err
	}, false)
	if err != nil && rows != nil {
		_ = rows.Close()
		rows = nil
	}
	return rows, c.seen(ctx, err)
}

// seen is an error as the caller gets it. A context that ends takes the connection along.
func (c *dbConn) seen(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		c.abandon()
	}
	return err
}

// tooLong is MySQL's limit on a column, which SQLite does not have.
func (d *database) tooLong(query string, args []driver.NamedValue) error {
	most := maxBlob
	if d.column > 0 && strings.HasPrefix(query, "INSERT INTO outbox") {
		most = d.column
	}
	for i, a := range args {
		if b, ok := a.Value.([]byte); ok && len(b) > most {
			return &mysql.MySQLError{Number: 1406, Message: fmt.Sprintf("Data too long for column (argument %d, simulated)", i)}
		}
	}
	return nil
}

// unharmed makes connections that meet no fault, and queue with the others all the same.
type unharmed struct {
	d *database
	p *process
}

func (u unharmed) Driver() driver.Driver { return u.d.driver }

func (u unharmed) Connect(context.Context) (driver.Conn, error) {
	real, err := u.d.driver.Open(u.d.dsn)
	if err != nil {
		return nil, err
	}
	well := &database{server: newServer("well", 0), driver: u.d.driver, dsn: u.d.dsn, write: u.d.write, silent: u.d.silent, memo: u.d.memo, life: u.d.life}
	life, err := well.begin(real.(realConn))
	if err != nil {
		return nil, err
	}
	return &dbConn{d: well, p: u.p, real: real.(realConn), life: life}, nil
}
