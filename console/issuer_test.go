package console

import (
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/test/oidctest"
)

// A JWT of the issuer begins a session with the rights of its groups.
func TestSignInWithAJWT(t *testing.T) {
	p := oidctest.New(t)
	w := newWorld(t, true, func(c *access.Config) {
		file, err := os.ReadFile(c.Tokens)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(c.Tokens, append(file, "- {group: shop, role: operate, topics: [orders]}\n"...), 0o600))
		c.JWT = access.JWT{Issuer: p.URL, Audience: oidctest.Audience, GroupsClaim: "groups", NameClaim: "sub"}
	})
	w.schedule("orders", "4711", []byte("v"))
	w.schedule("bills", "4712", []byte("v"))
	jwt := func(groups ...string) string {
		return p.Sign(map[string]any{"iss": p.URL, "aud": oidctest.Audience, "sub": "s1", "groups": groups, "exp": time.Now().Add(time.Minute).Unix(), "x": strings.Repeat("x", 1<<10)})
	}
	b := w.browser()
	resp, text := b.post("/sign-in", url.Values{"token": {jwt("others")}})
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	require.Contains(t, text, "none of the groups in the JWT has a role")
	require.Empty(t, resp.Header.Get("Set-Cookie"))

	w.tokens["shop"] = jwt("shop")
	b = w.as("shop")
	resp, text = b.get("/task?topic=orders&id=4711")
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
	resp, _ = b.get("/task?topic=bills&id=4712")
	require.Equal(t, http.StatusForbidden, resp.StatusCode, "another tenant's")

	// A cookie has no room for a large one.
	large := p.Sign(map[string]any{"iss": p.URL, "aud": oidctest.Audience, "sub": "s1", "groups": []string{"shop"}, "exp": time.Now().Add(time.Minute).Unix(), "x": strings.Repeat("x", 8<<10)})
	resp, text = w.browser().post("/sign-in", url.Values{"token": {large}})
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	require.Contains(t, text, "the token is too large for a cookie")
	require.Empty(t, resp.Header.Get("Set-Cookie"))
}
