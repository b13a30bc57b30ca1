package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
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
	For      time.Duration // how long requests keep coming
	Rate     int           // lives begun a second; a life has 1.3 requests
	Burst    int           // tasks of one burst
	Longest  time.Duration // farthest due time of an ordinary task
	Faults   []string      // kinds; none means all
	Rounds   int           // how often each kind is broken at most; 0: as often as time allows
}

// Report is what a run came to.
type Report struct {
	Config  Config
	History *history.History
	Result  check.Result
	Took    time.Duration
}

// Run does everything and judges it. An error means that the run itself failed; what was found is in the report, whose
// history is saved in Dir.
func Run(ctx context.Context, cfg Config, log *zap.Logger) (rep Report, err error) {
	kinds, err := faultsNamed(cfg.Faults)
	if err != nil {
		return rep, err
	}
	c, err := NewCluster(ctx, cfg.Root, cfg.Dir, cfg.BasePort, log)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	begin := time.Now()
	if err := c.AwaitWhole(ctx, 2*time.Minute); err != nil {
		return rep, err
	}
	h, err := c.suffer(ctx, cfg, kinds)
	if err != nil {
		return rep, err
	}
	h.Run.Seed, h.Run.Commit, h.Run.Intake, h.Run.Slots, h.Run.Session = cfg.Seed, commit(cfg.Root), intakeTopic, slotCount, session.Milliseconds()
	h.Run.Start, h.Run.End = begin.UnixMilli(), time.Now().UnixMilli()
	if err := c.settle(ctx, h); err != nil {
		return rep, err
	}
	if err := h.Save(filepath.Join(cfg.Dir, "history.ndjson")); err != nil {
		return rep, err
	}
	log.Info("judging", zap.Int("requests", len(h.Ops)), zap.Int("deliveries", len(h.Deliveries)))
	return Report{Config: cfg, History: h, Result: check.Run(h, check.Bounds{}), Took: time.Since(begin)}, nil
}

// suffer lets requests come and breaks things, then heals and drains. What is noted so far is the history that it returns.
func (c *Cluster) suffer(ctx context.Context, cfg Config, kinds []fault) (*history.History, error) {
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
	coming, stop := context.WithTimeout(ctx, cfg.For)
	defer stop()
	loading.Go(func() { l.run(ctx, coming, cfg.Rate) })
	var unrest []string
	if err := c.breakAll(ctx, coming, cfg, kinds, l, rec); err != nil {
		unrest = append(unrest, err.Error())
		stop()
	} else if cfg.Rounds > 0 {
		stop() // nothing more will be broken
	}
	loading.Wait()
	c.log.Info("no more requests", zap.Int64("requests", l.ops.Load()))
	if err := c.drain(ctx, cfg.Longest+3*time.Minute); err != nil {
		unrest = append(unrest, err.Error())
	}
	cancel()
	watching.Wait()
	h := rec.History()
	h.Run.Unrest = append(unrest, c.surprises()...)
	return h, nil
}

// breakAll breaks one thing after the other, each kind once a round in an order that the seed decides.
func (c *Cluster) breakAll(ctx, coming context.Context, cfg Config, kinds []fault, l *load, rec *history.Recorder) error {
	b := &breaker{Cluster: c, ctx: ctx, rng: rand.New(rand.NewPCG(cfg.Seed, 0)), load: l, burst: cfg.Burst}
	b.until(time.Minute, func() bool { // every partition has brought something, so that no fault meets a cluster in the making
		return b.count(ctx, "SELECT COUNT(*) FROM "+database+".sources WHERE next_offset > 0") == 2*partCount
	})
	n := 0
	for round := 0; cfg.Rounds == 0 || round < cfg.Rounds; round++ {
		for _, i := range b.rng.Perm(len(kinds)) {
			if coming.Err() != nil {
				return nil
			}
			n++
			f, err := b.breakOne(n, kinds[i])
			rec.Fault(f)
			if err != nil {
				return err
			}
			b.wait(b.between(time.Second/2, 2*time.Second))
		}
	}
	return nil
}

// settle looks at the state of rest, stops the processes in good order and reads what there is to read.
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
		h.Run.Unrest = append(h.Run.Unrest, err.Error())
	}
	return c.collect(ctx, h)
}

// surprises are processes that ended by themselves.
func (c *Cluster) surprises() []string {
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
