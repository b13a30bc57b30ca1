package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/look"
)

// However many callers are refused, the audit log gets one entry for each kind, and none while the database is away.
func TestRefusalsAreNoted(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	log := zap.New(core)
	guard, err := access.New(access.Config{Tokens: fileWith(t, "tokens.yaml", "- {name: a, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08, role: read}\n")}, log)
	require.NoError(t, err)
	open := func() *store.Store {
		st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + t.TempDir() + "/notyet.db"}, log)
		require.NoError(t, err)
		return st
	}
	s := &service{guard: guard, log: log, store: open()}
	require.NoError(t, s.store.Migrate(t.Context(), 4))
	t.Cleanup(func() { require.NoError(t, s.store.Close()) })
	h := guard.Handler(http.NotFoundHandler())
	for i := range 5000 {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/tasks", nil)
		h.ServeHTTP(httptest.NewRecorder(), r) // without a token: nobody tried to be somebody
		r.Header.Set("Authorization", "Bearer nyt_geheim")
		h.ServeHTTP(httptest.NewRecorder(), r)
		if i%10 == 0 {
			_, err := guard.SignIn(r, "nyt_geheim")
			require.Error(t, err)
		}
	}
	away := open()
	require.NoError(t, away.Close())
	there := s.store
	s.store = away
	s.writeRefusals(t.Context())
	require.Equal(t, 1, logs.FilterMessageSnippet("cannot be noted").Len())
	s.store = there
	for range 2 {
		s.writeRefusals(t.Context())
	}
	page, err := look.New(s.store).ListAudit(t.Context(), look.AuditFilter{})
	require.NoError(t, err)
	require.Len(t, page.Entries, 2)
	for _, e := range page.Entries {
		require.Equal(t, "not signed in", e.Who)
		require.Equal(t, "sign-in refused", e.What)
		require.NotContains(t, e.Detail, "geheim")
	}
	require.EqualValues(t, []int64{500, 5000}, []int64{page.Entries[0].Count, page.Entries[1].Count})
	require.JSONEq(t, `{"why":"wrong_token","at":"console","last_peer":"192.0.2.1"}`, page.Entries[0].Detail)
	require.JSONEq(t, `{"why":"wrong_token","at":"api","last_peer":"192.0.2.1"}`, page.Entries[1].Detail)
	require.LessOrEqual(t, logs.FilterMessage("HTTP requests were refused").Len(), 20, "a line a second")
}
