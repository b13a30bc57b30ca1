package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

// A path with the segment . or .. means another one, so these ids are percent-encoded too.
func TestClientNamesTimersThatAreDots(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{".", "..", "...", "a/../b"} {
		w.setTimer("orders", id, schemas.Timer{Every: time.Hour}, []byte("x"))
		timer, err := w.client.Timer(t.Context(), "orders", id)
		require.NoError(t, err, id)
		require.Equal(t, id, timer.ID)
	}
}
