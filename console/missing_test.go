package console

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/shardmap"
)

// A page says in one line which database does not answer, and shows what the others have.
func TestPagesNameADatabaseThatDoesNotAnswer(t *testing.T) {
	w := newWorld(t, false)
	w.schedule("orders", "here", nil)
	local := api.NewLocal(w.store, deadletter.NewLocal(w.store, nil, "test", w.log))
	other := api.NewMember(1, local)
	mux := http.NewServeMux()
	api.Mount(mux, api.NewFleet([]*api.Member{api.NewMember(0, local), other}, new(shardmap.Known)), nil, api.Config{Version: "test"})
	Mount(mux, "test")
	page := func(path string) string {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, r.WithContext(access.With(r.Context(), access.Caller{Name: "ann", Role: access.Admin, Topics: access.Everything})))
		require.Equal(t, http.StatusOK, rec.Code, rec.Body.String())
		return rec.Body.String()
	}
	const line = "Database 1 does not answer: what it holds is missing here."
	paths := []string{"/", "/find?topic=orders", "/find?tag=x", "/timers", "/deadletters", "/targets", "/audit", "/cluster"}
	for _, path := range paths {
		require.NotContains(t, page(path), line, path)
	}
	require.Contains(t, page("/cluster"), "Database 1: 4 slots.")
	other.Set(nil)
	for _, path := range paths {
		if path != "/find?topic=orders" { // which has its home alone
			require.Contains(t, page(path), line, path)
		}
	}
	require.Contains(t, page("/find?topic=orders"), "here")
	require.Contains(t, page("/cluster"), "Database 0: 4 slots.")
	require.NotContains(t, page("/cluster"), "Database 1: 4 slots.")
}
