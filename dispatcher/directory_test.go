package dispatcher

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/test/memindex"
	"github.com/notyet/notyet/test/recordtest"
)

// virtually runs a test in virtual time, with a broker, a database and an index in the process.
func virtually(t *testing.T, topics []string, test func(f *fixture, run func(Config, *zap.Logger) *Dispatcher)) {
	synctest.Test(t, func(t *testing.T) {
		var network kfake.VirtualNetwork
		f := &fixture{T: t, path: t.TempDir() + "/notyet.db", slots: []int{0, 1, 2, 3}, kafka: kafka.Config{Brokers: []string{"127.0.0.1:9092"}, Dial: network.DialContext}}
		var err error
		f.cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(network.Listen), kfake.SeedTopics(1, append(topics, results)...))
		require.NoError(t, err)
		defer f.cluster.Close()
		f.store, err = store.Open(t.Context(), store.Config{DSN: "sqlite:" + f.path}, zap.NewNop())
		require.NoError(t, err)
		defer func() { require.NoError(t, f.store.Close()) }()
		require.NoError(t, f.store.Migrate(t.Context(), len(f.slots)))
		f.source, err = intake.New(f.store).Source(t.Context(), "intake", [16]byte{7}, 0, 0)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		test(f, func(cfg Config, log *zap.Logger) *Dispatcher {
			cfg.Results, cfg.MemberID = results, "one"
			sent, err := sendlog.Open(t.TempDir(), sendlog.Config{Now: f.store.Clock().Now}, log)
			require.NoError(t, err)
			d, err := New(Deps{Kafka: f.kafka, Store: f.store, Index: memindex.New(), Members: f.elect(5), SendLog: sent, Metrics: prometheus.NewRegistry(), Log: log}, cfg)
			require.NoError(t, err)
			running.Go(func() {
				_ = d.Run(ctx)
				_ = sent.Close()
			})
			return d
		})
	})
}

// tenant is another intake of the same installation.
func (f *fixture) tenant(name string) *fixture {
	other := &fixture{T: f.T, store: f.store}
	var err error
	other.source, err = intake.New(f.store).Source(f.Context(), name, [16]byte{8}, 0, 0)
	require.NoError(f, err)
	return other
}

// scheduleAll stores tasks in batches.
func (f *fixture) scheduleAll(requests []*kgo.Record) {
	for some := range slices.Chunk(requests, 1000) {
		f.schedule(some...)
	}
}

// asksAbout has a broker's questions about topics counted that begin with prefix: how many names of
// them were in each second's requests, and how often each name was asked for.
func (f *fixture) asksAbout(prefix string) (each func() (inSecond map[int64]int, ofName map[string]int)) {
	var mu sync.Mutex
	seconds, names, last := map[int64]int{}, map[string]int{}, kmsg.Request(nil)
	f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Observe: true, Count: -1, When: func(r kmsg.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if r == last { // once more, for another of its topics
			return true
		}
		last = r
		for _, topic := range r.(*kmsg.MetadataRequest).Topics {
			if topic.Topic != nil && strings.HasPrefix(*topic.Topic, prefix) {
				seconds[time.Now().Unix()]++
				names[*topic.Topic]++
			}
		}
		return true
	}})
	return func() (map[int64]int, map[string]int) {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(seconds), maps.Clone(names)
	}
}

// lateness is how late the records of a log came, in order.
func (l *log) lateness(t *testing.T) (late []time.Duration) {
	for _, r := range l.all() {
		due, err := strconv.ParseInt(recordtest.Header(r, schemas.HeaderDue), 10, 64)
		require.NoError(t, err)
		late = append(late, r.Timestamp.Sub(time.UnixMilli(due)))
	}
	slices.Sort(late)
	return late
}

