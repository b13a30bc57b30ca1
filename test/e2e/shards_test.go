package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/proxy"
	"github.com/notyet/notyet/test/mysqltest"
	"github.com/notyet/notyet/test/recordtest"
)

// withSecond has the processes that are spawned from now on work on a second database, and reach it through a proxy.
func (c *cluster) withSecond() *proxy.Proxy {
	p, dsn := c.another()
	c.adds(dsn)
	return p
}

// another makes a database behind a proxy.
func (c *cluster) another() (*proxy.Proxy, string) {
	cfg, err := mysql.ParseDSN(mysqltest.Fresh(c.t))
	require.NoError(c.t, err)
	p, err := proxy.Start(cfg.Addr)
	require.NoError(c.t, err)
	c.t.Cleanup(p.Close)
	cfg.Addr = p.Addr()
	return p, cfg.FormatDSN()
}

// TestTwoDatabases: half of the targets live in a second database, which does not answer for a while, and a scanner and a dispatcher are
// killed. Nothing is lost or early, extra copies are of tasks that the killed dispatcher had in doubt, and the other half arrives meanwhile.
func TestTwoDatabases(t *testing.T) {
	c := oneDatabase(t, usualSlots)
	second := c.withSecond()
	n := clusterTasks(t, 9_000)
	span := max(time.Duration(n)*time.Minute/100_000, 30*time.Second)
	own, moved := []string{c.name + ".a", c.name + ".b"}, []string{c.name + ".c", c.name + ".d"}
	targets := slices.Concat(own, moved)
	c.judging(4, targets...)
	c.tries(0, "shards", "move", c.name+".c", "1")
	scanner := c.spawn("scanner1", "scanner")
	c.spawn("scanner2", "scanner")
	dispatcher := c.spawn("dispatcher1", "dispatcher")
	c.spawn("dispatcher2", "dispatcher")
	c.warm()
	c.tries(0, "shards", "move", c.name+".d", "1") // while they work
	head := 3*time.Second + time.Duration(n)*100*time.Microsecond
	begin := time.Now()
	var frozen, thawed, killed int64
	var faults sync.WaitGroup
	faults.Go(func() {
		at := func(part float64) {
			time.Sleep(time.Until(begin.Add(head + time.Duration(part*float64(span)))))
		}
		at(-0.05)
		scanner.kill()
		at(0.2)
		frozen = time.Now().UnixMilli()
		second.Freeze(proxy.Both)
		at(0.5)
		thawed = time.Now().UnixMilli()
		second.Freeze(0)
		c.spawn("scanner1", "scanner")
		at(0.7)
		killed = time.Now().UnixMilli()
		dispatcher.kill()
	})
	wants := c.load(targets, n, head, span)
	c.collect(targets, wants, span+90*time.Second, 3*time.Second)
	faults.Wait()
	require.Zero(t, measure(t, wants).early)
	inTime, unexplained := 0, 0
	for _, w := range wants {
		if half := (frozen + thawed) / 2; slices.Contains(own, w.target) && w.due > frozen && w.due < half && w.copies[0].at < thawed {
			inTime++
		}
		// Many arrive long after they are due, because the database did not answer and a scanner was killed.
		first := slices.MinFunc(w.copies, func(a, b arrival) int { return int(a.at - b.at) }).at
		if len(w.copies) > 1 && (first < killed-3000 || first > killed+1000) {
			unexplained++
		}
	}
	require.Greater(t, inTime, n/2*15/100/2, "tasks of the database that answers") // half of those due in the first half of the freeze
	require.Zero(t, unexplained, "extra copies far from the kill")
}

// wait waits for a process that ends by itself, and reports whether it succeeded.
func (p *proc) wait() bool {
	err := <-p.done
	p.done <- nil
	return err == nil
}

