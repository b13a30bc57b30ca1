package browser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/oidctest"
	run "github.com/notyet/notyet/test/program"
)

// The issuer is another site than the console, as it mostly is: the browser then sends no strict cookie with what the issuer leads to.
func TestSignInAtAnIssuerOfAnotherSite(t *testing.T) {
	openBrowser(t)
	dir := t.TempDir()
	run.In(t, dir)
	_, port, _ := strings.Cut(run.FreeAddr(t), ":")
	base := "http://localhost:" + port
	p := oidctest.New(t) // on 127.0.0.1
	p.Client("console", "a-secret", base+"/sign-in/callback")
	p.SetGroups(oidctest.Operator, "shop")
	file := filepath.Join(dir, "tokens.yaml")
	require.NoError(t, os.WriteFile(file, []byte("- {group: shop, role: operate, topics: [orders]}\n"), 0o600))
	_, problem := run.Dev(t, dir, append(run.Environ(), "NOTYET_HTTP_TOKENS="+file, "NOTYET_HTTP_JWT_ISSUER="+p.URL, "NOTYET_HTTP_SIGN_IN_CLIENT_ID=console",
		"NOTYET_HTTP_SIGN_IN_CLIENT_SECRET=a-secret", "NOTYET_HTTP_PUBLIC_URL="+base), "--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:"+port)
	require.Empty(t, problem)

	tab := newTab(t, base, "")
	tab.open("/targets")
	tab.sees("Sign in with 127.0.0.1")
	tab.click("#sign-in-at-issuer")
	tab.sees("jwt:"+oidctest.Operator+" (operate)", "Targets") // where the operator wanted to go
	tab.eventually("the page that was asked for is shown", "location.pathname == '/targets'")
	tab.click("#sign-out")
	tab.sees("Sign in with")
	tab.open("/targets")
	tab.sees("Sign in with")
}
