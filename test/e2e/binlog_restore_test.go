package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/test/recordtest"
)

// setBack is an installation whose database is restored from a backup and the binary log after it.
type setBack struct {
	*cluster
	database            string
	target              string
	scanner, dispatcher *proc
	second              *proc             // a dispatcher whose send log is lost, if there is one
	wants               map[string]string // value by id, of what is to be delivered
	again               map[string]bool   // what was delivered, or fired, after the point in time
}

const (
	setBackEach = 10 // tasks of one kind
	older       = "the database is older than what its scanners have committed"
)

func (b *setBack) each(kind string, do func(id string)) {
	for i := range setBackEach {
		do(kind + "-" + strconv.Itoa(i))
	}
}

// ask publishes a request for each task of a kind.
func (b *setBack) ask(kind, value string, headers ...string) {
	b.t.Helper()
	var records []*kgo.Record
	b.each(kind, func(id string) {
		records = append(records, keyed(request(b.intake, b.target, append(headers, schemas.HeaderID, id)...), id, value))
		if value != "" {
			b.wants[id] = value
		}
	})
	b.publish(records...)
}

func (b *setBack) cancel(kind string) {
	b.ask(kind, "", schemas.HeaderOp, "cancel")
	b.each(kind, func(id string) { delete(b.wants, id) })
}

func (b *setBack) are(state string, kinds ...string) {
	b.t.Helper()
	for _, kind := range kinds {
		b.each(kind, func(id string) {
			is := func() bool {
				v, err := look.New(b.store).Get(b.t.Context(), b.target, id)
				return err == nil && v.State == state
			}
			if !is() {
				b.eventually(id+" is "+state, time.Minute, is)
			}
		})
	}
}

// stored counts the tasks of a kind in a database that services need not know.
func (b *setBack) stored(s *ownServer, kind string) int {
	b.t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s.client("", "mariadb", "-NB", "-e", fmt.Sprintf("SELECT COUNT(*) FROM %s.tasks WHERE id LIKE '%s-%%'", b.database, kind))))
	require.NoError(b.t, err)
	return n
}

// committed waits until the scanners' group has committed all that the intake has.
func (b *setBack) committed() {
	b.t.Helper()
	admin := kadm.NewClient(b.client)
	b.eventually("all is committed", time.Minute, func() bool {
		lag, err := admin.Lag(b.t.Context(), b.name)
		require.NoError(b.t, err)
		total := int64(0)
		for topic, parts := range lag[b.name].Lag {
			for _, part := range parts {
				if topic == b.intake {
					total += part.Lag
				}
			}
		}
		return len(lag[b.name].Lag[b.intake]) > 0 && total == 0
	})
}

// reconcile runs the command, and returns what it did, or its complaint.
func (b *setBack) reconcile(args ...string) (out deadletter.Reconciled, problem string) {
	cmd := exec.CommandContext(b.t.Context(), b.binary, append([]string{"deadletter", "reconcile", "--json"}, args...)...)
	var said strings.Builder
	cmd.Env, cmd.Stderr = b.env, &said
	text, err := cmd.Output()
	if err != nil {
		return out, said.String()
	}
	require.NoError(b.t, json.Unmarshal(text, &out))
	b.t.Logf("%s: %+v", b.database, out)
	return out, ""
}

func (b *setBack) start() {
	b.scanner, b.dispatcher = b.spawn("scanner", "scanner"), b.spawn("dispatcher", "dispatcher")
}

// arrived waits until each task was delivered once.
func (b *setBack) arrived() {
	b.t.Helper()
	seen := map[string]bool{}
	b.read(b.reader([]string{b.target}), 2*time.Minute, func(r *kgo.Record) bool {
		seen[recordtest.Header(r, schemas.HeaderID)] = true
		return len(seen) >= len(b.wants)
	})
}

