package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/test/chaos/check"
	"github.com/notyet/notyet/test/chaos/history"
)

// Config is one run.
type Config struct {
	Root     string        // of the repository
	Dir      string        // for logs, send logs, the history and the servers' data; it must be empty
	BasePort int           // of the servers
	Seed     uint64        // of requests, consumers and faults
	For      time.Duration // how long requests are sent
	Rate     int           // lives begun a second; a life has 1.3 requests on average
	Burst    int           // tasks of one burst
	Longest  time.Duration // latest due time of an ordinary task
	Faults   []string      // kinds; empty means all
	Rounds   int           // how often each kind happens at most; 0: as often as time allows
	Small    bool          // Kafka and the database alone, which is election and index
	Several  int           // databases; 0 or 1: one
	Form     Form          // of the servers
	Bounds   check.Bounds  // of the judge
	Before   string        // a commit: the processes begin with its program, and are rolled to this tree's and back; Faults hit them between
}

func (c Config) servers() []string {
	names := slices.Clone(serverNames)
	if c.Small {
		names = slices.Clone(smallServers)
	}
	for n := 2; n <= c.Several; n++ {
		names = append(names, mysqlServer+"-"+strconv.Itoa(n))
	}
	return names
}

// Report is the result of a run.
type Report struct {
	Config  Config
	History *history.History
	Result  check.Result
	Took    time.Duration
}

// Run runs everything and checks it. An error means that the run itself failed. Findings are in the
// report, whose history is saved in Dir.
func Run(ctx context.Context, cfg Config, log *zap.Logger) (rep Report, err error) {
	kinds, err := faultsNamed(cfg.Faults, cfg.servers(), cfg.Form)
	if err != nil {
		return rep, err
	}
	if cfg.Several > 1 && (cfg.Form != Single || cfg.Before != "") {
		return rep, errors.New("several databases are of the form with one server of each, and of no upgrade")
	}
	if cfg.Before != "" {
		if kinds = slices.DeleteFunc(kinds, func(f fault) bool { return f.tenants }); len(kinds) == 0 {
			return rep, errors.New("no fault is left: the version before an upgrade knows of no tenants")
		}
	}
	c, err := NewCluster(ctx, cfg, log)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	begin, built := time.Now(), commit(cfg.Root)
	if err := c.AwaitReady(ctx, 2*time.Minute); err != nil {
		return rep, err
	}
	h, err := c.runWithFaults(ctx, cfg, kinds)
	if err != nil {
		return rep, err
	}
	h.Run.Seed, h.Run.Commit, h.Run.Intake, h.Run.Slots, h.Run.Session = cfg.Seed, built, intakeTopic, slotCount, session.Milliseconds()
	h.Run.Start, h.Run.End = begin.UnixMilli(), time.Now().UnixMilli()
	if err := c.settle(ctx, h); err != nil {
		return rep, err
	}
	if err := h.Save(filepath.Join(cfg.Dir, "history.ndjson")); err != nil {
		return rep, err
	}
	log.Info("judging", zap.Int("requests", len(h.Ops)), zap.Int("deliveries", len(h.Deliveries)))
	return Report{Config: cfg, History: h, Result: check.Run(h, cfg.Bounds), Took: time.Since(begin)}, nil
}

