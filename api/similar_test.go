package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only names of about the same length are compared: the work for a name does not grow with others' lengths.
func TestSimilarNames(t *testing.T) {
	long := strings.Repeat("x", 249)
	require.Equal(t, []string{"orders", "Order", "orders.retry"}, similar("orders", []string{"payments", "orders.retry", long, "Order", "orders"}))
	require.Empty(t, similar(long, []string{"orders", "payments"}))
	require.Equal(t, []string{long}, similar("xx", []string{long}), "it begins with the name")
}

func TestALongNameIsNotLookedFor(t *testing.T) {
	w := newWorld(t)
	code, answer := w.do("GET", "/api/v1/targets?like="+strings.Repeat("x", 256), "")
	require.Equal(t, 422, code, answer)
}
