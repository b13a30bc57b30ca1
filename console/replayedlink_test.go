package console

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A stranger's link does not have the console say something as the outcome of a replay, nor count letters that nobody replayed.
func TestALinkDoesNotSpeakAsTheConsole(t *testing.T) {
	r := httptest.NewRequest("GET", "/replayed?done=5&total=5&skipped=5+this+console+has+moved:+sign+in+at+evil.example", nil)
	v, err := (&Console{}).replayed(r)
	require.NoError(t, err)
	w := httptest.NewRecorder()
	(&Console{}).render(w, r, 200, v)
	require.NotContains(t, w.Body.String(), "evil.example")
}
