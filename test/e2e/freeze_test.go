package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/proxy"
	"github.com/notyet/notyet/test/recordtest"
)

// freeze is how long the database does not answer: longer than a scanner that stops waits for it.
const freeze = 7 * time.Second

// TestStoppedScannerLosesNothingWhileTheDatabaseIsFrozen: a scanner gets SIGTERM while the database does not answer, with requests
// before and during it. Each acknowledged request is delivered once. LONG=1 makes 20 rounds of it.
//
// The database stands behind a proxy that holds its bytes back: the questions, the answers, or both. What was asked is done once
// the freeze is over, as by a database that was frozen itself, though whoever asked is gone.
func TestStoppedScannerLosesNothingWhileTheDatabaseIsFrozen(t *testing.T) {
	rounds := 2
	if os.Getenv("LONG") != "" {
		rounds = 20
	}
	c := newCluster(t)
	database := c.behindProxy()
	target := c.name + ".target"
	c.topics(2, target)
	c.spawn("dispatcher", "dispatcher")
	scanner := c.spawn("scanner", "scanner")
	c.warm()
	sent := map[string]int{}
	burst := func(round int, part string, n int) {
		var records []*kgo.Record
		for i := range n {
			id := fmt.Sprintf("%d-%s-%d", round, part, i)
			delay := fmt.Sprintf("%dms", rand.IntN(12_000))
			r := request(c.intake, target, schemas.HeaderDelay, delay, schemas.HeaderID, id, schemas.HeaderEvents, "none")
			r.Partition = int32(rand.IntN(2)) // few, so that bursts meet on a partition
			records = append(records, r)
			sent[id] = 0
		}
		c.publishTo(records...)
	}
	stops, stopped := 0, time.Duration(0)
	for round := range rounds {
		burst(round, "before", 200)
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		database.Freeze([]proxy.Direction{proxy.Both, proxy.ToServer, proxy.ToClient}[round%3])
		thawed := make(chan struct{})
		time.AfterFunc(freeze, func() { database.Freeze(0); close(thawed) })
		burst(round, "first", 100)
		time.Sleep(time.Duration(500+rand.IntN(1500)) * time.Millisecond)
		burst(round, "second", 50)
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond)
		require.NoError(t, scanner.cmd.Process.Signal(syscall.SIGTERM)) // once: a second would stop it at once
		asked := time.Now()
		burst(round, "after", 20)
		select {
		case err := <-scanner.done:
			scanner.done <- nil
			require.NoError(t, err)
		case <-time.After(2 * time.Minute):
			require.Fail(t, "the scanner did not stop within two minutes")
		}
		stopped = max(stopped, time.Since(asked))
		stops++
		if round%2 == 0 { // the next begins at once, or after what was asked before has been done
			<-thawed
			time.Sleep(time.Second)
		}
		scanner = c.spawn("scanner", "scanner")
		scanner.said("INFO\tstarted") // what is interrupted before it has started says so with exit code 1
		<-thawed
	}
	missing := len(sent)
	reader := c.reader([]string{target})
	take := func(r *kgo.Record) bool {
		id := recordtest.Header(r, schemas.HeaderID)
		n, ours := sent[id]
		require.True(t, ours, "a phantom: %s", id)
		if sent[id]++; n == 0 {
			missing--
		}
		return missing == 0
	}
	c.read(reader, 3*time.Minute, take)
	c.publishTo(request(c.intake, target, schemas.HeaderDelay, "2s", schemas.HeaderID, "last")) // what is second to come is before it
	c.read(reader, time.Minute, func(r *kgo.Record) bool { return recordtest.Header(r, schemas.HeaderID) == "last" || take(r) && false })
	var copies []string
	for id, n := range sent {
		if n > 1 {
			copies = append(copies, id)
		}
	}
	slices.Sort(copies)
	t.Logf("%d stops in freezes of %v: %d requests, lost 0, copies %d, the longest stop took %v", stops, freeze, len(sent), len(copies), stopped.Round(time.Millisecond))
	require.Empty(t, copies, "delivered more than once")
}

// behindProxy has the processes that are spawned from now on reach the database through a proxy.
func (c *cluster) behindProxy() *proxy.Proxy {
	cfg, err := mysql.ParseDSN(c.dsn)
	require.NoError(c.t, err)
	p, err := proxy.Start(cfg.Addr)
	require.NoError(c.t, err)
	c.t.Cleanup(p.Close)
	cfg.Addr = p.Addr()
	for i, kv := range c.env {
		if strings.HasPrefix(kv, "NOTYET_MYSQL_DSN=") {
			c.env[i] = "NOTYET_MYSQL_DSN=" + cfg.FormatDSN()
		}
	}
	return p
}
