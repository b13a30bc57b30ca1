package service

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

// newLifecycle notes in which order its parts end.
func newLifecycle(order *[]string, stopping *int) *lifecycle {
	var mu sync.Mutex
	l := &lifecycle{log: zap.NewNop(), stopTimeout: 10 * time.Second, stopping: func() { *stopping++ }}
	for _, name := range []string{"http", "scanner", "dispatcher"} {
		l.add(name, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second) // virtual: a part takes its time to drain
			mu.Lock()
			defer mu.Unlock()
			*order = append(*order, name)
			return nil
		})
	}
	return l
}

func TestPartsStopInReverseOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		var stopping int
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		require.NoError(t, newLifecycle(&order, &stopping).run(ctx))
		require.Equal(t, []string{"dispatcher", "scanner", "http"}, order)
		require.Equal(t, time.Minute+3*time.Second, time.Since(began))
		require.Equal(t, 1, stopping)
	})
}

func TestAPartThatFailsStopsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		var stopping int
		l := newLifecycle(&order, &stopping)
		l.add("broken", func(context.Context) error { return errors.New("lost it") })
		require.ErrorContains(t, l.run(t.Context()), "broken: lost it")
		require.Len(t, order, 3)

		order = nil
		l = newLifecycle(&order, &stopping)
		l.add("quitter", func(context.Context) error { return nil })
		require.ErrorContains(t, l.run(t.Context()), "quitter ended by itself")
		require.Len(t, order, 3)
	})
}

// After the news that another copy of the database has taken this one's place, nothing is drained.
func TestAServiceOnAnOlderCopyEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		var stopping int
		l := newLifecycle(&order, &stopping)
		l.add("copies", func(context.Context) error { return kafka.ErrOlderCopy })
		began := time.Now()
		require.ErrorIs(t, l.run(t.Context()), kafka.ErrOlderCopy)
		require.Zero(t, time.Since(began), "no part takes its time")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, order, 3, "what is left of the process is told to stop")
	})
}

func TestAPartThatDoesNotStopIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		var stopping int
		l := newLifecycle(&order, &stopping)
		release := make(chan struct{})
		l.add("stuck", func(context.Context) error { <-release; return nil })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		require.ErrorContains(t, l.run(ctx), "stuck was not done after 10s")
		require.Equal(t, 10*time.Second, time.Since(began))
		close(release)
		time.Sleep(2 * time.Second) // virtual
		synctest.Wait()
		require.Len(t, order, 3, "the others were told to stop all the same")
	})
}
