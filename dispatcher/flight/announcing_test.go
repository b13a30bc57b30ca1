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
			return fl.Outcomes.announces(&Task{slot: &ownedSlot{}, status: announcing, content: &content{settings: schemas.DefaultSettings()}}, nowMillis())
		}
		slow, refused := announced(), errors.New("given up")
		time.Sleep(fl.cfg.UnresponsiveAfter)
		fl.Outcomes.deferSlow()
		fl.Announcing.Announced(slow, refused)
		quick := announced()
		fl.Announcing.Announced(quick, refused)
		list := fl.Announcing.Deferred(10).List
		require.Equal(t, []Delivery{slow, quick}, list)
	})
}
