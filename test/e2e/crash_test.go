package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
)

// crash is one fault point and what happens there. Each runs on an installation of its own, in the
// middle of its work.
type crash struct {
	point string
	in    string   // the process that passes it: scanner or dispatcher; replay: the command
	dies  string   // the fault by which it dies there
	lives []string // those that it goes on after, in the order in which they happen
	stop  bool     // it is passed while the process stops
	// copies is how many second copies of lives may appear. A death may only duplicate what a
	// dispatcher was sending.
	copies int
}

// crashes has every place. The passings are chosen so that work is in progress, and early enough
// for a machine so slow that all work is done in one batch.
var crashes = []crash{
	{point: faultpoint.ScannerReport, in: "scanner", dies: "kill@1", lives: []string{"stall:500ms@1"}},
	{point: faultpoint.ScannerPolled, in: "scanner", dies: "kill@2", lives: []string{"error@2x2", "stall:500ms@4"}},
	{point: faultpoint.StoreReplacing, in: "scanner", dies: "kill@1", lives: []string{"error@1x2", "stall:300ms@3"}},
	{point: faultpoint.StoreBuried, in: "dispatcher", dies: "kill@1", lives: []string{"error@1", "stall:300ms@2"}},
	{point: faultpoint.ScannerStored, in: "scanner", dies: "kill@2", lives: []string{"error@2", "stall:500ms@3"}},
	{point: faultpoint.ScannerRemoving, in: "scanner", dies: "kill@1", lives: []string{"error@1", "stall:500ms@2"}},
	{point: faultpoint.ScannerIndexed, in: "scanner", dies: "kill@2", lives: []string{"error@1", "stall:500ms@2"}},
	{point: faultpoint.DispatcherAcquired, in: "dispatcher", dies: "kill@1", lives: []string{"error@1x2", "stall:500ms@3"}},
	{point: faultpoint.DispatcherDrained, in: "dispatcher", dies: "kill@1", lives: []string{"error@1", "stall:500ms@2"}, stop: true},
	{point: faultpoint.StoreMaking, in: "dispatcher", dies: "kill@1", lives: []string{"error@1x2", "stall:300ms@3"}},
	{point: faultpoint.DispatcherMade, in: "dispatcher", dies: "kill@1", lives: []string{"error@1", "stall:300ms@2"}},
	{point: faultpoint.DispatcherWindow, in: "dispatcher", dies: "kill@3", lives: []string{"error@2", "stall:500ms@3"}},
	{point: faultpoint.DispatcherClaimed, in: "dispatcher", dies: "kill@2", lives: []string{"error@1x2", "stall:500ms@3"}},
	{point: faultpoint.DispatcherLogged, in: "dispatcher", dies: "kill@2", lives: []string{"error@1x2", "stall:500ms@3"}},
	{point: faultpoint.DispatcherTrusted, in: "dispatcher", dies: "kill@8", lives: []string{"error@6x2", "stall:500ms@10"}},
	{point: faultpoint.DispatcherSent, in: "dispatcher", dies: "kill@8", lives: []string{"error@6x2", "stall:500ms@10"}, copies: 2},
	{point: faultpoint.DispatcherAcknowledged, in: "dispatcher", dies: "kill@2", lives: []string{"error@1x2", "stall:500ms@3"}},
	{point: faultpoint.DispatcherNoted, in: "dispatcher", dies: "kill@2", lives: []string{"error@1x2", "stall:500ms@3"}},
	{point: faultpoint.DispatcherSettled, in: "dispatcher", dies: "kill@2", lives: []string{"error@1x3", "stall:500ms@4"}},
	{point: faultpoint.DispatcherMarked, in: "dispatcher", dies: "kill@2", lives: []string{"error@1", "stall:400ms@2"}},
	{point: faultpoint.DispatcherUnreported, in: "dispatcher", dies: "kill@2", lives: []string{"stall:500ms@2"}},
	{point: faultpoint.StoreReplaying, in: "replay", dies: "kill@1", lives: []string{"error@1", "stall:300ms@2"}},
	{point: faultpoint.DeadletterReplayed, in: "replay", dies: "kill@1", lives: []string{"error@1", "stall:300ms@2"}},
}