// A tenant has tasks for more topics that do not exist than are tried at a time, all due at once. Another tenant's tasks are in time,
// the broker is asked a bounded number of questions, the log says so in a line a second, and the tasks are dead letters when patience
// is over, not before.
func TestMissingTopicsDelayNobodyElse(t *testing.T) {
	n := 2500
	if more, err := strconv.Atoi(os.Getenv("MISSING_TOPICS")); err == nil { // 60000 take minutes
		n = more
	}
	virtually(t, []string{"billing"}, func(f *fixture, run func(Config, *zap.Logger) *Dispatcher) {
		billing, asked := f.read("billing"), f.asksAbout("shop.")
		shop, start := f.tenant("intake.shop"), time.Now()
		var requests []*kgo.Record
		for i := range n {
			requests = append(requests, ask(fmt.Sprintf("shop.%d", i), fmt.Sprint("s", i), start.Add(5*time.Second), schemas.HeaderEvents, "none"))
		}
		shop.scheduleAll(requests)
		requests = nil
		for i := range 1200 {
			requests = append(requests, ask("billing", fmt.Sprint("b", i), start.Add(time.Duration(i+90)*50*time.Millisecond), schemas.HeaderEvents, "none"))
		}
		f.scheduleAll(requests)
		core, lines := observer.New(zap.WarnLevel)
		d := run(Config{UndeliverableAfter: 30 * time.Second}, zap.New(core))
		dead := func() int { return counted(d.metrics.Dead.WithLabelValues(schemas.KindUndeliverable)) }
		time.Sleep(time.Until(start.Add(34 * time.Second)))
		require.Zero(t, dead(), "patience is not over")
		_, names := asked()
		require.Len(t, names, 2000, "the others are put off unasked")
		time.Sleep(time.Until(start.Add(2 * time.Minute)))
		require.Equal(t, 2000, dead())
		late := billing.lateness(t)
		require.Len(t, late, 1200)
		require.Less(t, late[len(late)*99/100], 100*time.Millisecond)
		time.Sleep(4 * time.Minute)
		require.GreaterOrEqual(t, dead(), min(n, 4000), "room for others is there once nobody has used those for two minutes")
		seconds, _ := asked()
		for _, times := range seconds {
			require.LessOrEqual(t, times, 2*int(time.Second/lookUpRest)*lookUpMost)
		}
		require.LessOrEqual(t, lines.Len(), 60)
		require.NotZero(t, lines.FilterMessageSnippet("targets do not exist").Len())
	})
}

// Topics that exist are met a few at a time, by as many clients as are needed. Each task arrives,
// once. Topics that come to be while their tasks are tried get theirs too.
func TestManyTopicsAreMet(t *testing.T) {
	const n, later = 2500, 20
	var topics []string
	for i := range n {
		topics = append(topics, fmt.Sprintf("shop.%d", i))
	}
	virtually(t, append([]string{"billing"}, topics...), func(f *fixture, run func(Config, *zap.Logger) *Dispatcher) {
		billing, start := f.read("billing"), time.Now()
		shop := f.tenant("intake.shop")
		var requests []*kgo.Record
		for i := range n + later {
			for k := range 2 {
				requests = append(requests, ask(fmt.Sprintf("shop.%d", i), fmt.Sprint("s", i, k), start.Add(5*time.Second+time.Duration(k)), schemas.HeaderEvents, "none"))
			}
		}
		shop.scheduleAll(requests)
		requests = nil
		for i := range 400 {
			requests = append(requests, ask("billing", fmt.Sprint("b", i), start.Add(time.Duration(i+90)*50*time.Millisecond), schemas.HeaderEvents, "none"))
		}
		f.scheduleAll(requests)
		d := run(Config{UndeliverableAfter: time.Minute}, zap.NewNop())
		time.Sleep(time.Until(start.Add(30 * time.Second)))
		require.Equal(t, 2*n+400, counted(d.metrics.Delivered))
		require.Equal(t, later, d.flight.Figures().RefusedTargets)
		for i := range later {
			f.partitioned(fmt.Sprintf("shop.%d", n+i), 1)
		}
		time.Sleep(15 * time.Second)
		require.Equal(t, 2*(n+later)+400, counted(d.metrics.Delivered))
		late := billing.lateness(t)
		require.Less(t, late[len(late)*99/100], 100*time.Millisecond)
		all := 0
		for _, met := range d.topicsMet() {
			require.LessOrEqual(t, met, topicsEach)
			all += met
		}
		require.Equal(t, n+later+1, all, "no more than exist")
		require.Zero(t, d.flight.Figures().Parked)
		require.Zero(t, d.flight.Figures().RefusedTargets)
	})
}

