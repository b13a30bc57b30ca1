// Package doctor looks at every configured server of an installation, and returns findings: place,
// observation and fix. The doctor asks all servers side by side, each once and for a bounded time,
// and then judges the answers with a table of small functions (checks.go).
package doctor

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/store"
)

// Level is how bad a finding is.
type Level string

// The levels, the worst first.
const (
	Failure Level = "failure" // notyet cannot work, or breaks a promise
	Warning Level = "warning" // notyet works, and breaks a promise or stands when something else fails
	Note    Level = "note"    // worth knowing
	OK      Level = "ok"
)

// Finding is one observation.
type Finding struct {
	Check string `json:"check"` // names the question: mysql.durable
	Where string `json:"where"` // the server, topic or directory
	Level Level  `json:"level"`
	Found string `json:"found"`
	Fix   string `json:"fix,omitempty"`
}

// Config selects the servers to look at.
type Config struct {
	// Settings is the installation's configuration. Required.
	Settings *config.Config
	// Kafka, Store, Index, Election and Issuer are how to connect. A nil one is not looked at.
	Kafka    *kafka.Config
	Store    *store.Config
	Index    *index.Config
	Election *election.Config
	Issuer   *access.JWT
	// Disk means: this machine runs a dispatcher, and the send log is looked at.
	Disk bool
	// Running means: a service asks at its own start, when other services may not have started yet.
	Running bool
	// Targets are target topics to look at too.
	Targets []string
	// Version of the program.
	Version string
	// Patience limits the wait for each server. Default 10 s.
	Patience time.Duration
}

// facts are the servers' answers. A nil one was not asked, or did not answer.
type facts struct {
	Config
	*answers
}

type answers struct {
	mu       sync.Mutex
	database *database
	cluster  *cluster
	redis    *index.Examined
	ensemble *election.Examined
	disk     *sendlog.Examined
	issuer   *access.Examined
}

// Look asks the servers and returns the findings, the worst first. The call takes little longer
// than Patience in any case.
func Look(ctx context.Context, cfg Config, log *zap.Logger) []Finding {
	cfg.Patience = cmp.Or(cfg.Patience, 10*time.Second)
	f := facts{Config: cfg, answers: &answers{}}
	out := slices.Concat(f.ask(ctx, log)...)
	f.mu.Lock() // a server that answers too late is not heard any more
	defer f.mu.Unlock()
	for _, c := range checks {
		for _, found := range c.judge(f) {
			found.Check = c.name
			out = append(out, found)
		}
	}
	Sort(out)
	return out
}

// Sort puts the worst findings first.
func Sort(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank(a.Level), rank(b.Level)), strings.Compare(a.Check, b.Check), strings.Compare(a.Where, b.Where))
	})
}

func rank(l Level) int { return slices.Index([]Level{Failure, Warning, Note, OK}, l) }

func (f facts) ask(ctx context.Context, log *zap.Logger) [][]Finding {
	out := make([][]Finding, len(servers))
	var group sync.WaitGroup
	for i, s := range servers {
		if s.configured(f.Config) {
			group.Go(func() { out[i] = []Finding{f.reach(ctx, s, log)} })
		}
	}
	group.Wait()
	return out
}

// reach asks one server, and returns a finding about the answer. A hanging server is left alone.
func (f facts) reach(ctx context.Context, s server, log *zap.Logger) Finding {
	ctx, cancel := context.WithTimeout(ctx, f.Patience)
	defer cancel()
	out := Finding{Check: s.name + ".reachable", Where: s.where(f.Config), Level: OK, Found: "answers"}
	done := make(chan error, 1)
	go func() {
		keep, err := s.ask(ctx, f.Config, log)
		if err == nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			if ctx.Err() == nil {
				keep(f.answers)
			}
		}
		done <- err
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done: // with what it was about to do
		case <-time.After(time.Second):
			err = ctx.Err()
		}
	}
	if err != nil {
		out.Level, out.Found, out.Fix = Failure, oneLine(err), s.fix
	}
	return out
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// Worst returns the worst level among findings.
func Worst(all []Finding) Level {
	worst := OK
	for _, f := range all {
		if rank(f.Level) < rank(worst) {
			worst = f.Level
		}
	}
	return worst
}
