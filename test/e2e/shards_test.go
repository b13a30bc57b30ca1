package e2e

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/chaos/proxy"
	"github.com/notyet/notyet/test/mysqltest"
)

// withSecond has the processes that are spawned from now on work on two databases, and reach the second one through a proxy.
func (c *cluster) withSecond() *proxy.Proxy {
	cfg, err := mysql.ParseDSN(mysqltest.Fresh(c.t))
	require.NoError(c.t, err)
	p, err := proxy.Start(cfg.Addr)
	require.NoError(c.t, err)
	c.t.Cleanup(p.Close)
	cfg.Addr = p.Addr()
	c.env = slices.DeleteFunc(c.env, func(kv string) bool { return strings.HasPrefix(kv, "NOTYET_MYSQL_DSN=") })
	c.env = append(c.env, "NOTYET_MYSQL_SHARDS="+c.dsn+","+cfg.FormatDSN())
	c.notyet("shards", "add", "1")
	return p
}

// TestTwoDatabases: half of the targets live in a second database, which does not answer for a while, and a scanner and a dispatcher are
// killed. Nothing is lost or early, extra copies are of tasks that the killed dispatcher had in doubt, and the other half arrives meanwhile.
func TestTwoDatabases(t *testing.T) {
	c := newCluster(t)
	second := c.withSecond()
	n := clusterTasks(t, 9_000)
	span := max(time.Duration(n)*time.Minute/100_000, 30*time.Second)
	own, moved := []string{c.name + ".a", c.name + ".b"}, []string{c.name + ".c", c.name + ".d"}
	targets := slices.Concat(own, moved)
	c.judging(4, targets...)
	c.notyet("shards", "move", c.name+".c", "1")
	scanner := c.spawn("scanner1", "scanner")
	c.spawn("scanner2", "scanner")
	dispatcher := c.spawn("dispatcher1", "dispatcher")
	c.spawn("dispatcher2", "dispatcher")
	c.warm()
	c.notyet("shards", "move", c.name+".d", "1") // while they work
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
		if len(w.copies) > 1 && (w.due < killed-2000 || w.due > killed+1000) {
			unexplained++
		}
	}
	require.Greater(t, inTime, n/2*15/100/2, "tasks of the database that answers") // half of those due in the first half of the freeze
	require.Zero(t, unexplained, "extra copies far from the kill")
}
