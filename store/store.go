// Package store keeps tasks, slots, intake offsets and dead letters in MySQL or MariaDB, or
// embedded in SQLite. It opens and migrates the database, and tells its time. Its packages do the
// rest: with store/intake, requests go in with their intake offsets. With store/line, tasks come
// out slot by slot, in the order of time. Every question of who won (cancel or delivery, old owner
// or new) is decided there, inside one transaction.
//
// A slot is a line of tasks ordered by pos. Two offsets move along it. Everything up to claimed
// belongs to the slot's owner, and everything up to done is settled. docs/design/protocol.md
// explains the locking that makes this sound.
package store

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/go-sql-driver/mysql"
	"go.uber.org/zap"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/notyet/notyet/internal/defaults"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/task"
)

// Config says where the database is. The zero value is not usable: DSN is required.
type Config struct {
	// DSN of a MySQL or MariaDB server in the form of go-sql-driver
	// (user:password@tcp(host:port)/database), or "sqlite:PATH" for the embedded database
	// ("sqlite::memory:" keeps it in memory).
	DSN string
	// Credentials, when set, are asked for each new connection, in place of those in DSN.
	Credentials func() (user, password string)
	// TLS, when set, is asked for the configuration of each new connection. Without a ServerName,
	// the certificate must name the host in DSN. Default as in DSN.
	TLS func() *tls.Config
	// MaxConns limits the open connections. Default 16. SQLite always has one writer at a time.
	MaxConns int
	// Connector, when set, replaces DSN, for tests: it makes the connections of an embedded
	// database, and handles contexts and concurrent writers like a server.
	Connector driver.Connector
	// Clock is the clock of the server that Connector stands for. Default this machine's.
	Clock func() time.Time
	// Life is an SQL expression for the life of SQLite, for tests. Default: there is one life,
	// because all owners of a claim were closed with the database.
	Life string
	// SlotPatience limits the wait for the lock of a row or a slot. Default 10 s.
	SlotPatience time.Duration
}

// Store is safe for use by several goroutines.
type Store struct {
	handle.Ref // for the packages of the store
	h          *handle.Handle
	db         *sql.DB
	log        *zap.Logger
	dialect    dialect.Dialect
	soleWriter bool // this process makes writers serial

	clockOnce sync.Once
	clock     *Clock           // see Clock
	patient   driver.Connector // for migrations: an answer may take as long as it takes. nil: as any other
	apart     driver.Connector // makes connections beside the pool; nil: there can be none
}

const sqlitePrefix = "sqlite:"

// Open connects. Its errors tell the fault of the DSN or the server. For the tables, see Migrate.
func Open(ctx context.Context, cfg Config, log *zap.Logger) (*Store, error) {
	cfg.MaxConns = cmp.Or(cfg.MaxConns, defaults.DatabaseConns)
	cfg.SlotPatience = cmp.Or(cfg.SlotPatience, 10*time.Second)
	s := &Store{log: log}
	dialector, life, err := s.dialector(cfg)
	if err != nil {
		return nil, err
	}
	db, err := gorm.Open(dialector, &gorm.Config{
		DisableAutomaticPing:   true, // Ping below says it in one line
		SkipDefaultTransaction: true,
		TranslateError:         true,
		NowFunc:                func() time.Time { return time.Now().UTC() },
		Logger:                 logger.Discard, // each error goes to the caller
	})
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	if s.db, err = db.DB(); err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	s.h = handle.New(handle.Config{DB: s.db, Gorm: db, Dialect: s.dialect, Serial: s.soleWriter, Now: cfg.Clock, Life: life, Log: log})
	s.Ref = s.h.Ref()
	s.dialect.Pool(s.db, cfg.MaxConns, handle.IdleTimeout/2)
	err = s.Ping(ctx)
	if err == nil {
		err = s.dialect.CheckPrimary(ctx, s.db)
	}
	if err != nil {
		_ = s.db.Close()
		return nil, err
	}
	return s, nil
}

