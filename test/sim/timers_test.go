package sim

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/dispatcher"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/recordtest"
)

// quietly runs a script on a world without faults whose time begins at an instant, and returns what was delivered on the plain topics:
// the runs' local times, marked where they came late.
func quietly(t *testing.T, begin time.Time, cfg dispatcher.Config, script func(w *world)) (seen []arrival) {
	t.Helper()
	if underRace {
		t.Skip("without the race detector only: see underRace")
	}
	p := drawn(1)
	p.faults, p.scanners, p.dispatchers, p.slots, p.redis, p.silent, p.latency, p.stepsBack = 0, 1, 1, 2, false, false, 0, 0
	cfg.Retention, cfg.Window = 7*24*time.Hour, time.Hour
	p.dispatcher = cfg
	dir, err := os.MkdirTemp(memory(), "notyet-sim")
	require.NoError(t, err)
	defer func() { _ = os.RemoveAll(dir) }()
	_, err = template(p.slots, 0)
	require.NoError(t, err)
	var pulse atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(begin))
		w, err := newWorld(p, dir, &pulse)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		w.seen = w.observe()
		ended := make(chan struct{})
		go func() { defer close(ended); w.electorate.run(ctx) }()
		for _, n := range w.nodes {
			n.start()
		}
		script(w)
		for _, n := range w.nodes {
			n.stop()
		}
		w.winddown()
		cancel()
		<-ended
		seen = w.seen.all()
		w.close()
		require.Empty(t, w.findings)
	})
	return seen
}

// setTimer sends a request that sets a timer; headers are pairs.
func (w *world) setTimer(id string, headers ...string) {
	headers = append(headers, schemas.HeaderOp, "timer", schemas.HeaderTopic, plainTopics[0], schemas.HeaderID, id)
	r := &kgo.Record{Topic: schemas.TopicIntake, Key: []byte(id), Value: []byte("run"), Headers: recordtest.Headers(headers...)}
	if err := w.client.ProduceSync(context.Background(), r).FirstErr(); err != nil {
		w.find("sim", "Kafka did not take a timer: %v", err)
	}
}

// runsOf are the deliveries of a timer, in order, as local times; a second copy or one that is not on time is marked.
func runsOf(t *testing.T, seen []arrival, id string, zone *time.Location) (out []string) {
	t.Helper()
	for _, a := range seen {
		if a.r.Topic != plainTopics[0] {
			continue
		}
		d, _, err := schemas.ParseDelivery(a.r)
		require.NoError(t, err)
		if d.Timer != id {
			continue
		}
		require.Equal(t, fmt.Sprintf("%s@%d", id, d.Due), d.ID)
		require.GreaterOrEqual(t, a.at, d.Due, "early")
		text := time.UnixMilli(d.Due).In(zone).Format("01-02 15:04 -07")
		if a.at > d.Due+100 {
			text += " late"
		}
		out = append(out, text)
	}
	return out
}

// TestTimersWhereTheClocksChange: what is delivered is what the contract says, where local times are skipped and where they come twice.
func TestTimersWhereTheClocksChange(t *testing.T) {
	if os.Getenv("NOTYET_LONG") == "" {
		t.Skip("NOTYET_LONG=1 runs it: it simulates six hours")
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		begin        string
		fixed, every []string
	}{
		"skipped": {"2027-03-28T00:15:00+01:00", []string{"03-28 03:00 +02"},
			[]string{"03-28 00:30 +01", "03-28 01:00 +01", "03-28 01:30 +01", "03-28 03:00 +02", "03-28 03:30 +02", "03-28 04:00 +02"}},
		"twice": {"2027-10-31T01:15:00+02:00", []string{"10-31 02:30 +02"},
			[]string{"10-31 01:30 +02", "10-31 02:00 +02", "10-31 02:30 +02", "10-31 02:00 +01", "10-31 02:30 +01", "10-31 03:00 +01"}},
	} {
		t.Run(name, func(t *testing.T) {
			begin, err := time.Parse(time.RFC3339, c.begin)
			require.NoError(t, err)
			seen := quietly(t, begin, dispatcher.Config{}, func(w *world) {
				time.Sleep(time.Second)
				w.setTimer("fixed", schemas.HeaderCron, "30 2 * * *", schemas.HeaderTimezone, "Europe/Berlin")
				w.setTimer("every", schemas.HeaderCron, "*/30 * * * *", schemas.HeaderTimezone, "Europe/Berlin")
				time.Sleep(3 * time.Hour)
			})
			require.Equal(t, c.fixed, runsOf(t, seen, "fixed", berlin))
			require.Equal(t, c.every, runsOf(t, seen, "every", berlin))
		})
	}
}

// TestAnOutageOfFiveMinutes: of a timer of every minute, once delivers one of the missed runs, skip none and all five. What was missed is told.
func TestAnOutageOfFiveMinutes(t *testing.T) {
	begin := time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)
	seen := quietly(t, begin, dispatcher.Config{MisfireAfter: 15 * time.Second}, func(w *world) {
		time.Sleep(10 * time.Second)
		for _, policy := range []string{"once", "skip", "all"} {
			w.setTimer(policy, schemas.HeaderCron, "* * * * *", schemas.HeaderMisfire, policy)
		}
		time.Sleep(80 * time.Second) // 12:01 is delivered
		w.node("dispatcher-0").kill()
		time.Sleep(5 * time.Minute)
		w.node("dispatcher-0").start() // at 12:06:30
		time.Sleep(60 * time.Second)
	})
	first, next := "01-01 12:01 +00", "01-01 12:07 +00"
	require.Equal(t, []string{first, "01-01 12:06 +00 late", next}, runsOf(t, seen, "once", time.UTC))
	require.Equal(t, []string{first, next}, runsOf(t, seen, "skip", time.UTC))
	var all []string
	for minute := 2; minute <= 6; minute++ {
		all = append(all, fmt.Sprintf("01-01 12:%02d +00 late", minute))
	}
	require.Equal(t, append(append([]string{first}, all...), next), runsOf(t, seen, "all", time.UTC))
	missed := map[string]int{}
	for _, a := range seen {
		if a.r.Topic == schemas.TopicResults {
			e, err := schemas.DecodeEvent(a.r)
			require.NoError(t, err)
			if e.State == schemas.StateDead {
				require.Equal(t, schemas.KindMissed, e.Kind)
				id, _, _ := strings.Cut(e.ID, "@")
				missed[id]++
			}
		}
	}
	require.Equal(t, map[string]int{"once": 4, "skip": 5}, missed)
}

func (w *world) node(name string) *node {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	panic("there is no " + name)
}
