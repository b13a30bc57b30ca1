package access

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/oidctest"
)

func TestExamine(t *testing.T) {
	p := oidctest.New(t)
	seen, err := Examine(t.Context(), JWT{Issuer: p.URL})
	require.NoError(t, err)
	require.Equal(t, Examined{Keys: 1, Endpoints: true, S256: true, Ahead: seen.Ahead, Within: seen.Within}, seen)
	require.LessOrEqual(t, seen.Ahead, time.Duration(0), "the clocks are one")
	require.GreaterOrEqual(t, seen.Ahead+seen.Within, time.Duration(0))
	_, err = Examine(t.Context(), JWT{Issuer: p.URL + "/"})
	require.ErrorContains(t, err, "http.jwt.issuer")
	p.Down.Store(true)
	_, err = Examine(t.Context(), JWT{Issuer: p.URL})
	require.Error(t, err)
}
