package store

import (
	"testing"

	"github.com/notyet/notyet/store/intake"
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

				_, err = intake.New(s).Line().NextEpoch(ctx) // writes its row as the version before does
				require.NoError(t, err)
				require.NoError(t, s.Migrate(ctx, 2))
				again, err := s.Installation(ctx)
				require.NoError(t, err)
				require.Equal(t, id, again)

				for _, name := range []string{handle.InstallationID, handle.LanesKey} {
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
