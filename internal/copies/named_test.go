package copies

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

// A process reads what the group has, is paused while a command names another copy, and wakes. It ends before it could take part in an election.
func TestAProcessThatWokeComparesTheCopiesAtOnce(t *testing.T) {
	watching(t, func(w *watched) {
		var woke time.Time
		now := func(context.Context) (string, error) {
			if woke.IsZero() {
				newer := kafka.Claim{Installation: "shop", Copy: kafka.NewCopy("ann")}
				require.NoError(w, kafka.TakeGroup(w.Context(), w.cfg.Client, "scanners", newer, "intake"))
				time.Sleep(10 * time.Second)
				woke = time.Now()
			}
			return "", nil
		}
		n := Named{Client: w.cfg.Client, Group: "scanners", Topics: []string{"intake"}, Installation: "shop", Now: now, Log: zap.NewNop()}
		require.ErrorIs(w, n.Run(w.Context()), kafka.ErrOlderCopy)
		require.Less(w, time.Since(woke), 100*time.Millisecond)
	})
}
