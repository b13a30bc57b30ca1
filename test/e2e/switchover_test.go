package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/test/chaos/proxy"
	"github.com/notyet/notyet/test/mysqltest"
)

// databases are a primary and its replica, between which the roles change as an operator changes them: nothing is forgotten, and nobody
// ends the connections to the old primary.
type databases struct {
	*testing.T
	servers [2]*sql.DB
	addrs   [2]string
	primary int
	lead    *proxy.Proxy // where new connections go
}

func newDatabases(t *testing.T, cfg *mysql.Config) *databases {
	d := &databases{T: t}
	admin := func(addr string) *sql.DB {
		of := cfg.Clone()
		of.DBName, of.Addr = "", addr
		db, err := sql.Open("mysql", of.FormatDSN())
		require.NoError(t, err)
		db.SetMaxOpenConns(1)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	d.addrs[0] = cfg.Addr
	d.servers[0] = admin(cfg.Addr)
	var id, port, master, host string
	if err := d.servers[0].QueryRowContext(t.Context(), "SHOW SLAVE HOSTS").Scan(&id, &host, &port, &master); err != nil {
		t.Skip("the database has no replica of MariaDB: run scripts/servers up --cluster")
	}
	d.addrs[1] = "127.0.0.1:" + port
	d.servers[1] = admin(d.addrs[1])
	var err error
	d.lead, err = proxy.Start(cfg.Addr)
	require.NoError(t, err)
	t.Cleanup(d.lead.Close)
	t.Cleanup(func() { // for the tests that follow
		d.follow(cfg)
		if d.primary != 0 {
			d.switchOver()
			d.follow(cfg)
		}
	})
	return d
}

func (d *databases) do(server int, statement string) {
	d.Helper()
	_, err := d.servers[server].ExecContext(context.WithoutCancel(d.Context()), statement)
	require.NoError(d, err, statement)
}

// caughtUp waits until the replica has all that the primary has.
func (d *databases) caughtUp() {
	d.Helper()
	var at string
	ctx := context.WithoutCancel(d.Context())
	require.NoError(d, d.servers[d.primary].QueryRowContext(ctx, "SELECT @@gtid_binlog_pos").Scan(&at))
	var late int
	require.NoError(d, d.servers[1-d.primary].QueryRowContext(ctx, "SELECT MASTER_GTID_WAIT(?, 20)", at).Scan(&late))
	require.Zero(d, late, "the replica does not follow")
}

func (d *databases) switchOver() {
	d.do(d.primary, "SET GLOBAL read_only = 1")
	d.caughtUp()
	for _, statement := range []string{"STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0"} {
		d.do(1-d.primary, statement)
	}
	d.primary = 1 - d.primary
	d.lead.Lead(d.addrs[d.primary])
}

// follow makes the old primary the replica.
func (d *databases) follow(cfg *mysql.Config) {
	var port string
	require.NoError(d, d.servers[d.primary].QueryRowContext(context.WithoutCancel(d.Context()), "SELECT @@port").Scan(&port))
	d.do(1-d.primary, "STOP SLAVE")
	d.do(1-d.primary, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%s, MASTER_USER='%s', MASTER_PASSWORD='%s', MASTER_USE_GTID=current_pos, MASTER_CONNECT_RETRY=1", port, cfg.User, cfg.Passwd))
	d.do(1-d.primary, "START SLAVE")
	d.caughtUp()
}

// After a planned switchover, one read after a claim is complete, however busy the connections to the old primary are. It runs alone: the
// database is everybody's.
func TestPlannedSwitchover(t *testing.T) {
	cfg, err := mysql.ParseDSN(mysqltest.Fresh(t))
	require.NoError(t, err)
	d := newDatabases(t, cfg)
	user, _ := mysqltest.User(t, cfg.DBName, "a")
	app := cfg.Clone()
	app.User, app.Passwd, app.Addr = user, "a", d.lead.Addr()
	s, err := store.Open(t.Context(), store.Config{DSN: app.FormatDSN()}, zap.NewNop())
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	require.NoError(t, s.Migrate(t.Context(), 1))
	line := intake.New(s).Line()
	_, err = line.Acquire(t.Context(), []int{0}, 1, "me")
	require.NoError(t, err)

	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	for range 12 {
		readers.Go(func() {
			for ctx.Err() == nil {
				_, _ = s.Slots(ctx)
				time.Sleep(rand.N(2 * time.Millisecond)) // each has its own pace
			}
		})
	}
	pos := int64(0)
	for range 4 {
		d.switchOver()
		for range 200 {
			for line.Claim(t.Context(), 0, []int{0}, []int64{pos}, 1, pos+1) != nil { // the old primary has refused it
			}
			pos++
			rows, err := s.Slots(t.Context())
			require.NoError(t, err)
			require.Equal(t, pos, rows[0].Claimed)
		}
		d.follow(cfg)
	}
}