// TestCrashPoints makes a process die at each place; in other installations it makes the place
// fail, and stall. Afterwards nothing is lost, early, outdated, delivered though cancelled, or a
// dead letter twice. Copies carry one key and belong to tasks that were being sent. Every task is
// in its right state, and the index holds what is pending.
func TestCrashPoints(t *testing.T) {
	binary := buildFaulty(t)
	// Most of each test's time is spent waiting for sessions to expire.
	room := make(chan struct{}, 8)
	var all sync.WaitGroup
	defer all.Wait()
	real := os.Getenv("NOTYET_KAFKA_BROKERS") != ""
	for _, kind := range []string{"real", "embedded"} {
		if kind == "real" && !real {
			t.Run(kind, func(t *testing.T) {
				t.Skip("NOTYET_KAFKA_BROKERS is not set: run scripts/servers up and evaluate scripts/servers env")
			})
			continue
		}
		for i, c := range crashes {
			for _, how := range []string{"dies", "lives"} {
				if os.Getenv("NOTYET_LONG") == "" && (i%4 != 0 || (kind == "real") != real || (how == "dies") != real) {
					continue // the long tests have all places, in all four ways
				}
				room <- struct{}{}
				all.Go(func() {
					release := sync.OnceFunc(func() { <-room })
					defer release()
					t.Run(kind+"/"+c.point+"/"+how, func(t *testing.T) {
						w := newWorld(t, binary, kind == "real")
						c.happen(w, how == "dies", release)
					})
				})
			}
		}
	}
}

func (c crash) happen(w *world, dies bool, release func()) {
	faults := c.lives
	if dies {
		faults = []string{c.dies}
	} else { // a busy machine must not end a session
		w.env = append(w.env, "NOTYET_ZOOKEEPER_SESSION_TIMEOUT=20s")
	}
	k := newWork(w, c.in == "replay")
	armed := c.start(w, faults)
	if c.stop && w.real { // on a busy machine, an election takes seconds: who owns nothing drains nothing
		require.Eventually(w.t, func() bool {
			slots, err := w.database().Slots(w.t.Context())
			return err == nil && !slices.ContainsFunc(slots, func(s store.Slot) bool { return s.Owner != "dispatcher" })
		}, time.Minute, 20*time.Millisecond, "the dispatcher owns its slots")
	}
	begin := time.Now().Add(3 * time.Second)
	k.plan(begin.UnixMilli())
	published := k.perform()
	switch {
	case c.in == "replay":
		k.replay(c, faults, armed)
	case c.stop:
		<-time.After(time.Until(begin.Add(1500 * time.Millisecond)))
		if dies {
			armed.signal(syscall.SIGTERM)
			armed.died()
		} else {
			armed.stop()
		}
		k.noteClosed() // a target that is slow to answer may leave more than the drain waits for
		armed.struck(c.point, faults)
		w.serve(c.in, "", nil)
	case dies:
		if c.in == "scanner" {
			select {
			case <-published: // a slow machine may have had all of its work in one batch
				k.replaceUntil(armed.isDead)
			case err := <-armed.done:
				armed.done <- err
			}
		}
		armed.died()
		k.noteClosed()
		armed.struck(c.point, faults)
		w.serve(c.in, "", nil)
	default:
		if c.in == "scanner" { // a slow machine may have had all of its work in one batch
			<-published
			k.replaceUntil(func() bool { return armed.hasStruck(c.point, faults) })
		}
		if c.point == faultpoint.DispatcherMade { // it may have made all runs at once
			<-published
			k.tickUntil(func() bool { return armed.hasStruck(c.point, faults) })
		}
		armed.struck(c.point, faults)
	}
	<-published
	k.settle()
	release() // only the index is waited for from here
	c.judgeCopies(k, k.judge())
	if w.real {
		drift := "nobody looked"
		for deadline := time.Now().Add(100 * time.Second); drift != "" && time.Now().Before(deadline); <-time.After(time.Second) {
			drift = w.drifted()
		}
		require.Empty(w.t, drift)
	}
}

