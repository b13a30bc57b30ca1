package store

import (
	"database/sql"
	"testing"

	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/shards"
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

// A program does not start, and its dispatchers claim nothing, where the installation requires a word that it does not know.
func TestAProgramThatIsTooOld(t *testing.T) {
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			ctx, s := t.Context(), open(t, b.fresh(t))
			require.NoError(t, s.Migrate(ctx, 2))
			require.NoError(t, s.CheckMigrated(ctx))
			words, err := s.Required(ctx)
			require.NoError(t, err)
			require.Empty(t, words)
			set := func(word string, needed bool) {
				require.NoError(t, s.h.Transact(ctx, func(tx *sql.Tx) error { return handle.Require(ctx, tx, word, needed) }))
			}
			for _, word := range []string{"tea", handle.Spread, "coffee"} {
				set(word, true)
				set(word, true)
			}
			words, err = s.Required(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{"coffee", handle.Spread, "tea"}, words)
			err = s.CheckMigrated(ctx)
			require.ErrorIs(t, err, ErrRequired)
			require.ErrorContains(t, err, ": coffee, tea; run the release")
			set("tea", false)
			require.ErrorContains(t, s.CheckRequired(ctx), ": coffee; run")
			set("coffee", false)
			require.NoError(t, s.CheckMigrated(ctx), "this one knows that the number of slots changes")
			require.Subset(t, Can(), []string{handle.Spread, handle.Shards})
		})
	}
}

// A database that has worked as an installation of its own does not become a part of another one.
func TestWhichDatabasesCanJoin(t *testing.T) {
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			ctx, s := t.Context(), open(t, b.fresh(t))
			require.NoError(t, s.Migrate(ctx, 2))
			a := shards.New(s)
			number, home, err := a.Number(ctx)
			require.NoError(t, err)
			require.Equal(t, []any{-1, ""}, []any{number, home})
			own, err := s.Installation(ctx)
			require.NoError(t, err)
			_, err = s.db.ExecContext(ctx, "INSERT INTO sources (src, topic, topic_id, part, next_offset) VALUES (9, ?, ?, 0, 5)", []byte("notyet.intake"), make([]byte, 16))
			require.NoError(t, err)
			require.ErrorIs(t, a.Join(ctx, 1, "another", shards.Stand{}), shards.ErrOtherShard)
			require.NoError(t, a.Join(ctx, 0, own, shards.Stand{}), "the first one keeps its tasks")
			number, home, err = a.Number(ctx)
			require.NoError(t, err)
			require.Equal(t, []any{0, own}, []any{number, home})
		})
	}
}
