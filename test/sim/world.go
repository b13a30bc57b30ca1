package sim

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/test/chaos/check"
	"github.com/notyet/notyet/test/chaos/history"
	"github.com/notyet/notyet/test/memindex"
	"github.com/notyet/notyet/test/zkfake"
)

const (
	ackTopic   = "acks"    // tasks that wait for a report
	floodTopic = "flood"   // a burst's
	faintTopic = "faint"   // a target that fails
	lostTopic  = "nowhere" // a target that does not exist
)

var plainTopics = []string{"plain-a", "plain-b", faintTopic}

// hushedTopics are the targets of a seed in which many take nothing: more than fit into a producer side by side.
var hushedTopics = []string{"hushed-0", "hushed-1", "hushed-2", "hushed-3", "hushed-4", "hushed-5", "hushed-6", "hushed-7", "hushed-8", "hushed-9"}

func (p plan) targets() []string {
	all := append([]string{ackTopic, floodTopic}, plainTopics...)
	if p.hush == hushMany {
		all = append(all, hushedTopics...)
	}
	if p.timers > 0 {
		all = append(all, tickTopic)
	}
	if p.sweeps > 0 {
		all = append(all, sweptTopic)
	}
	if p.replays > 0 {
		all = append(all, replayedTopic)
	}
	return all
}

// world is one seed's run.
type world struct {
	plan
	walking   sync.WaitGroup // of those who list
	replaying sync.WaitGroup // of operators, and of requests for what they replay
	replayed  map[int64]bool // letters of which an operator was told that they were
	dir       string
	start     time.Time
	story     *story
	pulse     *atomic.Int64 // grows as the run goes on: who watches it is outside of the bubble
	rec       *history.Recorder
	seen      *observer
	ticks     ticks
	calls     calls
	swept     sweeps
	prompts   prompts
	oneMore   map[string]bool // origins of a tenant that have answered
	asked     chan struct{}   // closed once all of the load is sent

	asking  context.Context // ends with the load and its drain
	stormed sync.WaitGroup

	network     kfake.VirtualNetwork
	cluster     *kfake.Cluster
	truth       *truth // nil: nobody watches
	memory      *memindex.Index
	redis       *miniredis.Miniredis // instead, where the plan says so
	db          *database
	kafkaSrv    *server
	indexSrv    *server
	receivers   *server // of callbacks
	electionSrv *server
	electorate  *electorate
	loss        loss
	kept        remembered
	rehearsed   rehearsed
	required    []interval             // in which members must know of changes of the number of slots
	patched     map[string]*kerr.Error // how requests to a topic fail in part
	zookeeper   *zkfake.Server         // instead, likewise
	admin       *store.Store           // of nobody: it meets no fault
	looks       *sql.DB                // likewise, for the judge's own questions
	client      *kgo.Client            // likewise

	cells  []*cell // the first has w.db
	nodes  []*node
	moving sync.WaitGroup // the operator who moves targets
	stays  *node          // it stays with the original when the others go on with a copy; nil: nobody does

	mu           sync.Mutex
	retries      []time.Time // when second attempts are due
	intentDeaths int
	dieAtIntent  func(*node, *process) // nil: nobody dies
	dying        sync.WaitGroup
	recalls      time.Duration // the longest that it may have taken to call back what was held
	links        map[*server]map[*link]bool
	registries   []*prometheus.Registry // of all runs of dispatchers
	findings     []check.Finding
	ops          int64
	opsApart     int64
	busiest      int
}

// Outcome is what came of a seed.
type Outcome struct {
	Plan     string
	Findings []check.Finding
	Story    string
	Virtual  time.Duration
	Requests int
	Faults   int
	Calls    int
	Busiest  int // calls of one server by one process, in one second of virtual time

	Remembered        int // answers that the database forgot, and Kafka did not
	Linear, Undecided int // identities whose history one order explains, and those without a verdict
}

// templates are databases that are migrated, by their number of slots, and their own; worlds begin with a copy.
var templates sync.Map

func template(slots, n int) ([]byte, error) {
	if data, ok := templates.Load([2]int{slots, n}); ok {
		return data.([]byte), nil
	}
	dir, err := os.MkdirTemp(memory(), "notyet-sim-template")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "n.db")
	st, err := store.Open(context.Background(), store.Config{DSN: "sqlite:" + path}, zap.NewNop())
	if err != nil {
		return nil, err
	}
	if err := st.Migrate(context.Background(), slots); err != nil {
		return nil, err
	}
	if err := st.Close(); err != nil { // the last one to close puts everything into the one file
		return nil, err
	}
	data, err := os.ReadFile(path)
	templates.Store([2]int{slots, n}, data)
	return data, err
}