// TestTasksFollowTheirTargets: targets move to and fro between two databases while their tasks are delivered, reported on, retried and
// cancelled, and movers and a scanner are killed. Nothing is lost, early or sent twice, and each request has one answer.
func TestTasksFollowTheirTargets(t *testing.T) {
	c := oneDatabase(t, usualSlots)
	c.withSecond()
	n := clusterTasks(t, 6_000)
	span := max(time.Duration(n)*time.Minute/100_000, 40*time.Second)
	plain, reported, cancelled := c.name+".f.plain", c.name+".f.reported", c.name+".f.cancelled"
	c.judging(4, plain, reported, cancelled)
	scanner := c.spawn("scanner1", "scanner")
	c.spawn("scanner2", "scanner")
	c.spawn("dispatcher1", "dispatcher")
	c.spawn("dispatcher2", "dispatcher")
	c.warm()
	const some = 200
	head := 3*time.Second + time.Duration(n)*100*time.Microsecond
	begin := time.Now().Add(head)
	for i := range some {
		id := strconv.Itoa(i)
		at := strconv.FormatInt(begin.Add(time.Duration(i)*span/some).UnixMilli(), 10)
		c.publish(
			keyed(request(c.intake, reported, schemas.HeaderID, id, schemas.HeaderAt, at, schemas.HeaderAck, "report", schemas.HeaderAckTimeout, "2m", schemas.HeaderBackoff, "fixed:3s", schemas.HeaderEvents, "all"), id, "v"),
			keyed(request(c.intake, cancelled, schemas.HeaderID, id, schemas.HeaderDelay, "1h", schemas.HeaderEvents, "all"), id, "v"))
	}
	var work sync.WaitGroup
	moves, killed := 0, 0
	work.Go(func() {
		for to := 1; time.Since(begin) < span || moves < 3; {
			mover := c.spawn("mover", "shards", "move", c.name+".f.*", strconv.Itoa(to), "--wait")
			if moves > 2*killed {
				time.Sleep(time.Duration(200+rand.IntN(600)) * time.Millisecond)
				mover.kill()
				killed++
			} else if mover.wait() {
				moves, to = moves+1, 1-to
			} else { // after a kill: the announcement is taken back soon
				time.Sleep(500 * time.Millisecond)
			}
		}
	})
	work.Go(func() {
		for i := range some {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * span / some)))
			id := strconv.Itoa(i)
			c.publish(keyed(request(c.intake, cancelled, schemas.HeaderOp, "cancel", schemas.HeaderID, id), id, ""))
			if i == some/2 {
				scanner.kill()
				c.spawn("scanner1", "scanner")
			}
		}
	})
	answers, attempts := map[string]int{}, map[string]int{}
	work.Go(func() {
		ended, told := 0, map[string]bool{}
		c.read(c.reader([]string{reported, c.results}), span+2*time.Minute, func(r *kgo.Record) bool {
			if r.Topic == c.results {
				e, err := schemas.DecodeEvent(r)
				if err == nil && (e.Topic == reported || e.Topic == cancelled) {
					of := e.Topic + "/" + e.ID + " " + string(e.State)
					copied := fmt.Sprint(of, e.At, e.Request)
					if told[copied] { // by a killed scanner
						return false
					}
					told[copied] = true
					answers[of]++
					if e.State.Final() {
						ended++
					}
				}
				return ended == 2*some
			}
			d, _, err := schemas.ParseDelivery(r)
			if err != nil {
				t.Error(err)
				return true
			}
			attempts[d.ID+" "+recordtest.Header(r, schemas.HeaderAttempt)]++
			status := schemas.StatusRetry
			if d.Attempt > 1 {
				status = schemas.StatusOK
			}
			c.publish(schemas.EncodeReport(c.reports, schemas.Report{Topic: reported, ID: d.ID, Attempt: d.Attempt, Delivery: d.Key, Status: status, RetryAfter: -1}))
			return false
		})
	})
	wants := c.load([]string{plain}, n, time.Until(begin), span)
	c.collect([]string{plain}, wants, span+120*time.Second, 3*time.Second)
	work.Wait()
	f := measure(t, wants)
	t.Log(moves, "moves,", killed, "movers killed")
	require.Greater(t, moves, 2)
	require.Zero(t, f.early)
	require.Zero(t, f.doubled)
	for i := range some {
		id := strconv.Itoa(i)
		for _, of := range []string{reported + "/" + id + " scheduled", reported + "/" + id + " retrying", reported + "/" + id + " succeeded", cancelled + "/" + id + " scheduled", cancelled + "/" + id + " cancelled"} {
			require.Equal(t, 1, answers[of], of)
		}
		require.Equal(t, []int{1, 1}, []int{attempts[id+" 1"], attempts[id+" 2"]}, id)
	}
	require.Len(t, attempts, 2*some)
	require.Empty(t, c.arrivals(cancelled))
}

