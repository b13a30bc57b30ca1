package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/test/program"
)

// world is an installation of its own whose processes can be armed: a scanner and a dispatcher on
// real servers, or one notyet dev that keeps everything in a directory.
type world struct {
	*stack
	binary string
	dir    string
	env    []string
	http   string // of dev
	starts int
}

func TestMain(m *testing.M) { os.Exit(program.Run(m)) }

// buildFaulty builds the program with its fault points.
func buildFaulty(t *testing.T) string { return program.Binary(t, "-tags", "faultpoints") }

func newWorld(t *testing.T, binary string, real bool) *world {
	w := &world{binary: binary, dir: t.TempDir()}
	if real {
		w.stack = newStackOf(t, true, 2)
		w.env = w.environ()
		return w
	}
	w.stack = &stack{t: t, name: "dev", intake: "notyet.intake", reports: "notyet.reports", results: "notyet.results", log: logger(t)}
	w.kafka.Brokers, w.http = []string{program.FreeAddr(t)}, program.FreeAddr(t)
	w.dsn = "sqlite:" + filepath.Join(w.dir, "data", "notyet.db")
	w.env = append(w.environ(), "NOTYET_HTTP_ADDR="+w.http)
	var err error
	w.client, err = kafka.NewProducer(w.kafka, w.log)
	require.NoError(t, err)
	t.Cleanup(w.client.Close)
	return w
}

// run starts a process with faults armed at a place. A process keeps its name and its directories
// when it is started again.
func (w *world) run(name, point string, faults []string, args ...string) *proc {
	w.starts++
	log, err := os.Create(filepath.Join(w.dir, fmt.Sprintf("%s-%d.log", name, w.starts)))
	require.NoError(w.t, err)
	defer log.Close()
	cmd := exec.Command(w.binary, args...)
	armed := make([]string, len(faults))
	for i, f := range faults {
		armed[i] = point + "=" + f
	}
	cmd.Env = append(w.env[:len(w.env):len(w.env)], "NOTYET_FAULTPOINTS="+strings.Join(armed, ","))
	if w.real {
		cmd.Env = append(cmd.Env, "NOTYET_HTTP_ADDR=127.0.0.1:0", "NOTYET_DISPATCHER_MEMBER_ID="+name, "NOTYET_SENDLOG_DIR="+filepath.Join(w.dir, name+"-sendlog"))
	}
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(w.t, cmd.Start())
	p := &proc{t: w.t, cmd: cmd, name: name, log: log.Name(), done: make(chan error, 1)}
	go func() { p.done <- cmd.Wait() }()
	w.t.Cleanup(func() {
		p.stop()
		showLog(w.t, p.log)
	})
	return p
}

// serve starts the process of that name; every embedded one is dev.
func (w *world) serve(name, point string, faults []string) *proc {
	if w.real {
		return w.run(name, point, faults, strings.TrimRight(name, "0123456789"))
	}
	return w.run("dev", point, faults, "dev", "--data", filepath.Join(w.dir, "data"), "--kafka-addr", w.kafka.Brokers[0])
}

// hasSaid tells whether the process has printed something.
func (p *proc) hasSaid(what string) bool {
	text, err := os.ReadFile(p.log)
	return err == nil && strings.Contains(string(text), what)
}

// said waits until the process has printed something.
func (p *proc) said(what string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.hasSaid(what) }, 2*time.Minute, 20*time.Millisecond, "%s did not say %q", p.name, what)
}

// faultSaid is what a process prints when a fault happens.
func faultSaid(point, fault string) string {
	action, _, _ := strings.Cut(strings.Split(fault, "@")[0], ":")
	return "faultpoint: " + point + ": " + action + "\n"
}

// struck waits until every fault has happened.
func (p *proc) struck(point string, faults []string) {
	p.t.Helper()
	for _, f := range faults {
		p.said(faultSaid(point, f))
	}
}

// hasStruck tells whether every fault has happened.
func (p *proc) hasStruck(point string, faults []string) bool {
	return !slices.ContainsFunc(faults, func(f string) bool { return !p.hasSaid(faultSaid(point, f)) })
}

// died waits until the process has killed itself.
func (p *proc) died() {
	p.t.Helper()
	select {
	case err := <-p.done:
		p.done <- nil
		require.ErrorContains(p.t, err, "killed")
	case <-time.After(2 * time.Minute):
		require.Fail(p.t, "it did not die", p.name)
	}
}

// isDead tells whether the process has ended.
func (p *proc) isDead() bool {
	select {
	case err := <-p.done:
		p.done <- err
		return true
	default:
		return false
	}
}

func (p *proc) signal(s syscall.Signal) { require.NoError(p.t, p.cmd.Process.Signal(s)) }

// database opens the store that the processes use. For dev it does so only when needed, so that
// nobody else holds the files of a process that dies.
func (w *world) database() *store.Store {
	if w.store == nil {
		st, err := store.Open(w.t.Context(), store.Config{DSN: w.dsn}, w.log)
		require.NoError(w.t, err)
		w.t.Cleanup(func() { _ = st.Close() })
		w.store = st
	}
	return w.store
}

// drifted returns the difference between the index and the pending rows of its window.
func (w *world) drifted() string {
	ctx := context.Background()
	all, err := w.store.Slots(ctx)
	require.NoError(w.t, err)
	for _, s := range all {
		marks, err := w.index.(*index.Index).Marks(ctx, []int{s.Slot})
		require.NoError(w.t, err)
		mark, warm := marks[s.Slot]
		if !warm {
			return fmt.Sprintf("slot %d has no mark", s.Slot)
		}
		rows, err := intake.New(w.store).Line().Entries(ctx, []line.Range{{Slot: s.Slot, From: s.Done, To: mark}})
		require.NoError(w.t, err)
		members, err := w.index.(*index.Index).Members(ctx, s.Slot)
		require.NoError(w.t, err)
		var want, have []string
		for _, r := range rows {
			want = append(want, fmt.Sprintf("%d@%d", r.Seq, r.Pos))
		}
		for _, m := range members {
			if m.Pos <= mark {
				have = append(have, fmt.Sprintf("%d@%d", m.Seq, m.Pos))
			}
		}
		if a, b := fmt.Sprint(want), fmt.Sprint(have); a != b {
			return fmt.Sprintf("slot %d: the database has %s, the index %s", s.Slot, a, b)
		}
	}
	return ""
}
