package flight

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

// A delivery is deferred once: when its events are given up, or before that, when they have waited long.
func TestADeliveryIsDeferredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fl := newFlight(t, Config{})
		announced := func() Delivery {
			return fl.announces(&Task{slot: &ownedSlot{}, status: announcing, content: &content{settings: schemas.DefaultSettings()}}, nowMillis())
		}
		slow, refused := announced(), errors.New("given up")
		time.Sleep(fl.cfg.UnresponsiveAfter)
		fl.deferSlow()
		fl.Announced(slow, refused)
		quick := announced()
		fl.Announced(quick, refused)
		list, _ := fl.Deferred(10)
		require.Equal(t, []Delivery{slow, quick}, list)
	})
}