// start starts the processes with the place armed in one of them, and returns that one.
func (c crash) start(w *world, faults []string) (armed *proc) {
	if !w.real {
		return w.serve("dev", c.point, faults)
	}
	for _, name := range []string{"scanner", "dispatcher"} {
		if name == c.in {
			armed = w.serve(name, c.point, faults)
		} else {
			w.serve(name, "", nil)
		}
	}
	return armed
}

// judgeCopies: a death leaves tasks in doubt that were not closed then. A fault that the process
// survives causes only the copies that it is allowed to.
func (c crash) judgeCopies(k *work, extra []seen) {
	switch {
	case k.closed == nil:
		require.LessOrEqual(k.t, len(extra), c.copies, "copies without a cause: %v", extra)
	case k.real && c.in != "dispatcher":
		require.Empty(k.t, extra, "the dispatcher did not die")
	default:
		for _, s := range extra {
			v := k.closed[s.ID]
			require.Negative(k.t, cmp.Or(cmp.Compare(v.Replay, s.Replay), cmp.Compare(v.Attempt, s.Attempt)), "closed with %d attempts when it died, and copied: %v", v.Attempt, s)
		}
	}
}

// replay replays the dead letters, again and again until it succeeds, while faults happen to the
// command itself, or to the dev that it asks.
func (k *work) replay(c crash, faults []string, dev *proc) {
	type letter struct{ ID int64 }
	var letters []letter
	args := []string{"deadletter", "list", "--reason", "permanent failure", "--json"}
	require.Eventually(k.t, func() bool {
		out, err := k.command(args...)
		return err == nil && json.Unmarshal(out, &letters) == nil && len(letters) == 2
	}, time.Minute, 100*time.Millisecond)
	args = []string{"deadletter", "replay"}
	for _, l := range letters {
		args = append(args, strconv.FormatInt(l.ID, 10))
	}
	for _, f := range faults {
		if k.real { // each run counts its passings anew
			f, _, _ = strings.Cut(f, "@")
			dev = k.run("replay", c.point, []string{f}, args...)
			err := <-dev.done
			dev.done <- nil
			require.Equal(k.t, !strings.HasPrefix(f, "stall") || c.point == faultpoint.DeadletterReplayed, err != nil, "%s: %v", f, err)
			if f == c.dies {
				k.noteClosed()
			}
		} else {
			_, _ = k.command(args...)
			if f == c.dies {
				dev.died()
				k.noteClosed()
				k.serve("dev", "", nil)
			}
		}
		dev.struck(c.point, []string{f})
	}
	require.Eventually(k.t, func() bool {
		_, _ = k.command(args...)
		out, err := k.command("deadletter", "list", "--reason", "permanent failure", "--json")
		return err == nil && strings.TrimSpace(string(out)) == "[]"
	}, time.Minute, 100*time.Millisecond)
}

// command runs the program as a person does, and returns what it printed.
func (w *world) command(args ...string) ([]byte, error) {
	cmd := exec.Command(w.binary, args...)
	cmd.Env = w.env
	if !w.real { // by asking dev
		cmd.Env = append(slices.Clone(w.env), "NOTYET_MYSQL_DSN=")
	}
	return cmd.Output()
}

// TestPausedBeforeSending: an owner is paused between its check of the election and the send. When
// it continues, all its slots have another owner. What it sends then are copies, and it does
// nothing else.
func TestPausedBeforeSending(t *testing.T) {
	if os.Getenv("NOTYET_KAFKA_BROKERS") == "" {
		t.Skip("NOTYET_KAFKA_BROKERS is not set: run scripts/servers up and evaluate scripts/servers env")
	}
	w := newWorld(t, buildFaulty(t), true)
	k := newWork(w, false)
	w.serve("scanner", "", nil)
	point, faults := faultpoint.DispatcherTrusted, []string{"stall:1s@8"}
	paused := w.serve("dispatcher1", point, faults)
	k.plan(time.Now().Add(3 * time.Second).UnixMilli())
	published := k.perform()
	paused.struck(point, faults)
	paused.signal(syscall.SIGSTOP)
	stopped := time.Now().UnixMilli()
	w.serve("dispatcher2", "", nil)
	require.Eventually(t, func() bool {
		slots, err := w.store.Slots(t.Context())
		return err == nil && !slices.ContainsFunc(slots, func(s store.Slot) bool { return s.Owner != "dispatcher2" })
	}, time.Minute, 20*time.Millisecond)
	<-published
	require.Eventually(t, func() bool { // what it has at hand has been sent by the other
		k.mu.Lock()
		defer k.mu.Unlock()
		return slices.ContainsFunc(k.seen, func(s seen) bool { return s.ID == "plain-29" })
	}, time.Minute, 20*time.Millisecond)
	paused.signal(syscall.SIGCONT)
	k.settle()
	paused.said(`abandoning a slot`)
	extra := k.judge()
	require.NotEmpty(t, extra, "it was to send what it had at hand")
	for _, s := range extra {
		require.Less(t, s.Due, stopped+1000, "it sent what it cannot have had at hand: %v", s)
	}
}

