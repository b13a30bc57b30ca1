package task

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

func TestIdent(t *testing.T) {
	t.Parallel()
	seen := map[[16]byte]string{}
	for _, topic := range []string{"orders", "payments"} {
		for _, id := range []string{"", "/", "1", "a", "a/", "a/1", "a/01", "a/4294967297", "a/18446744073709551615", "a/18446744073709551616", "a/-1", "a/1/", "a/0/1", "b/1"} {
			ident := Ident(topic, id)
			require.Equal(t, ident, Ident(topic, id))
			require.NotContains(t, seen, ident, "%s %s", topic, id)
			seen[ident] = topic + " " + id
		}
	}
	last := Ident("orders", schemas.DefaultID("notyet.intake", 3, 0))
	for offset := int64(1); offset < 3000; offset++ {
		next := Ident([]string{"orders", "payments"}[offset%2], schemas.DefaultID("notyet.intake", 3, offset))
		require.Negative(t, bytes.Compare(last[:], next[:]), "default ids of a partition stand in the order of their offsets")
		last = next
	}
}
