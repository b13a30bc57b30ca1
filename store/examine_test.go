package store

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// onServer runs a case on a database of its own on the server, which it may spoil.
func onServer(t *testing.T) *fixture {
	t.Helper()
	if os.Getenv("NOTYET_MYSQL_DSN") == "" {
		t.Skip("NOTYET_MYSQL_DSN is not set: this machine runs no databases")
	}
	return backend{name: "mysql", fresh: freshMySQL}.fixture(t)
}

func TestRowLocksHold(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.CheckRowLocks(f.ctx))
		var n int
		require.NoError(t, f.db.QueryRowContext(f.ctx, "SELECT COUNT(*) FROM services").Scan(&n))
		require.Zero(t, n, "the probe leaves nothing")
	})
}

// Several processes start at once: none sees the other's probe.
func TestRowLocksAreProbedSideBySide(t *testing.T) {
	f := onServer(t)
	ended := make(chan error)
	for range 8 {
		go func() { ended <- f.CheckRowLocks(f.ctx) }()
	}
	for range 8 {
		require.NoError(t, <-ended)
	}
}

func TestTablesWithoutRowLocksAreRefused(t *testing.T) {
	f := onServer(t)
	alter := func(table, engine string) {
		_, err := f.db.ExecContext(f.ctx, "ALTER TABLE "+table+" ENGINE="+engine)
		require.NoError(t, err)
	}
	alter("slots", "MyISAM")
	err := f.CheckRowLocks(f.ctx)
	require.ErrorIs(t, err, ErrNoRowLocks)
	require.ErrorContains(t, err, "ALTER TABLE slots ENGINE=InnoDB")

	alter("slots", "InnoDB")
	require.NoError(t, f.CheckRowLocks(f.ctx))
	for _, table := range []string{"members", "assignment"} {
		alter(table, "MyISAM")
		require.ErrorContains(t, f.CheckRowLocks(f.ctx), "ALTER TABLE "+table+" ENGINE=InnoDB")
		alter(table, "InnoDB")
	}
	alter("services", "MyISAM")
	probe, err := f.lockProbe(f.ctx)
	require.NoError(t, err)
	require.ErrorIs(t, probe.RowLock(f.ctx, f.db), ErrNoRowLocks, "by what it does, whatever its engine says")
}

// A server that accepts a clause and takes no lock looks as one does behind a proxy that blanks the clause. Servers before
// MySQL 8.0 and MariaDB 10.3 take NOWAIT for a mistake.
func TestServersAreJudgedByWhatTheyLock(t *testing.T) {
	for name, c := range map[string]struct {
		change  [][2]string
		refused bool
	}{
		"unchanged":                {},
		"no shared lock":           {[][2]string{{"LOCK IN SHARE MODE", "                  "}}, true},
		"no NOWAIT":                {[][2]string{{"NOWAIT", "NOWHAT"}}, false},
		"neither":                  {[][2]string{{"NOWAIT", "NOWHAT"}, {"LOCK IN SHARE MODE", "                  "}}, true},
		"no exclusive lock either": {[][2]string{{" FOR UPDATE NOWAIT", "                  "}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := onServer(t)
			cfg := f.config
			parsed, err := mysql.ParseDSN(cfg.DSN)
			require.NoError(t, err)
			parsed.Addr = rewriting(t, parsed.Addr, c.change)
			cfg.DSN = parsed.FormatDSN()
			err = open(t, cfg).CheckRowLocks(f.ctx)
			if !c.refused {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrNoRowLocks)
			require.ErrorContains(t, err, "LOCK IN SHARE MODE")
		})
	}
}

// The server ends the connection that holds the lock, and another one gets the row: that says nothing about locks.
func TestALostConnectionIsNoLackOfRowLocks(t *testing.T) {
	f := onServer(t)
	cfg := f.config
	parsed, err := mysql.ParseDSN(cfg.DSN)
	require.NoError(t, err)
	killed := 0
	parsed.Addr = hooked(t, parsed.Addr, func(said []byte) {
		if !bytes.Contains(said, []byte("FOR UPDATE NOWAIT")) || killed > 0 {
			return
		}
		const theirs = "SELECT p.id FROM information_schema.innodb_trx AS t JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE() AND p.id <> CONNECTION_ID() AND t.trx_rows_locked > 0"
		var id int64
		if f.db.QueryRow(theirs).Scan(&id) != nil {
			return
		}
		_, err := f.db.Exec(fmt.Sprintf("KILL %d", id))
		for killed++; err == nil; {
			err = f.db.QueryRow(theirs).Scan(&id) // until it has rolled back
		}
	})
	cfg.DSN = parsed.FormatDSN()
	require.NoError(t, open(t, cfg).CheckRowLocks(f.ctx))
	require.Equal(t, 1, killed)
}

// rewriting is a proxy that changes what a client says, keeping its length. Statements here are far shorter than one read.
func rewriting(t *testing.T, addr string, change [][2]string) string {
	t.Helper()
	return hooked(t, addr, func(said []byte) {
		for _, c := range change {
			copy(said, bytes.ReplaceAll(said, []byte(c[0]), []byte(c[1])))
		}
	})
}

// hooked is a proxy that has a look at what a client says.
func hooked(t *testing.T, addr string, hook func(said []byte)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				return
			}
			go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
			go func() {
				defer server.Close()
				buf := make([]byte, 1<<16)
				for {
					n, err := client.Read(buf)
					if err != nil {
						return
					}
					said := buf[:n]
					hook(said)
					if _, err := server.Write(said); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}