// TestKilledUnderLoad kills notyet dev again and again while it accepts and delivers tasks: nothing
// accepted is lost, nothing is early. NOTYET_KILL_ROUNDS sets how often; published figures use 50.
func TestKilledUnderLoad(t *testing.T) {
	rounds := 5
	if v := os.Getenv("NOTYET_KILL_ROUNDS"); v != "" {
		var err error
		rounds, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	w := newWorld(t, buildFaulty(t), false)
	var mu sync.Mutex
	accepted := map[string]bool{}
	for round := range rounds {
		p := w.serve("dev", "", nil)
		p.said("is ready")
		client, err := kafka.NewProducer(w.kafka, w.log)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var load sync.WaitGroup
		load.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("%d-%d", round, i)
				r := keyed(request(w.intake, "load", schemas.HeaderID, id, schemas.HeaderDelay, fmt.Sprintf("%dms", rand.IntN(1500))), id, "v")
				client.Produce(ctx, r, func(_ *kgo.Record, err error) {
					if err == nil {
						mu.Lock()
						accepted[id] = true
						mu.Unlock()
					}
				})
				if i%10 == 0 {
					time.Sleep(5 * time.Millisecond) // some 2000 a second
				}
			}
		})
		mu.Lock()
		enough := len(accepted) + 400 + rand.IntN(2600)
		mu.Unlock()
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(accepted) >= enough
		}, time.Minute, time.Millisecond, "it accepts tasks")
		p.kill()
		stop()
		load.Wait()
		client.Close()
	}
	w.serve("dev", "", nil)
	keys, copies := map[string]string{}, 0
	missing := maps.Clone(accepted)
	w.read(w.reader([]string{"load"}), 2*time.Minute, func(r *kgo.Record) bool {
		d, _, err := schemas.ParseDelivery(r)
		require.NoError(t, err)
		require.GreaterOrEqual(t, r.Timestamp.UnixMilli(), d.Due, "early: %s", d.ID)
		if key, ok := keys[d.ID]; ok {
			require.Equal(t, key, d.Key, "copies of one delivery must carry one key: %s", d.ID)
			copies++
		}
		keys[d.ID] = d.Key
		delete(missing, d.ID)
		return len(missing) == 0
	})
	require.Greater(t, len(accepted), 100*rounds)
	t.Logf("killed %d times: accepted %d, lost 0, early 0, copies %d", rounds, len(accepted), copies)
}

// TestCrashTable: each place of the crash table is tested.
func TestCrashTable(t *testing.T) {
	require.Len(t, crashes, len(faultpoint.Rows))
	for i, row := range faultpoint.Rows {
		require.Equal(t, row.Name, crashes[i].point, "in the same order")
	}
}

// TestUnknownPlaces: a misspelt place must be an error.
func TestUnknownPlaces(t *testing.T) {
	binary := buildFaulty(t)
	for _, faults := range []string{"scanner.poled=kill", "scanner.polled=die", "scanner.polled=stall", "scanner.polled=kill@0", "scanner.polled=kill:1s"} {
		cmd := exec.Command(binary, "version")
		cmd.Env = append(os.Environ(), "NOTYET_FAULTPOINTS="+faults)
		out, err := cmd.CombinedOutput()
		require.ErrorContains(t, err, "exit status 2", "%s", faults)
		require.Contains(t, string(out), "NOTYET_FAULTPOINTS: ")
	}
}
