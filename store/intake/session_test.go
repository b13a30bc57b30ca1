package intake

import (
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/election/roll"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
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
		s, err := store.Open(f.ctx, cfg, zap.NewNop())
		require.NoError(t, err)
		_, err = New(s).Line().Acquire(f.ctx, []int{1}, 7, "me")
		require.NoError(t, err)
		require.NoError(t, New(s).Line().Abandon(f.ctx, []int{1}, 7))
		require.NoError(t, s.Close())
		slots, err := f.Slots(f.ctx)
		require.NoError(t, err)
		require.Empty(t, slots[1].Owner)
	}
}

// Where the server's sessions cut what a statement selects, or change what it means, a list is whole and a transaction ends with its commit.
func TestListsAreNotCut(t *testing.T) {
	for _, b := range backends() {
		if b.sqlite {
			continue
		}
		cfg := b.fresh(t)
		parsed, err := mysql.ParseDSN(cfg.DSN)
		require.NoError(t, err)
		parsed.Params = map[string]string{"sql_select_limit": "3", "sql_big_selects": "0", "completion_type": "1", "sql_mode": "'ANSI_QUOTES'"} // as a server's own settings would
		cfg.DSN = parsed.FormatDSN()
		s := open(t, cfg)
		require.NoError(t, s.Migrate(t.Context(), 7))
		slots, err := s.Slots(t.Context())
		require.NoError(t, err)
		require.Len(t, slots, 7)
	}
}

// Where the server's sessions refuse statements that name no key, all tables are still made, and rows without a key in the statement are changed.
func TestStatementsWithoutKeysAreNotRefused(t *testing.T) {
	for _, b := range backends() {
		if b.sqlite {
			continue
		}
		cfg := b.fresh(t)
		parsed, err := mysql.ParseDSN(cfg.DSN)
		require.NoError(t, err)
		parsed.Params = map[string]string{"sql_safe_updates": "1"} // as a server's own setting would
		cfg.DSN = parsed.FormatDSN()
		s := open(t, cfg)
		require.NoError(t, s.Migrate(t.Context(), 2))
		_, err = admin.New(s).SetSlots(t.Context(), 3)
		require.NoError(t, err)
		r := s.Roll()
		defer r.Close()
		a := roll.Candidate{Instance: "1", ID: "a", Data: []byte("{}")}
		require.NoError(t, r.Join(t.Context(), a))
		for before, epoch := range []int64{1, 2} {
			won, err := r.Publish(t.Context(), a, int64(before), epoch, []byte("{}"))
			require.NoError(t, err)
			require.True(t, won)
		}
	}
}