// judge compares all deliveries with what was asked for. A copy has the key of the first, and comes
// only of what was sent after the point in time: so many of them, or -1.
func (b *setBack) judge(copies int) {
	b.t.Helper()
	all := map[string][]schemas.Delivery{}
	for _, r := range b.arrivals(b.target) {
		d, _, err := schemas.ParseDelivery(r)
		require.NoError(b.t, err)
		require.Contains(b.t, b.wants, d.ID, "it was cancelled")
		require.Equal(b.t, b.wants[d.ID], string(r.Value), d.ID)
		require.GreaterOrEqual(b.t, r.Timestamp.UnixMilli(), d.Due, "early: %s", d.ID)
		all[d.ID] = append(all[d.ID], d)
	}
	require.Len(b.t, all, len(b.wants), "lost")
	again := 0
	for id, of := range all {
		if b.again[strings.TrimRight(id, "-0123456789")] {
			require.LessOrEqual(b.t, len(of), 2, id)
			again += len(of) - 1
		} else {
			require.Len(b.t, of, 1, id)
		}
		for _, d := range of {
			require.Equal(b.t, of[0].Key, d.Key, id)
		}
	}
	b.t.Logf("%s: %d copies", b.database, again)
	if copies >= 0 {
		require.Equal(b.t, copies, again)
	}
}

