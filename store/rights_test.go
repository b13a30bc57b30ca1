package store

import (
	"crypto/rand"
	"database/sql"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/election/roll"
)

// serviceRights are what docs/security.md lists for the services, and migrateRights what it lists for migrate.
var (
	serviceRights = []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
	migrateRights = []string{"SELECT", "INSERT", "UPDATE", "CREATE", "ALTER", "INDEX"}
)

// asAdmin connects as whoever may make databases.
func asAdmin(t testing.TB) *sql.DB {
	db, err := sql.Open("mysql", os.Getenv("NOTYET_MYSQL_DSN"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// newUser makes a user with the rights on the databases of a pattern. The caller drops it.
func newUser(t testing.TB, databases string, rights []string) string {
	name := "t_" + strings.ToLower(rand.Text())[:20]
	admin := asAdmin(t)
	for _, statement := range []string{"CREATE USER " + name + " IDENTIFIED BY 'geheim'", "GRANT " + strings.Join(rights, ", ") + " ON `" + databases + "`.* TO " + name} {
		_, err := admin.Exec(statement)
		require.NoError(t, err)
	}
	return name
}

func as(t testing.TB, dsn, user string) string {
	cfg, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	cfg.User, cfg.Passwd = user, "geheim"
	return cfg.FormatDSN()
}

// The rights that docs/security.md lists for services are all needed, and suffice for their first steps.
func TestServicesNeedTheirRightsInTheDatabase(t *testing.T) {
	if len(backends()) < 3 {
		t.Skip("NOTYET_MYSQL_DSN is not set")
	}
	cfg := freshMySQL(t)
	require.NoError(t, open(t, cfg).Migrate(t.Context(), testSlots))
	work := func(rights []string) error {
		s, err := Open(t.Context(), limited(t, cfg, rights), zap.NewNop())
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.CheckMigrated(t.Context()); err != nil {
			return err
		}
		if err := s.CheckRowLocks(t.Context()); err != nil {
			return err
		}
		r := s.Roll()
		defer r.Close()
		a := roll.Candidate{Instance: "1", ID: "a", Data: []byte("{}")}
		if err := r.Join(t.Context(), a); err != nil {
			return err
		}
		if _, err := r.Publish(t.Context(), a, 0, 1, []byte("{}")); err != nil {
			return err
		}
		return r.Leave(t.Context(), a)
	}
	exactlyEnough(t, serviceRights, work)
}

// The rights for migrate are all needed, and they suffice to make an installation.
func TestMigrateNeedsItsRightsInTheDatabase(t *testing.T) {
	if len(backends()) < 3 {
		t.Skip("NOTYET_MYSQL_DSN is not set")
	}
	exactlyEnough(t, migrateRights, func(rights []string) error {
		s, err := Open(t.Context(), limited(t, freshMySQL(t), rights), zap.NewNop())
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.Migrate(t.Context(), testSlots); err != nil {
			if !slices.Contains(rights, "CREATE") {
				require.ErrorContains(t, err, "migrate.dsn")
			}
			return err
		}
		return s.CheckRowLocks(t.Context())
	})
}

// limited returns the configuration of a user who has these rights on the database, and no others.
func limited(t *testing.T, cfg Config, rights []string) Config {
	parsed, err := mysql.ParseDSN(cfg.DSN)
	require.NoError(t, err)
	user := newUser(t, strings.ReplaceAll(parsed.DBName, "_", "\\_"), rights)
	t.Cleanup(func() { _, _ = asAdmin(t).Exec("DROP USER " + user) })
	cfg.DSN = as(t, cfg.DSN, user)
	return cfg
}

func exactlyEnough(t *testing.T, rights []string, work func(rights []string) error) {
	t.Helper()
	require.NoError(t, work(rights))
	for i, right := range rights {
		err := work(slices.Delete(slices.Clone(rights), i, i+1))
		require.Error(t, err, "without %s", right)
		require.Regexp(t, "denied|command", err.Error(), "without %s", right)
	}
}