// sessionSettings are pinned, because the server's own would change what a statement does.
var sessionSettings = map[string]string{
	"autocommit":       "1",                                            // otherwise a single statement is undone at the session's end
	"sql_safe_updates": "0",                                            // otherwise statements that change all rows are refused
	"sql_select_limit": "18446744073709551615",                         // otherwise a list is cut, and counts as complete
	"sql_big_selects":  "1",                                            // otherwise long lists are refused
	"completion_type":  "0",                                            // otherwise a commit begins the next transaction, or ends the session
	"sql_mode":         "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'", // otherwise a value is cut, or a text means something else
}

// dialector returns how gorm is to connect, and an SQL expression for the life: see life.go.
func (s *Store) dialector(cfg Config) (d gorm.Dialector, life string, err error) {
	life = cmp.Or(cfg.Life, "''")
	if cfg.Connector != nil {
		s.dialect, s.apart = dialect.SQLite{}, cfg.Connector
		pool := cfg.Connector
		if cfg.Life != "" {
			pool = connector{pool, nil, "SELECT " + life + ", 0", new(lives)}
		}
		return &sqlite.Dialector{Conn: sql.OpenDB(pool)}, life, nil
	}
	if path, ok := strings.CutPrefix(cfg.DSN, sqlitePrefix); ok {
		s.dialect, s.soleWriter = dialect.SQLite{Memory: strings.Contains(path, ":memory:")}, true
		// immediate: a transaction begins with the write lock, so no write outdates its reads.
		q := url.Values{"_txlock": {"immediate"}, "_pragma": {"journal_mode(WAL)", "busy_timeout(10000)", "synchronous(FULL)", "cache_size(-65536)"}}
		return sqlite.Open(path + "?" + q.Encode()), life, nil
	}
	s.dialect = dialect.MySQL{}
	parsed, err := mysql.ParseDSN(cfg.DSN)
	if err != nil {
		// The parser's error repeats parts of the DSN, perhaps with the password of another form.
		return nil, "", errors.New("reading NOTYET_MYSQL_DSN: it cannot be read (want user:password@tcp(host:port)/database)")
	}
	if parsed.Net != "tcp" && parsed.Net != "unix" { // a dial's error would repeat it, and without an @ it is user and password
		return nil, "", errors.New("reading NOTYET_MYSQL_DSN: its protocol is neither tcp nor unix (want user:password@tcp(host:port)/database)")
	}
	if parsed.DBName == "" {
		return nil, "", errors.New("reading NOTYET_MYSQL_DSN: it names no database (want user:password@tcp(host:port)/database)")
	}
	parsed.InterpolateParams = true // one round trip a statement, no prepared statement for each batch size
	parsed.ClientFoundRows = true   // a repeated conditional update must not look like a lost fence
	parsed.RejectReadOnly = true    // after a failover, leave the old primary
	parsed.Loc = time.UTC
	parsed.MaxAllowedPacket = min(parsed.MaxAllowedPacket, maxPacket)
	if err := parsed.Apply(mysql.BeforeConnect(cfg.BeforeConnect)); err != nil {
		return nil, "", err
	}
	parsed.Logger = mysqlLog{s.log}
	parsed.Timeout = cmp.Or(parsed.Timeout, 5*time.Second)
	parsed.ReadTimeout = cmp.Or(parsed.ReadTimeout, 60*time.Second)
	parsed.WriteTimeout = cmp.Or(parsed.WriteTimeout, 60*time.Second)
	if parsed.Params == nil {
		parsed.Params = map[string]string{}
	}
	for name, value := range map[string]time.Duration{"innodb_lock_wait_timeout": cfg.SlotPatience, "wait_timeout": handle.IdleTimeout} {
		if parsed.Params[name] == "" {
			parsed.Params[name] = fmt.Sprint(int(value.Seconds()))
		}
	}
	maps.Copy(parsed.Params, sessionSettings)
	base, err := mysql.NewConnector(parsed)
	if err != nil {
		return nil, "", errors.New("reading NOTYET_MYSQL_DSN: its parameters cannot be used (want user:password@tcp(host:port)/database)")
	}
	patient := parsed.Clone()
	patient.ReadTimeout = 0
	if patient.Params["lock_wait_timeout"] == "" {
		patient.Params["lock_wait_timeout"] = fmt.Sprint(lockPatience.Seconds())
	}
	if s.patient, err = mysql.NewConnector(patient); err != nil {
		return nil, "", errors.New("reading NOTYET_MYSQL_DSN: its parameters cannot be used (want user:password@tcp(host:port)/database)")
	}
	s.apart = serverConnector(base) // with a life of its own: it has one connection
	db := sql.OpenDB(serverConnector(base))
	return gormmysql.New(gormmysql.Config{Conn: db, DSNConfig: parsed, SkipInitializeWithVersion: true, DisableWithReturning: true}), serverLife, nil
}

