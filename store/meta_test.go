package store

import (
	"testing"

	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/stretchr/testify/require"
)

// Two databases, on one server or on several, are two installations. Each keeps its id, whatever version migrates it next.
func TestEachDatabaseIsAnInstallation(t *testing.T) {
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			ctx, ids := t.Context(), map[string]bool{}
			for range 2 {
				s := open(t, b.fresh(t))
				_, err := s.Installation(ctx)
				require.Error(t, err, "not migrated")
				require.NoError(t, s.Migrate(ctx, 2))
				id, err := s.Installation(ctx)
				require.NoError(t, err)
				require.Regexp(t, "^[0-9a-f]{32}$", id)
				ids[id] = true

				_, err = s.Line().NextEpoch(ctx) // writes its row as the version before does
				require.NoError(t, err)
				require.NoError(t, s.Migrate(ctx, 2))
				again, err := s.Installation(ctx)
				require.NoError(t, err)
				require.Equal(t, id, again)

				for _, name := range []string{installationID, handle.LanesKey} {
					_, err = s.db.ExecContext(ctx, "UPDATE meta SET data = ? WHERE name = ?", []byte{}, []byte(name))
					require.NoError(t, err)
					s.h = handle.New(s.h.Config) // another process
					require.ErrorIs(t, s.CheckMigrated(ctx), ErrNotMigrated, "a migration that was killed before its end")
					require.NoError(t, s.Migrate(ctx, 2))
					require.NoError(t, s.CheckMigrated(ctx))
				}
			}
			require.Len(t, ids, 2)
		})
	}
}

func TestADatabaseBelongsToOneKafka(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		require.NoError(t, s.OnKafka(s.ctx, "one", false))
		require.NoError(t, s.OnKafka(s.ctx, "one", false))
		err := s.OnKafka(s.ctx, "two", false)
		require.ErrorIs(t, err, admin.ErrOtherKafka)
		require.ErrorContains(t, err, "one, and kafka.brokers lead to two")
		require.NoError(t, s.OnKafka(s.ctx, "two", true), "it has moved")
		require.ErrorIs(t, s.OnKafka(s.ctx, "one", false), admin.ErrOtherKafka)
	})
}
