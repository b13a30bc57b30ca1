package store

import (
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// Where the server's sessions begin without autocommit, what a statement by itself has done stays done.
func TestStatementsByThemselvesAreCommitted(t *testing.T) {
	for _, b := range backends() {
		if b.sqlite {
			continue
		}
		f := b.fixture(t)
		parsed, err := mysql.ParseDSN(f.config.DSN)
		require.NoError(t, err)
		parsed.Params = map[string]string{"autocommit": "0"} // as a server's own setting would
		cfg := f.config
		cfg.DSN = parsed.FormatDSN()
		s, err := Open(f.ctx, cfg, zap.NewNop())
		require.NoError(t, err)
		_, err = s.Acquire(f.ctx, []int{1}, 7, "me")
		require.NoError(t, err)
		require.NoError(t, s.Abandon(f.ctx, []int{1}, 7))
		require.NoError(t, s.Close())
		slots, err := f.Slots(f.ctx)
		require.NoError(t, err)
		require.Empty(t, slots[1].Owner)
	}
}
