package chaos

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOriginsAnswerOnceInAnAttack: and again when it is over. The origin of the others always answers.
func TestOriginsAnswerOnceInAnAttack(t *testing.T) {
	r, err := newReceivers()
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.server.Close() })
	asked := func(url, id string, patience time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
		require.NoError(t, err)
		req.Header.Set("Notyet-Id", id)
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	}
	end := r.begin()
	for _, n := range []int{0, 99, 62_500} {
		require.True(t, asked(r.origin(n), "a", time.Minute), "origin %d answers once", n)
		require.False(t, asked(r.origin(n), "a", 50*time.Millisecond), "origin %d answers again", n)
	}
	require.Equal(t, 3, r.answered())
	for range 2 {
		require.True(t, asked(r.good(), "b", time.Minute))
	}
	_, came := r.arrival("b")
	require.True(t, came)
	_, came = r.arrival("a")
	require.False(t, came, "it is the attacker's")
	end()
	require.True(t, asked(r.origin(0), "a", time.Minute), "the attack is over")
}