// TestPointInTimeRestore: a backup is made at work, and the server is lost. Another one gets the
// backup and the binary log up to a point in time. No task is lost, and none is delivered that was
// cancelled after that point, whatever somebody does first. Where the whole log is applied, nobody
// notices.
func TestPointInTimeRestore(t *testing.T) {
	for _, name := range []string{"NOTYET_KAFKA_BROKERS", "NOTYET_REDIS_ADDRS", "NOTYET_ZOOKEEPER_SERVERS"} {
		if os.Getenv(name) == "" {
			t.Skip(name + " is not set")
		}
	}
	t.Parallel()
	server := newOwnServer(t, "mariadb", "SERVERS_MYSQL_BINLOG=1", "SERVERS_MYSQL_BUFFER_POOL=128M")
	all := map[string]*setBack{}
	for _, database := range []string{"reconciled", "half", "started", "running", "whole"} {
		server.client("CREATE DATABASE "+database, "mariadb")
		b := &setBack{cluster: clusterOn(t, newStackBeside(t, own{dsn: server.dsn(database)}, true, false, 4, usualSlots)), database: database, wants: map[string]string{}}
		b.target = b.name + ".target"
		b.judging(4, b.target)
		b.start()
		if database == "half" {
			b.second = b.spawn("second", "dispatcher")
		}
		all[database] = b
	}
	onAll := func(do func(b *setBack)) {
		t.Helper()
		for _, b := range all {
			do(b)
		}
	}
	all["half"].eventually("two dispatchers share the slots", time.Minute, func() bool {
		slots, err := all["half"].store.Slots(t.Context())
		require.NoError(t, err)
		owners := map[string]int{}
		for _, slot := range slots {
			owners[slot.Owner]++
		}
		return len(owners) == 2 && owners[""] == 0
	})
	due := time.Now().Add(30 * time.Second)
	at, soon := []string{schemas.HeaderAt, strconv.FormatInt(due.UnixMilli(), 10)}, []string{schemas.HeaderDelay, "100ms"}
	onAll(func(b *setBack) {
		for _, kind := range []string{"kept", "cancelled", "replaced", "forgotten", "changed"} {
			b.ask(kind, "first", at...)
		}
		b.ask("fired", "first", schemas.HeaderDelay, "1h")
		b.ask("before", "first", soon...)
	})
	onAll(func(b *setBack) {
		b.are("pending", "kept", "cancelled", "replaced", "forgotten", "changed", "fired")
		b.are("delivered", "before")
	})
	dump := server.client("", "mariadb-dump", "--single-transaction", "--master-data=2", "--databases", "reconciled", "half", "started", "running", "whole")

	onAll(func(b *setBack) {
		b.ask("logged", "first", at...)
		b.ask("withdrawn", "first", at...)
		b.ask("between", "first", soon...)
		b.ask("replaced", "second", at...)
		b.cancel("cancelled")
	})
	onAll(func(b *setBack) {
		b.are("cancelled", "cancelled")
		b.are("pending", "logged", "withdrawn", "replaced")
		b.are("delivered", "between")
	})
	point := time.Now().Add(time.Second).Truncate(time.Second)
	time.Sleep(time.Until(point))
	onAll(func(b *setBack) {
		b.again = map[string]bool{"after": true, "fired": true}
		b.ask("unlogged", "first", at...)
		b.ask("after", "first", soon...)
		b.ask("changed", "second", at...)
		b.cancel("forgotten")
		b.cancel("withdrawn")
		b.ask("fired", "", schemas.HeaderOp, "fire")
	})
	onAll(func(b *setBack) {
		b.are("cancelled", "forgotten", "withdrawn")
		b.are("delivered", "after", "fired")
		b.are("pending", "unlogged", "changed")
		b.committed()
	})
	require.Less(t, time.Now(), due.Add(-2*time.Second), "this machine is too slow for the test")

	for _, name := range []string{"reconciled", "half", "started"} {
		all[name].scanner.kill()
		all[name].dispatcher.kill()
	}
	all["half"].second.kill()
	server.down()
	lost := filepath.Join(server.dir, "lost")
	require.NoError(t, os.Rename(server.home(), lost))
	place := server.addr
	server.moves() // nobody sees half of a database
	server.up()
	server.client(dump, "mariadb")
	for _, b := range all {
		until, unlogged := []string{"--stop-datetime=" + point.UTC().Format(time.DateTime)}, 0
		if b.database == "whole" {
			until, unlogged = nil, setBackEach
		}
		server.client(binlog(t, filepath.Join(lost, "data"), dump, append(until, "--database="+b.database)...), "mariadb")
		require.Equal(t, setBackEach, b.stored(server, "logged"))
		require.Equal(t, unlogged, b.stored(server, "unlogged"))
	}
	server.down()
	server.addr = place
	server.up()
	t.Logf("restored %v before the rest is due", time.Until(due))

	b := all["started"]
	b.dispatcher = b.spawn("dispatcher", "dispatcher")
	b.dispatcher.said(older)
	b.dispatcher.said("took slots")
	b.scanner = b.spawn("scanner", "scanner")
	_, problem := b.reconcile()
	require.Contains(t, problem, "are at work", "it is too late")

	copies := map[string]int{"whole": 0, "started": -1, "running": -1}
	for _, name := range []string{"reconciled", "half"} { // the second log of half is lost
		b, args := all[name], []string{"--send-log", filepath.Join(all[name].dir, "dispatcher-sendlog")}
		var plan deadletter.Reconciled
		b.eventually("who was killed counts no longer", time.Minute, func() bool {
			var problem string
			plan, problem = b.reconcile(append(args, "--dry-run")...)
			return problem == ""
		})
		done, problem := b.reconcile(args...)
		require.Empty(t, problem)
		require.Zero(t, done.Left)
		require.Zero(t, done.Gone)
		require.Equal(t, plan.UnreadProven, done.UnreadProven)
		copies[name] = 2*setBackEach - done.UnreadProven - done.Unsent
		b.start()
	}
	require.Zero(t, copies["reconciled"])
	require.Positive(t, copies["half"])
	onAll((*setBack).arrived)
	time.Sleep(3 * time.Second) // for copies, and for what was cancelled
	for name, n := range copies {
		all[name].judge(n)
	}
	require.False(t, all["whole"].dispatcher.hasSaid(older))
}

// binlog reads a lost server's binary log from where a dump was made.
func binlog(t *testing.T, data, dump string, args ...string) string {
	t.Helper()
	from := regexp.MustCompile(`MASTER_LOG_FILE='(binlog\.\d+)', MASTER_LOG_POS=(\d+);`).FindStringSubmatch(dump)
	require.NotNil(t, from)
	files, err := filepath.Glob(filepath.Join(data, "binlog.0*"))
	require.NoError(t, err)
	args = append([]string{"--no-defaults", "--start-position=" + from[2]}, args...)
	for _, file := range files {
		if filepath.Base(file) >= from[1] {
			args = append(args, file)
		}
	}
	cmd := exec.CommandContext(t.Context(), "mariadb-binlog", args...)
	cmd.Env = append(os.Environ(), "TZ=UTC")
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}
