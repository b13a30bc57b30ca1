package intake

import (
	"fmt"
	"strings"
	"testing"

	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
	"github.com/stretchr/testify/require"
)

// A service is listed while its lease lasts, by the database's clock.
func TestServices(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		ids := func() (out []string) {
			t.Helper()
			all, err := look.New(s.Store).Services(s.ctx)
			require.NoError(t, err)
			for _, v := range all {
				require.NotZero(t, v.Seen)
				out = append(out, v.Kind+" "+v.ID)
			}
			return out
		}
		back := func(id string, ms int64) {
			_, err := s.h.Exec(s.ctx, "UPDATE services SET seen = seen - ? WHERE id = ?", ms, []byte(id))
			require.NoError(t, err)
		}
		long := strings.Repeat("ü", 300)
		for _, v := range []admin.Service{{ID: "b", Kind: "scanner"}, {ID: "a", Kind: "scanner"}, {ID: "c", Kind: "dispatcher", Member: long, Version: long, HTTP: long, Started: 5}} {
			require.NoError(t, s.Beat(s.ctx, v))
			require.NoError(t, s.Beat(s.ctx, v), "again")
		}
		require.Equal(t, []string{"dispatcher c", "scanner a", "scanner b"}, ids())
		back("a", admin.ServiceLease+1)
		require.Equal(t, []string{"dispatcher c", "scanner b"}, ids(), "it died")
		require.NoError(t, s.Beat(s.ctx, admin.Service{ID: "a", Kind: "scanner"}))
		require.Len(t, ids(), 3, "it was only slow")
		require.NoError(t, s.Leave(s.ctx, "a"))
		require.NoError(t, s.Leave(s.ctx, "a"))
		require.Len(t, ids(), 2, "it has said good-bye")

		back("b", 3_600_000+1000)
		require.NoError(t, s.Beat(s.ctx, admin.Service{ID: "c", Kind: "dispatcher"}))
		require.Equal(t, 1, s.count("services"), "what died long ago is forgotten")
		for i := range 20 {
			require.NoError(t, s.Beat(s.ctx, admin.Service{ID: fmt.Sprint(i), Kind: "scanner"}))
		}
		require.Len(t, ids(), 21)
	})
}