// runWithFaults sends requests and causes faults, then repairs everything and drains. It returns
// the history noted so far.
func (c *Cluster) runWithFaults(ctx context.Context, cfg Config, kinds []fault) (*history.History, error) {
	rec := &history.Recorder{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watching, loading sync.WaitGroup
	watching.Go(func() { c.observe(ctx, rec) })
	reporter, err := c.newReporter(cfg.Seed)
	if err != nil {
		return nil, err
	}
	watching.Go(func() { reporter.run(ctx) })
	defer func() { cancel(); watching.Wait() }()

	l := newLoad(c.client, c.large, rec, cfg.Seed, cfg.Longest)
	l.older = cfg.Before != ""
	watching.Go(func() { l.looker.run(ctx, c.nodes) })
	coming, stop := context.WithTimeout(ctx, cfg.For)
	defer stop()
	loading.Go(func() { l.run(ctx, coming, cfg.Rate) })
	var unrest []string
	disturb := c.breakAll
	if c.before != "" {
		disturb = c.rollAll
	}
	if err := disturb(ctx, coming, cfg, kinds, l, rec); err != nil {
		unrest = append(unrest, err.Error())
		stop()
	} else if cfg.Rounds > 0 {
		stop() // no more faults
	}
	loading.Wait()
	c.log.Info("no more requests", zap.Int64("requests", l.ops.Load()))
	if err := c.drain(ctx, cfg.Longest+3*time.Minute); err != nil {
		unrest = append(unrest, err.Error())
	}
	cancel()
	watching.Wait()
	h := rec.History()
	for _, n := range c.nodes {
		h.Run.Machines = append(h.Run.Machines, n.machine())
	}
	h.Run.Problems = append(unrest, c.unexpectedExits()...)
	return h, nil
}

// newBreaker returns when every partition has received something, so that no fault hits a cluster that is still starting.
func (c *Cluster) newBreaker(ctx context.Context, cfg Config, l *load, rec *history.Recorder) *breaker {
	b := &breaker{Cluster: c, ctx: ctx, rng: rand.New(rand.NewPCG(cfg.Seed, 0)), load: l, rec: rec, burst: cfg.Burst}
	b.waitUntil(patience, func() bool {
		return b.sum(ctx, "SELECT COUNT(*) FROM "+database+".sources WHERE next_offset > 0") == int64(2*partCount*len(b.databases))
	})
	return b
}

// breakAll causes one fault after the other, a round at a time in an order that the seed
// chooses.
func (c *Cluster) breakAll(ctx, coming context.Context, cfg Config, kinds []fault, l *load, rec *history.Recorder) error {
	b := c.newBreaker(ctx, cfg, l, rec)
	for round := 0; cfg.Rounds == 0 || round < cfg.Rounds; round++ {
		for _, next := range roundOf(b.rng, kinds, cfg.Rounds == 0) {
			if coming.Err() != nil {
				return nil
			}
			if err := b.breakOne(next); err != nil {
				return err
			}
			b.wait(b.randomSpan(time.Second/2, 2*time.Second))
		}
	}
	return nil
}

// pairsARound is how often a long run breaks each pair in a round: pairs are where mistakes hide, and there are fewer of them.
const pairsARound = 3

// roundOf returns the faults of one round in random order: each kind once, in a long run the pairs more often.
func roundOf(rng *rand.Rand, kinds []fault, long bool) []fault {
	var out []fault
	for _, f := range kinds {
		out = append(out, f)
		if f.overlap && long {
			out = append(out, slices.Repeat([]fault{f}, pairsARound-1)...)
		}
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// settle takes the state of rest, stops the processes gracefully and reads topics and database.
func (c *Cluster) settle(ctx context.Context, h *history.History) error {
	var err error
	if h.Rest, err = c.restIn(ctx, 3*time.Minute); err != nil {
		return err
	}
	var stopping sync.WaitGroup
	errs := make([]error, len(c.nodes))
	for i, n := range c.nodes {
		stopping.Go(func() { errs[i] = n.stop() })
	}
	stopping.Wait()
	if err := errors.Join(errs...); err != nil {
		h.Run.Problems = append(h.Run.Problems, err.Error())
	}
	return c.collect(ctx, h)
}

// unexpectedExits lists the processes that exited by themselves.
func (c *Cluster) unexpectedExits() []string {
	var all []string
	for _, n := range c.nodes {
		n.mu.Lock()
		for _, e := range n.exits {
			all = append(all, fmt.Sprintf("%s ended by itself at %d: %s", e.Node, e.At, e.Err))
		}
		n.mu.Unlock()
	}
	return all
}

func commit(root string) string {
	cmd := exec.Command("git", "describe", "--always", "--dirty")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// Explain writes the findings, and the whole story of the first tasks that they are about.
func (r *Report) Explain(out io.Writer) {
	const most, stories = 10, 2 // of each invariant
	count := map[string]int{}
	for _, f := range r.Result.Findings {
		count[f.Invariant]++
		if n := count[f.Invariant]; n <= most {
			fmt.Fprintln(out, f)
			if f.ID != "" && n <= stories {
				check.Story(out, r.History, f.Topic, f.ID)
			}
		}
	}
	fmt.Fprintf(out, "findings: %s\n", byInvariant(r.Result.Findings))
}
