package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store/admin"
)

func TestEndedSessions(t *testing.T) {
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			s := open(t, b.fresh(t))
			require.NoError(t, s.Migrate(t.Context(), 2))
			a := admin.New(s)
			count := func() int {
				ended, err := a.EndedSessions(t.Context())
				require.NoError(t, err)
				return len(ended)
			}
			require.Zero(t, count(), "other rows of the table are none")
			now := time.Now().Truncate(time.Millisecond)
			until := now.Add(time.Hour)
			for range 2 {
				require.NoError(t, a.EndSession(t.Context(), "A", until.UnixMilli()))
			}
			ended, err := a.EndedSessions(t.Context())
			require.NoError(t, err)
			require.Equal(t, map[string]time.Time{"A": until}, ended)

			fill := func(until time.Time) {
				rows := make([]string, 0, admin.MostEndedSessions)
				for i := range admin.MostEndedSessions - 1 {
					rows = append(rows, fmt.Sprintf("(x'%x', %d)", fmt.Sprint("session.ended.", i), until.UnixMilli()))
				}
				_, err := s.db.ExecContext(t.Context(), "REPLACE INTO meta (name, value) VALUES "+strings.Join(rows, ","))
				require.NoError(t, err)
			}
			fill(until)
			require.Equal(t, admin.MostEndedSessions, count())
			require.ErrorIs(t, a.EndSession(t.Context(), "B", until.UnixMilli()), admin.ErrTooManyEnded)
			fill(now.Add(-2 * time.Hour)) // which make room: they would have ended by themselves
			require.NoError(t, a.EndSession(t.Context(), "B", until.UnixMilli()))
			require.Equal(t, 2, count())
			id, err := s.Installation(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, id, "other rows of the table stay")
		})
	}
}
