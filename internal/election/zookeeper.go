package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
)

// Pauses between terms. The first is short, because a member that lost its connection has about a
// third of its trust window left to find another server. Then they double, so that an ensemble that
// restarts is not flooded.
const (
	minPause = 20 * time.Millisecond
	maxPause = time.Second
)

// ZooKeeper is the Source of one member among several. It lives through many terms; its view keeps
// what it knows.
type ZooKeeper struct {
	cfg      Config
	epochs   Epochs
	log      *zap.Logger
	paths    paths
	instance string // this process start: distinguishes our left-over ephemeral from another process with our id
	started  int64  // Unix ms, for people who look at the znode
	view     *view
	health   health

	// Of Run.
	pause time.Duration // of the next rest, if this process fails again soon
	back  time.Time     // when the latest one ended
}

var _ Source = (*ZooKeeper)(nil)

// NewZooKeeper validates cfg and prepares a member. It does not connect before Run.
func NewZooKeeper(cfg Config, epochs Epochs, log *zap.Logger) (*ZooKeeper, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = zap.NewNop()
	}
	log = log.With(zap.String("member", cfg.MemberID))
	instance := uuid.NewString()
	return &ZooKeeper{
		cfg:      cfg,
		epochs:   epochs,
		log:      log,
		paths:    pathsUnder(cfg.Root),
		instance: instance,
		started:  time.Now().UnixMilli(),
		view:     newView(cfg.MemberID, instance, log),
	}, nil
}

// MemberID returns the id under which this process joins: the configured one or the default.
func (z *ZooKeeper) MemberID() string { return z.cfg.MemberID }

// Watch implements Source.
func (z *ZooKeeper) Watch() <-chan struct{} { return z.view.watch }

// Current implements Source.
func (z *ZooKeeper) Current() Assignment { return z.view.assignment() }

// Trusted implements Source.
func (z *ZooKeeper) Trusted() bool { return z.view.trusted() }

// Alive implements Source.
func (z *ZooKeeper) Alive(member string) bool { return z.view.alive(member) }

// Report implements Source.
func (z *ZooKeeper) Report(err error) { z.health.report(err) }

func (z *ZooKeeper) memberData() memberData {
	return memberData{ID: z.cfg.MemberID, Instance: z.instance, Started: z.started, Installation: z.cfg.Installation}
}

// Run serves one term after the other, each with the next server in turn, until ctx ends. It fails
// with ErrOtherInstallation if the root is another installation's.
func (z *ZooKeeper) Run(ctx context.Context) error {
	var ending sync.WaitGroup // what earlier terms still have to unwind
	defer ending.Wait()
	defer z.view.distrust()
	servers := shuffled(z.cfg.Servers)
	pause := minPause
	for n := 0; ctx.Err() == nil; n++ {
		joined, err := z.serveTerm(ctx, servers[n%len(servers)], &ending)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, ErrOtherInstallation) {
			return err
		}
		if errors.Is(err, errFailing) {
			z.log.Warn("leaving the election, until this process can work again", zap.Error(err))
			z.rest(ctx)
			pause = minPause
			continue
		}
		if joined {
			pause = minPause
		}
		z.log.Warn("election term ended", zap.Bool("joined", joined), zap.Duration("pause", pause), zap.Error(err))
		sleep(ctx, pause/2+rand.N(pause/2+1))
		pause = min(2*pause, maxPause)
	}
	return nil
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func shuffled(servers []string) []string {
	out := append([]string(nil), servers...)
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