// memory is a folder that is in memory, if there is one.
func memory() string {
	if _, err := os.Stat("/dev/shm"); err == nil {
		return "/dev/shm"
	}
	return ""
}

func newWorld(p plan, dir string, pulse *atomic.Int64) (*world, error) {
	w := &world{plan: p, dir: dir, pulse: pulse, start: time.Now(), rec: &history.Recorder{}, replayed: map[int64]bool{}, oneMore: map[string]bool{}, prompts: prompts{due: map[string]int64{}, came: map[string]int64{}}, links: map[*server]map[*link]bool{}}
	w.story = newStory(w.start)
	data, err := template(p.slots, 0)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "n.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return nil, err
	}
	if w.db, err = newDatabase(path, p.seed); err != nil {
		return nil, err
	}
	w.db.latency, w.db.column = p.latency, p.column
	if p.seed >= aimedSeeds && p.several == 0 {
		w.truth = newTruth(w.find, w.db.clock, p.dispatcher.Retention)
		w.db.truth = w.truth
	}
	w.kafkaSrv, w.indexSrv = newServer("kafka", p.seed+1), newServer("index", p.seed+2)
	w.cluster, err = w.broker()
	if err != nil {
		return nil, err
	}
	w.receivers = newServer("receivers", p.seed+4)
	if err := w.receive(); err != nil {
		return nil, err
	}
	guard, err := callback.NewGuard(w.urlRules())
	if err != nil {
		return nil, err
	}
	w.scanner.Limits.Callbacks = guard.Check
	w.memory = memindex.New()
	if p.redis {
		w.redis = miniredis.NewMiniRedis()
	}
	nobody := newProcess("nobody")
	if w.admin, err = store.Open(context.Background(), store.Config{Connector: unharmed{w.db, nobody}, Clock: w.db.clock, Life: lifeOf}, zap.NewNop()); err != nil {
		return nil, err
	}
	if p.setback.restored.yes || p.rehearsal.yes {
		if w.scanner.Installation, err = w.admin.Installation(context.Background()); err != nil {
			return nil, err
		}
	}
	w.looks = sql.OpenDB(unharmed{w.db, nobody})
	opts := []kgo.Opt{kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.MetadataMinAge(10 * time.Millisecond), kgo.ProducerBatchMaxBytes(64 << 20)}
	if p.hostile { // snappy leaves more of 20 MB of zeros than Kafka takes
		opts = append(opts, kgo.ProducerBatchCompression(kgo.GzipCompression()))
	}
	if w.client, err = kafka.New(kafka.Config{Dial: w.network.DialContext}, zap.NewNop(), opts...); err != nil {
		return nil, err
	}
	w.electionSrv = newServer("election", p.seed+3)
	w.electorate = newElectorate(w.electionSrv, p.session, w.db.countSlots(w.admin), w.db.nextEpoch(w.admin))
	if p.zookeeper {
		if err := w.startZooKeeper(); err != nil {
			return nil, err
		}
	}
	w.cells = []*cell{{w: w, db: w.db, admin: w.admin, looks: w.looks, memory: w.memory, electorate: w.electorate}}
	if err := w.furtherCells(); err != nil {
		return nil, err
	}
	for _, c := range w.cells {
		for i := range p.scanners {
			w.nodes = append(w.nodes, &node{w: w, cell: c, busy: make(busyLock, 1), name: fmt.Sprintf("scanner%s-%d", c.suffix(), i), scans: true})
		}
		for i := range p.dispatchers {
			name := fmt.Sprintf("dispatcher%s-%d", c.suffix(), i)
			w.nodes = append(w.nodes, &node{w: w, cell: c, busy: make(busyLock, 1), name: name, disk: newServer("send log of "+name, p.seed+10+uint64(i)+100*uint64(c.n))})
		}
	}
	w.leaveBehind()
	return w, nil
}

func (w *world) link(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.links[l.s] == nil {
		w.links[l.s] = map[*link]bool{}
	}
	w.links[l.s][l] = true
}

// cut breaks all connections to a server.
func (w *world) cut(s *server) { w.cutOf(s, func(*link) bool { return true }) }

// cutOf breaks some of the connections to a server.
func (w *world) cutOf(s *server, which func(*link) bool) {
	w.mu.Lock()
	var links []*link
	for l := range w.links[s] {
		if which(l) {
			links = append(links, l)
			delete(w.links[s], l)
		}
	}
	w.mu.Unlock()
	for _, l := range links {
		l.sever()
	}
}