// A broker cannot say whether a topic is there, for longer than a producer tries with a record. Nothing is lost or given up, and the
// tasks arrive in their order once it can. A dispatcher may end meanwhile.
func TestATopicOfWhichNobodyCanSay(t *testing.T) {
	virtually(t, []string{"shop"}, func(f *fixture, run func(Config, *zap.Logger) *Dispatcher) {
		unsure := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "shop", Err: kerr.LeaderNotAvailable, Count: -1})
		start := time.Now()
		f.schedule(ask("shop", "a", start.Add(time.Second)), ask("shop", "b", start.Add(time.Second+time.Millisecond)), ask("shop", "c", start.Add(2*time.Second)))
		d := run(Config{UndeliverableAfter: time.Second}, zap.NewNop())
		asked := func() int {
			d.directory.mu.Lock()
			defer d.directory.mu.Unlock()
			return len(d.directory.asked)
		}
		time.Sleep(4 * d.cfg.giveUpAfter())
		require.Zero(t, counted(d.metrics.Delivered))
		require.Zero(t, counted(d.metrics.Dead.WithLabelValues(schemas.KindUndeliverable)))
		require.LessOrEqual(t, asked(), 1)
		unsure.Remove()
		shop := f.read("shop")
		time.Sleep(2 * time.Minute)
		require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, shop.copies())
		require.Zero(t, asked())

		unsure = f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "late", Err: kerr.LeaderNotAvailable, Count: -1})
		defer unsure.Remove()
		f.schedule(ask("late", "d", time.Now()))
		d.kicks.Sweep.Now()
		time.Sleep(time.Second)
		require.Equal(t, 1, asked(), "the dispatcher ends now")
	})
}

// Most topics of a full producer are deleted. It ends, so that nobody asks for their names for ever, and what is left goes on with
// another: in order, once, and in time.
func TestAProducerOfDeletedTopicsEnds(t *testing.T) {
	const n, kept, each = topicsEach + 20, 10, 20 * time.Millisecond
	var topics []string
	for i := range n {
		topics = append(topics, fmt.Sprintf("shop.%d", i))
	}
	virtually(t, append([]string{"billing"}, topics...), func(f *fixture, run func(Config, *zap.Logger) *Dispatcher) {
		billing, asked, start := f.read("billing"), f.asksAbout("shop."), time.Now()
		again := func(ids string, topics []string) (requests []*kgo.Record) {
			for _, topic := range topics {
				requests = append(requests, ask(topic, ids, time.Now().Add(2*time.Second), schemas.HeaderEvents, "none"))
			}
			return requests
		}
		f.scheduleAll(again("first", topics))
		var want []string
		for i := range int(30 * time.Second / each) {
			want = append(want, fmt.Sprint("b", i))
			f.schedule(ask("billing", want[i], start.Add(time.Duration(i)*each+3*time.Second), schemas.HeaderEvents, "none"))
		}
		d := run(Config{UndeliverableAfter: time.Minute}, zap.NewNop())
		later := func() {
			d.producers.mu.Lock()
			d.producers.looked = time.Now().Add(-useWithin)
			d.producers.mu.Unlock()
			time.Sleep(2 * time.Second)
		}
		time.Sleep(time.Until(start.Add(10 * time.Second)))
		require.Len(t, d.topicsMet(), 2)
		later()
		require.NotNil(t, d.producers.of(topics[0]), "all of its topics were used")
		for _, topic := range topics[kept:] {
			require.NoError(t, f.cluster.DeleteTopic(topic))
		}
		for range 5 {
			later()
		}
		require.Len(t, d.topicsMet(), 1)
		f.scheduleAll(again("second", topics[:kept]))
		time.Sleep(time.Until(start.Add(40 * time.Second)))
		require.Equal(t, n+len(want)+kept, counted(d.metrics.Delivered))
		require.Equal(t, want, billing.ids())
		late := billing.lateness(t)
		require.Less(t, late[len(late)-1], 500*time.Millisecond)
		seconds, _ := asked()
		require.LessOrEqual(t, seconds[time.Now().Unix()-1], 4*(n-topicsEach+kept+1))
		require.Zero(t, counted(d.metrics.notStored))
	})
}

// A full producer that all topics have left does not end while it meets another one, in place of one that it could not meet.
func TestAProducerThatMeetsATopicStays(t *testing.T) {
	ps, err := newProducers(func(*kafka.LostConnections) (*kgo.Client, error) { return kgo.NewClient() })
	require.NoError(t, err)
	defer ps.close(t.Context())
	first := ps.all[0]
	_, err = ps.add()
	require.NoError(t, err)
	look := func() {
		ps.looked = time.Now().Add(-useWithin)
		ps.retire()
	}
	first.topics = topicsEach
	look()
	require.True(t, first.idle)
	ps.drop(first, "missing")
	p, err := ps.withRoom()
	require.NoError(t, err)
	require.Same(t, first, p)
	look()
	require.Contains(t, ps.all, first)
	look()
	require.NotContains(t, ps.all, first)
}
