package intake

import (
	"database/sql"
	"os"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
)

// TestFrozenOwnerLetsGo: an owner that is frozen in the middle of a transaction holds nobody up for long, and finds out when
// it goes on.
func TestFrozenOwnerLetsGo(t *testing.T) {
	if os.Getenv("NOTYET_MYSQL_DSN") == "" {
		t.Skip("NOTYET_MYSQL_DSN is not set; SQLite has one process only")
	}
	b := backends()[2]
	migrated := b.migrated
	b.migrated = func(t testing.TB) store.Config {
		cfg := migrated(t)
		parsed, err := mysql.ParseDSN(cfg.DSN)
		require.NoError(t, err)
		delete(parsed.Params, "wait_timeout") // the product's
		cfg.DSN = parsed.FormatDSN()
		return cfg
	}
	s := b.fixture(t)
	frozen, thaw, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		ended <- s.h.Transact(s.ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(s.ctx, "UPDATE slots SET claimed = 5")
			close(frozen)
			<-thaw
			return err
		})
	}()
	<-frozen
	epoch, err := s.NextEpoch(s.ctx)
	require.NoError(t, err)
	began := time.Now()
	got, err := New(s.rival()).Line().Acquire(s.ctx, s.allSlots(), epoch, "next")
	require.NoError(t, err)
	require.Len(t, got, testSlots)
	require.Zero(t, got[0].Claimed, "what was not committed did not happen")
	require.Less(t, time.Since(began), 3*handle.IdleTimeout)
	close(thaw)
	require.Error(t, <-ended)
}