func (w *world) find(invariant, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.findings = append(w.findings, check.Finding{Invariant: invariant, What: fmt.Sprintf(format, args...)})
}

func (w *world) note(format string, args ...any) { w.story.note("world", format, args...) }

// indexOf is a process's way to the index; nobody's meets no fault.
func (w *world) indexOf(p *process, log *zap.Logger) (anyIndex, error) {
	switch {
	case w.redis != nil:
		cfg := index.Config{Dial: w.dialRedis}
		if p != nil {
			cfg.Dial = w.through(p, w.indexSrv, time.Second, w.dialRedis)
		}
		return index.New(cfg, log)
	case p == nil:
		return w.memory, nil
	default:
		return hints{m: w.memory, s: w.indexSrv, p: p}, nil
	}
}

func (w *world) dialRedis(context.Context, string, string) (net.Conn, error) { return w.redis.Dial() }

// run goes from start to verdict. It is called in a bubble of virtual time.
func (w *world) run() (out Outcome) {
	ctx, cancel := context.WithCancel(context.Background())
	var helpers sync.WaitGroup
	w.seen = w.observe()
	for _, c := range w.cells {
		helpers.Go(func() { c.electorate.run(ctx) })
		helpers.Go(func() { w.endRebalances(ctx, c.group()) })
	}
	helpers.Go(func() { w.sample(ctx) })
	helpers.Go(func() { w.watchCalls(ctx) })
	helpers.Go(func() { w.watchRequired(ctx) })
	helpers.Go(func() {
		for pause(ctx, 100*time.Millisecond) == nil {
			w.pulse.Add(1)
		}
	})
	for _, n := range w.nodes {
		n.start()
	}
	begin := time.Now()
	w.slowBroker()
	whole := w.mischief()
	asking, askedAll := context.WithCancel(ctx)
	defer askedAll()
	w.asking = asking
	w.ask(begin)
	w.tick(begin)
	w.askCalls(begin)
	w.sweep(begin)
	w.walk(begin)
	w.replay(begin)
	w.intrude(begin)
	w.watchBound(begin)
	w.attackAll(begin)
	w.setSlots(ctx)
	w.moveTargets(begin)
	helpers.Go(w.callTrouble)
	if w.stepsBack > 0 {
		time.AfterFunc(w.load/2, func() {
			w.note("the database's clock is set back by %v", w.stepsBack)
			w.db.back.Store(int64(w.stepsBack))
		})
	}
	time.Sleep(time.Until(begin.Add(w.load)))
	whole()
	w.heal()
	w.endTicks()
	w.calls.asking.Wait()
	w.swept.asking.Wait()
	w.walking.Wait()
	w.replaying.Wait()
	w.targetsMoved()
	w.drain()
	w.broughtHome()
	w.grown()
	w.rest()
	w.settled()
	w.judgeCommitted()
	w.forgotten()
	askedAll()
	w.stormed.Wait()
	end := time.Now()
	for _, n := range w.nodes {
		n.stop()
	}
	w.winddown()
	cancel()
	helpers.Wait()
	h := w.history(begin, end)
	linear, undecided := w.judge(h)
	w.judgeSenders(h)
	w.judgeTold(h)
	w.judgeTicks()
	w.judgeCalls(h)
	w.judgeSweeps()
	w.judgeReplays()
	w.judgeLost(h)
	w.judgeCounts()
	w.judgeTags()
	w.judgeStranger()
	w.judgeTenant(h)
	w.judgeUnreadable()
	w.judgeOlder()
	w.judgeRehearsal()
	remembered := w.judgeRemembered(h)
	all, _ := w.db.counts()
	out = Outcome{Plan: w.plan.String(), Findings: w.findings, Virtual: time.Since(w.start), Requests: len(h.Ops), Faults: len(h.Faults), Calls: all, Busiest: w.busiest, Linear: linear, Undecided: undecided, Remembered: remembered}
	if len(w.findings) > 0 {
		out.Story = w.story.tell(w.plan, h, w.findings)
	}
	w.close()
	return out
}

func (w *world) close() {
	w.seen.close()
	_ = w.calls.receiver.Close()
	w.client.Close()
	for _, c := range w.cells {
		_ = c.looks.Close()
		_ = c.admin.Close()
	}
	w.cluster.Close()
	if w.redis != nil {
		w.redis.Close()
	}
	w.cut(w.kafkaSrv)
	w.cut(w.indexSrv)
	w.cut(w.electionSrv)
	if w.zookeeper != nil {
		w.zookeeper.Close()
	}
	time.Sleep(time.Minute) // for what ends by itself
}
