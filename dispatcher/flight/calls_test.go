package flight

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/dispatcher/flight/target"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

var (
	answered503 = callback.Outcome{Verdict: callback.Retry, Status: 503, Sent: true}
	answered200 = callback.Outcome{Verdict: callback.Delivered, Status: 200, Sent: true}
	tooHasty    = callback.Outcome{Verdict: callback.Retry, Failure: "timeout", Hasty: true, Sent: true}
)

// calls is a flight with tasks for origins.
type calls struct {
	*Flight
	slot *ownedSlot
	seq  int64
}

func newCalls(t *testing.T, each, all int) *calls {
	fl := newFlight(t, Config{CallLimits: func() (int, int) { return each, all }})
	fl.slots[0] = &ownedSlot{claimed: never, claimMost: never, callMost: never}
	return &calls{Flight: fl, slot: fl.slots[0]}
}

// due adds a task that is due, and takes what may be sent.
func (c *calls) due(origin string) (send []Sendable) {
	now := nowMillis()
	c.seq++
	one := &Task{slot: c.slot, seq: c.seq, pos: now, at: now, status: staged, content: &content{topic: origin, tenant: "shop", due: now, record: &kgo.Record{Topic: origin}, call: &callback.Request{URL: origin + "/"}, settings: schemas.DefaultSettings()}}
	one.settings.MaxAttempts = 1000
	c.staging.add(one)
	c.machine.due.push(one)
	send, _ = c.Due.Take()
	return send
}

func (c *calls) called(one Sendable, o callback.Outcome) {
	var err error
	if o.Verdict != callback.Delivered {
		err = &CallError{Outcome: o}
	}
	c.Due.Called(one.Task, Answer{At: nowMillis(), Err: err, Alone: true}, o)
}

func (c *calls) counts() target.Counts { return c.outlets.origins.Counts() }

func (c *calls) notSent(why string) int { return counted(c.metrics.NotSent.WithLabelValues(why)) }

// What is due beyond the bound of an origin waits, while others' callbacks go. Each answer makes room for one.
func TestCallsUnderWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls(t, 8, 100)
		c.called(c.due("http://slow.example:81")[0], answered200) // the tenant's other origin
		var slow []Sendable
		for range 50 {
			slow = append(slow, c.due("http://slow.example")...)
		}
		require.Len(t, slow, 8)
		require.Equal(t, 1, c.notSent(target.OriginFull), "the others wait behind the first")
		require.Len(t, c.outlets.byKey[outletKey{"http://slow.example", -1}].waiting, 42)
		for range 100 {
			fast := c.due("http://fast.example")
			require.Len(t, fast, 1)
			c.called(fast[0], answered200)
		}
		for n := 0; len(slow) > 0; n++ {
			c.called(slow[0], answered200)
			more, _ := c.Due.Take()
			require.Len(t, more, min(1, max(42-n, 0)))
			slow = append(slow[1:], more...)
			require.Equal(t, len(slow), c.counts().Held)
		}
		require.Empty(t, c.outlets.calls)
		require.Empty(t, c.outlets.ofTenant)
		require.Zero(t, c.outlets.atOrigins)
	})
}

// The limits are those of the moment, and for our part of the slots.
func TestLimitsOfCallsAreTheCurrentOnes(t *testing.T) {
	c := newCalls(t, 8, 100)
	c.cfg.CallLimits = func() (int, int) { return 4, 100 }
	c.gates.slots = 2
	c.Policies.Apply(nil, task.LaneKey{})
	n := 0
	for range 10 {
		n += len(c.due("http://slow.example"))
	}
	require.Equal(t, 2, n)
}

// Whoever asks for a millisecond does not close an origin to the others.
func TestHastyCallsSayNothingAboutTheOrigin(t *testing.T) {
	c := newCalls(t, 64, 1024)
	for range 30 {
		c.called(c.due("http://shop.example")[0], tooHasty)
	}
	require.Len(t, c.due("http://shop.example"), 1)
	require.Zero(t, c.counts().Down)
}

// An outage of an origin: few requests ask it, and all is well as soon as it answers. A log line and metrics say so. Others notice nothing.
func TestAnOriginThatIsDownDelaysOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls(t, 64, 1024)
		core, logs := observer.New(zap.InfoLevel)
		c.log = zap.New(core)
		const down, up = "http://down.example", "http://up.example"
		before := c.due(down)[0]
		for range 10 {
			c.called(c.due(down)[0], answered503)
		}
		require.Equal(t, 1, logs.FilterMessageSnippet("does not answer").Len())
		require.Equal(t, []string{down}, c.Unresponsive())
		c.called(before, answered503) // it changes nothing
		asked := 0
		for range 6000 { // ten minutes, in which 10 tasks a second are due
			for _, one := range c.due(down) {
				asked++
				require.True(t, one.Call.Asks)
				c.called(one, answered503)
			}
			c.called(c.due(up)[0], answered200)
			time.Sleep(100 * time.Millisecond)
			if c.seq%20 == 0 {
				c.Outcomes.Check()
			}
		}
		require.InDelta(t, 15, asked, 2, "once a minute, and a few in the first one")
		require.Equal(t, 1, counted(c.metrics.Circuits))
		require.Equal(t, 1, counted(c.metrics.Unresponsive))
		require.Equal(t, 6000-asked, c.notSent(target.Circuit))
		require.Equal(t, 1, c.counts().Down)

		time.Sleep(time.Minute)
		asks := c.due(down)
		require.Len(t, asks, 1)
		require.Empty(t, c.due(down), "one at a time")
		c.called(asks[0], tooHasty)
		require.Empty(t, c.due(down), "that asked nothing, and another one asks in a second")
		time.Sleep(time.Second)
		parked := c.Figures().Parked
		require.Greater(t, parked, 5000)
		recalled := len(c.inbox.recalls)
		c.called(c.due(down)[0], answered200)
		require.Equal(t, parked, len(c.inbox.recalls)-recalled, "the others are called back")
		require.Equal(t, 1, logs.FilterMessageSnippet("answers again").Len())
		require.Empty(t, c.Unresponsive())
		for range 2 {
			after := c.due(down)
			require.False(t, after[0].Call.Asks)
			c.called(after[0], answered200)
		}
		require.Zero(t, c.counts().Down)
	})
}

// Nobody has asked an origin that is down for long. Its tasks are called back, and one of them asks before the others go.
func TestAnOriginThatNobodyAskedIsStillDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls(t, 64, 1024)
		for range 10 {
			c.called(c.due("http://down.example")[0], answered503)
		}
		require.Empty(t, c.due("http://down.example"))
		time.Sleep(11 * time.Minute)
		c.Outcomes.Check()
		require.Len(t, c.inbox.recalls, 1)
		require.Empty(t, c.outlets.byKey)
		require.Empty(t, c.Unresponsive())
		asks := c.due("http://down.example")
		require.True(t, asks[0].Call.Asks)
		require.Empty(t, c.due("http://down.example"))
	})
}
