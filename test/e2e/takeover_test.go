package e2e

import (
	"cmp"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/config"
)

// takeovers ends one of two dispatchers again and again, under load, and sees when its slots are served again.
type takeovers struct {
	*cluster
	db   *sql.DB
	runs int
}

// newTakeovers starts a scanner.
func newTakeovers(t *testing.T, kind, session string) *takeovers {
	c := oneDatabase(t, usualSlots)
	timeout := "NOTYET_ZOOKEEPER_SESSION_TIMEOUT="
	if kind == config.KindMySQL {
		timeout = "NOTYET_ELECTION_SESSION_TIMEOUT="
	}
	c.env = append(c.env, "NOTYET_ELECTION_KIND="+kind, timeout+session)
	server, err := mysql.ParseDSN(c.dsn)
	require.NoError(t, err)
	db, err := sql.Open("mysql", server.FormatDSN())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	c.spawn("scanner", "scanner")
	return &takeovers{cluster: c, db: db}
}

// owners returns who owns each slot.
func (k *takeovers) owners() map[int]string {
	slots, err := k.store.Slots(k.t.Context())
	require.NoError(k.t, err)
	out := map[int]string{}
	for _, s := range slots {
		out[s.Slot] = s.Owner
	}
	return out
}

// id is the member's id of a process.
func (k *takeovers) id(p *proc) string {
	for _, kv := range p.cmd.Env {
		if id, ok := strings.CutPrefix(kv, "NOTYET_DISPATCHER_MEMBER_ID="); ok {
			return id
		}
	}
	k.t.Fatal("a process without an id")
	return ""
}

func (k *takeovers) shared(owners ...*proc) {
	k.eventually("the slots are shared", 2*time.Minute, func() bool {
		n := map[string]int{}
		for _, owner := range k.owners() {
			n[owner]++
		}
		for _, p := range owners {
			if n[k.id(p)] != 16/len(owners) {
				return false
			}
		}
		return true
	})
}

// takeover is what was seen of one.
type takeover struct {
	took   time.Duration // from the end of the owner until each of its slots had a delivery
	late   time.Duration // of the latest task
	copies int
}

// one ends the victim in the middle of a load of so many tasks a second, and waits until all are delivered. Copies may only be of tasks that
// were claimed when the victim ended.
func (k *takeovers) one(victim *proc, rate int, span time.Duration, end func()) takeover {
	k.runs++
	topic := fmt.Sprintf("%s.run%d", k.name, k.runs)
	k.judging(4, topic)
	const head = 3 * time.Second
	began := time.Now()
	var ended int64
	var before map[int]string
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(time.Until(began.Add(head + time.Second + time.Duration(rand.Int64N(int64(time.Second))))))
		before, ended = k.owners(), time.Now().UnixMilli()
		end()
	}()
	wants := k.load([]string{topic}, int(span.Seconds()*float64(rate)), head, span)
	<-done
	k.collect([]string{topic}, wants, span+90*time.Second, 2*time.Second)
	f := measure(k.t, wants)
	require.Zero(k.t, f.early)
	slots := k.slotsOf(topic)
	first := map[int]int64{}
	for id, w := range wants {
		slot := slots[id]
		for _, a := range w.copies {
			// What the victim had handed over arrives within moments.
			if before[slot] == k.id(victim) && a.at > ended+100 && (first[slot] == 0 || a.at < first[slot]) {
				first[slot] = a.at
			}
		}
		if len(w.copies) > 1 {
			require.InDelta(k.t, ended, w.due, 5000, "a copy far from the victim's end")
		}
	}
	require.Len(k.t, first, 8, "each slot has tasks")
	last := slices.Max(slices.Collect(maps.Values(first)))
	return takeover{took: time.Duration(last-ended) * time.Millisecond, late: time.Duration(f.late.Max()) * time.Millisecond, copies: f.doubled}
}

func (k *takeovers) slotsOf(topic string) map[string]int {
	rows, err := k.db.QueryContext(k.t.Context(), "SELECT id, slot FROM tasks WHERE topic = ?", topic)
	require.NoError(k.t, err)
	defer func() { _ = rows.Close() }()
	out := map[string]int{}
	for rows.Next() {
		var id string
		var slot int
		require.NoError(k.t, rows.Scan(&id, &slot))
		out[id] = slot
	}
	require.NoError(k.t, rows.Err())
	return out
}

// TestASuccessorTakesItsSlotsAtOnce kills a dispatcher and starts it again in its directory. In the database the session would last longer
// than the test waits; a server of ZooKeeper grants less.
func TestASuccessorTakesItsSlotsAtOnce(t *testing.T) {
	for _, kind := range []string{config.KindZooKeeper, config.KindMySQL} {
		t.Run(kind, func(t *testing.T) {
			k := newTakeovers(t, kind, "1m")
			victim, other := k.spawn("one", "dispatcher"), k.spawn("two", "dispatcher")
			k.shared(victim, other)
			var successor *proc
			k.one(victim, 100, 5*time.Second, func() {
				victim.kill()
				successor = k.spawn("one", "dispatcher")
			})
			k.shared(successor, other)
			said, err := os.ReadFile(successor.log)
			require.NoError(t, err)
			require.Contains(t, string(said), "removed the candidate of a process that has ended")
		})
	}
}

// TestTakeoverTimes shows the times of NOTYET_TAKEOVER_ROUNDS takeovers of each kind, with sessions of NOTYET_TAKEOVER_SESSION (4s). It judges
// what is delivered, not the times.
func TestTakeoverTimes(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv("NOTYET_TAKEOVER_ROUNDS"))
	if rounds == 0 {
		t.Skip("NOTYET_TAKEOVER_ROUNDS is not set")
	}
	session := cmp.Or(os.Getenv("NOTYET_TAKEOVER_SESSION"), "4s")
	for _, kind := range []string{config.KindZooKeeper, config.KindMySQL} {
		for _, fate := range []string{"killed", "stopped", "killed and started again"} {
			t.Run(kind+"/"+fate, func(t *testing.T) {
				k := newTakeovers(t, kind, session)
				two := []*proc{k.spawn("0", "dispatcher"), k.spawn("1", "dispatcher")}
				var all []takeover
				for range rounds {
					k.shared(two...)
					i := rand.IntN(2)
					victim := two[i]
					all = append(all, k.one(victim, 200, 4*time.Second, func() {
						switch fate {
						case "killed":
							victim.kill()
						case "stopped":
							require.NoError(t, victim.cmd.Process.Signal(syscall.SIGSTOP))
						default:
							victim.kill()
							two[i] = k.spawn(strconv.Itoa(i), "dispatcher")
						}
					}))
					if two[i] == victim {
						victim.kill()
						two[i] = k.spawn(strconv.Itoa(i), "dispatcher")
					}
				}
				k.shared(two...)
				slices.SortFunc(all, func(a, b takeover) int { return cmp.Compare(a.took, b.took) })
				t.Logf("%s, %s, session %s: median %v worst %v of %+v", kind, fate, session, all[len(all)/2].took, all[len(all)-1].took, all)
			})
		}
	}
}