// BeforeConnect sets who connects, and how, for the driver's next connection.
func (c Config) BeforeConnect(_ context.Context, next *mysql.Config) error {
	if c.Credentials != nil {
		next.User, next.Passwd = c.Credentials()
	}
	if c.TLS == nil {
		return nil
	}
	next.TLS = c.TLS()
	if host, _, err := net.SplitHostPort(next.Addr); err == nil && next.TLS.ServerName == "" {
		next.TLS = next.TLS.Clone()
		next.TLS.ServerName = host
	}
	next.AllowFallbackToPlaintext = false // the driver would send the password to whoever says that it speaks no TLS
	return nil
}

type mysqlLog struct{ log *zap.Logger }

func (l mysqlLog) Print(v ...any) { l.log.Warn("mysql driver", zap.String("detail", fmt.Sprint(v...))) }

// Time asks the database for its time: with SQLite, this machine's.
func (s *Store) Time(ctx context.Context) (time.Time, error) { return s.h.Time(ctx) }

// LaneKey returns the key of the hash in the installation's lanes. It never changes.
func (s *Store) LaneKey(ctx context.Context) (task.LaneKey, error) { return s.h.LaneKey(ctx) }

// SlotCount is the number of slots that are to have owners; 0 before Migrate.
func (s *Store) SlotCount(ctx context.Context) (int, error) { return s.h.SlotCount(ctx) }

// Can are the words that this program knows for what an installation may require of it.
func Can() []string { return handle.Can() }

// ErrRequired: the installation requires what this program does not know.
var ErrRequired = handle.ErrRequired

// Required returns the words for what the installation requires now.
func (s *Store) Required(ctx context.Context) ([]string, error) { return s.h.Required(ctx) }

// CheckRequired returns ErrRequired if the installation requires what this program does not know.
func (s *Store) CheckRequired(ctx context.Context) error { return s.h.CheckRequired(ctx) }

// Slots reads all slots, in order, also given up ones.
func (s *Store) Slots(ctx context.Context) ([]Slot, error) { return s.h.Slots(ctx, s.h.Reads()) }

// Beyond returns, for each place, the first place with a task behind it in the slot, if any.
func (s *Store) Beyond(ctx context.Context, places []SlotPos) ([]SlotPos, error) {
	return s.h.Beyond(ctx, s.h.Reads(), places)
}

// Ping checks that the server answers.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.db.PingContext(ctx); err != nil {
		var unverified *tls.CertificateVerificationError
		var alert tls.AlertError
		if errors.As(err, &unverified) || errors.As(err, &alert) || errors.Is(err, mysql.ErrNoTLS) {
			return fmt.Errorf("reaching the database: %w (see mysql.tls)", err)
		}
		return fmt.Errorf("reaching the database: %w", withFix(err))
	}
	return nil
}

// withFix adds a remedy to errors of a wrong DSN or a missing right.
func withFix(err error) error {
	fixes := map[uint16]string{
		1044: "grant its user the rights that docs/security.md lists, or correct the database's name in the DSN",
		1045: "see that user and password of the DSN are right",
		1049: "create the database, empty, or correct its name in the DSN",
		1142: "grant the rights that docs/security.md lists; migrate can have a user of its own (migrate.dsn)",
		1205: "a transaction of somebody else has used the table and is open (see information_schema.INNODB_TRX): end that transaction, and run migrate again",
	}
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok && fixes[e.Number] != "" {
		return fmt.Errorf("%w: %s", err, fixes[e.Number])
	}
	return err
}

// Close releases the connections.
func (s *Store) Close() error { return s.db.Close() }

// maxPacket is the largest packet that MariaDB takes by default. In a statement's text, some bytes
// of a value need two. A longer text is sent prepared, with the values beside it.
const maxPacket = 16<<20 - 1
