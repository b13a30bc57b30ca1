package e2e

import (
	"bytes"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// TestTimersSurviveKills: a timer of every second on real servers, while a dispatcher or a scanner is killed with -9 every 10 s. Every second
// has its run, none is early, and second copies come only beside a kill, under the same delivery key. LONG=1 makes it 120 s.
func TestTimersSurviveKills(t *testing.T) {
	c := newCluster(t)
	seconds := 20
	if os.Getenv("LONG") != "" {
		seconds = 120
	}
	target := c.name + ".ticks"
	c.judging(1, target)
	procs := []*proc{c.spawn("dispatcher1", "dispatcher"), c.spawn("scanner1", "scanner"), c.spawn("dispatcher2", "dispatcher"), c.spawn("scanner2", "scanner")}
	c.warm()
	c.publish(keyed(request(c.intake, target, schemas.HeaderID, "t", schemas.HeaderOp, "timer", schemas.HeaderCron, "* * * * * *", schemas.HeaderMisfire, "all"), "k", "run"))
	begin := c.answers(map[string]schemas.State{"t": schemas.StateTimerSet})["t"].Due
	until := begin + int64(seconds)*1000

	var arrived atomic.Int64 // the due time of the latest run that has come
	comes := func(due int64) bool {
		over := func() bool { return t.Context().Err() != nil } // the test has failed
		return assert.Eventually(t, func() bool { return over() || arrived.Load() >= due }, 2*time.Minute, 20*time.Millisecond) && !over()
	}
	done := make(chan []int64, 1)
	go func() {
		var kills []int64
		defer func() { done <- kills }()
		for i, at := 0, begin+5000; at < until && comes(at); i, at = i+1, at+10_000 {
			p := procs[i%len(procs)]
			kills = append(kills, time.Now().UnixMilli())
			p.kill()
			if !comes(min(at+5000, until-1000)) { // without it
				return
			}
			p = c.spawn(p.name, p.cmd.Args[1])
			if procs[i%len(procs)] = p; !p.hasStarted() { // before that, a signal ends it without a word
				return
			}
		}
	}()
	runs := map[int64][]arrival{}
	c.read(c.reader([]string{target}), time.Duration(seconds)*time.Second+2*time.Minute, func(r *kgo.Record) bool {
		d, _, err := schemas.ParseDelivery(r)
		require.NoError(t, err)
		require.Equal(t, "t@"+strconv.FormatInt(d.Due, 10), d.ID)
		require.Equal(t, "t", d.Timer)
		require.GreaterOrEqual(t, r.Timestamp.UnixMilli(), d.Due, "early")
		runs[d.Due] = append(runs[d.Due], arrival{at: r.Timestamp.UnixMilli(), key: d.Key})
		arrived.Store(max(arrived.Load(), d.Due))
		for due := begin; due < until; due += 1000 {
			if len(runs[due]) == 0 {
				return false
			}
		}
		return true
	})
	kills := <-done
	require.NotEmpty(t, kills)
	late := int64(0)
	for due, copies := range runs {
		late = max(late, copies[0].at-due)
		for _, one := range copies[1:] {
			require.Equal(t, copies[0].key, one.key, "one run has one key")
		}
		require.True(t, len(copies) == 1 || claimedAtAny(kills, due, copies[0].at), "the run of %d came %d times, far from any kill", due, len(copies))
	}
	t.Logf("%d runs of %d s, %d kills, %d ms late at most", len(runs), seconds, len(kills), late)
}

// hasStarted waits until the process runs its services. Any goroutine may call it.
func (p *proc) hasStarted() bool {
	return assert.Eventually(p.t, func() bool {
		text, err := os.ReadFile(p.log)
		return err == nil && bytes.Contains(text, []byte("started"))
	}, time.Minute, 20*time.Millisecond, "%s did not start", p.name)
}