// tries has a command succeed in the end, which is killed a few times. A busy machine takes a move back, too.
func (c *cluster) tries(kills int, args ...string) {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); kills-- {
		p := c.spawn("mover", args...)
		if kills > 0 {
			time.Sleep(time.Duration(100+rand.IntN(1500)) * time.Millisecond)
			p.kill()
		} else if p.wait() {
			return
		}
		time.Sleep(500 * time.Millisecond) // the announcement is taken back soon
	}
	c.t.Error(args, "did not succeed in the end")
}

// TestAThirdDatabaseUnderLoad: a third database joins while tasks fall due, targets move there and back, and it is drained and removed.
// Movers, drainers, a scanner and a dispatcher are killed, and the database is away during a move. Nothing is lost or early, and extra
// copies are of tasks that the killed dispatcher had in doubt.
func TestAThirdDatabaseUnderLoad(t *testing.T) {
	c := oneDatabase(t, usualSlots)
	c.withSecond()
	n := clusterTasks(t, 12_000)
	span := max(time.Duration(n)*time.Minute/100_000, 2*time.Minute)
	stay, move := []string{c.name + ".a", c.name + ".b"}, []string{c.name + ".c", c.name + ".d"}
	targets := slices.Concat(stay, move)
	c.judging(4, targets...)
	c.tries(0, "shards", "move", stay[1], "1")
	c.tries(0, "shards", "move", move[1], "1")
	services := []*proc{}
	for _, role := range []string{"scanner", "dispatcher"} {
		services = append(services, c.spawn(role+"1", role), c.spawn(role+"2", role))
	}
	c.warm()
	head := 3*time.Second + time.Duration(n)*100*time.Microsecond
	begin := time.Now().Add(head)
	wants := c.load(targets, n, head, span)
	time.Sleep(time.Until(begin.Add(span / 10)))
	calm := time.Now()

	third, dsn := c.another()
	number := c.knows(dsn)
	for i, p := range services {
		p.stop()
		services[i] = c.spawn(p.name, strings.TrimRight(p.name, "12"))
	}
	c.notyet("shards", "add", number)
	c.warm()
	clean := time.Now()
	for _, target := range move {
		c.tries(0, "shards", "move", target, "2", "--wait")
	}
	moved := time.Now()

	c.tries(3, "shards", "move", move[0], "0", "--wait")
	third.Freeze(proxy.Both)
	away := c.spawn("mover", "shards", "move", move[0], "2", "--wait")
	time.Sleep(4 * time.Second)
	third.Freeze(0)
	away.wait()
	services[0].kill()
	services[0] = c.spawn("scanner1", "scanner")
	c.tries(1, "shards", "move", move[0], "2", "--wait")
	killed := time.Now().UnixMilli()
	services[2].kill()
	services[2] = c.spawn("dispatcher1", "dispatcher")
	c.tries(3, "shards", "drain", "2", "--wait")
	c.tries(0, "shards", "remove", "2", "--forget-history")
	over := time.Now()
	c.collect(targets, wants, max(time.Until(begin.Add(span)), 0)+2*time.Minute, 3*time.Second)
	require.Zero(t, measure(t, wants).early)
	unexplained := 0
	for _, w := range wants {
		first := slices.MinFunc(w.copies, func(a, b arrival) int { return int(a.at - b.at) }).at
		if len(w.copies) > 1 && !claimedAtAny([]int64{killed}, w.due, first) {
			unexplained++
		}
	}
	require.Zero(t, unexplained, "extra copies far from the kill")
	t.Logf("the database was removed %v before the load ended", begin.Add(span).Sub(over))
	for _, of := range []struct {
		what     string
		targets  []string
		from, to time.Time
	}{{"calm, all", targets, begin, calm}, {"moves, those that stay", stay, clean, moved}, {"moves, those that move", move, clean, moved}} {
		late := hdrhistogram.New(1, 10*60*1000, 3)
		for _, w := range wants {
			if slices.Contains(of.targets, w.target) && w.due >= of.from.UnixMilli() && w.due < of.to.UnixMilli() {
				require.NoError(t, late.RecordValue(max(w.copies[0].at-w.due, 0)))
			}
		}
		t.Logf("%s: %d tasks, lateness ms p50 %d p99 %d max %d", of.what, late.TotalCount(), late.ValueAtQuantile(50), late.ValueAtQuantile(99), late.Max())
	}
}
