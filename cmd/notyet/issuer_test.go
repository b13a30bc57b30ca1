package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/test/oidctest"
)

// The settings of http.jwt let the callers of an issuer in, with the rights of their groups, and commands can
// use its tokens.
func TestTokensOfAnIssuer(t *testing.T) {
	p := oidctest.New(t)
	file := fileWith(t, "tokens.yaml", "- {group: shop, role: operate, topics: [orders]}\n- {group: office, role: read, topics: ['*']}\n")
	d := startDev(t, "--set", "http.tokens="+file, "--set", "http.jwt.issuer="+p.URL, "--set", "http.jwt.audience="+oidctest.Audience)
	shop, office := p.Token("s1", "shop"), p.Token("o1", "office")

	r := d.cmd(t, "list", "-t", "orders", "--http-token", shop)
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	r = d.cmd(t, "list", "-t", "bills", "--http-token", shop)
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, `the topic is none of those of the token "jwt:s1"`)
	r = d.cmd(t, "target", "pause", "orders", "--http-token", office)
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "this needs the role operate")
	r = d.cmd(t, "target", "pause", "orders", "--http-token", shop)
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	r = d.cmd(t, "audit", "list", "--http-token", office)
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "jwt:s1")
	r = d.cmd(t, "list", "--http-token", p.Token("n1", "others"))
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "none of the groups in the JWT has a role")
	for _, token := range []string{shop, office} {
		require.NotContains(t, d.errs.String(), token)
	}
}
