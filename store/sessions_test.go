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

			fill := func(owner string, n int, until time.Time) {
				rows := make([]string, 0, n)
				for i := range n {
					rows = append(rows, fmt.Sprintf("(x'%x', %d)", fmt.Sprint("session.ended.", owner, i), until.UnixMilli()))
				}
				_, err := s.db.ExecContext(t.Context(), "REPLACE INTO meta (name, value) VALUES "+strings.Join(rows, ","))
				require.NoError(t, err)
			}
			fill("me.", 1100, until)
			require.NoError(t, a.EndSession(t.Context(), "me.one", until.UnixMilli()))
			fill("me.", 1111, until)
			require.ErrorIs(t, a.EndSession(t.Context(), "me.two", until.UnixMilli()), admin.ErrTooManyEnded)
			require.NoError(t, a.EndSession(t.Context(), "me.one", until.UnixMilli()), "it has ended before")
			require.NoError(t, a.EndSession(t.Context(), "m.one", until.UnixMilli()), "others have room")
			fill("", admin.MostEndedSessions-count(), until)
			require.Equal(t, admin.MostEndedSessions, count())
			require.NoError(t, a.EndSession(t.Context(), "A", until.UnixMilli()), "it has ended before")
			require.ErrorIs(t, a.EndSession(t.Context(), "B", until.UnixMilli()), admin.ErrTooManyEnded)
			fill("", admin.MostEndedSessions, now.Add(-2*time.Hour)) // which make room: they would have ended by themselves
			require.NoError(t, a.EndSession(t.Context(), "B", until.UnixMilli()))
			require.Equal(t, 1111+4, count())
			id, err := s.Installation(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, id, "other rows of the table stay")
		})
	}
}
