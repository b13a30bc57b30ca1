package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/loop"
)

// Pauses between terms. The first is short: after a lost connection about a third of the trust
// window is left to find another server. Then pauses double, so as not to flood a restarting
// ensemble.
const (
	minPause = 20 * time.Millisecond
	maxPause = time.Second
)

// Member is the Source of one member among several. It lives through many terms; view remembers.
type Member struct {
	cfg      Config
	epochs   Epochs
	log      *zap.Logger
	ground   ground
	instance string // this process start: distinguishes our left-over candidate from another process with our id
	started  int64  // Unix ms, for people who look at the candidate
	*view           // implements Source, with health
	health

	// Of Run.
	rests int       // in a row, as long as this process fails again soon
	back  time.Time // when the latest one ended
}

var _ Source = (*Member)(nil)

// ground keeps an election's candidates and assignment: an ensemble of ZooKeeper, or the database.
type ground interface {
	// open begins the nth term.
	open(ctx context.Context, nth int) (*term, error)
	// othersWork asks, after leaving, whether another member works. true also means "unknown".
	othersWork(ctx context.Context) bool
}

// NewZooKeeper validates cfg and prepares a member. Run is the first to connect.
func NewZooKeeper(cfg Config, epochs Epochs, log *zap.Logger) (*Member, error) {
	cfg, err := cfg.withDefaults()
	if err == nil {
		err = cfg.validateZooKeeper()
	}
	if err != nil {
		return nil, err
	}
	m := newMember(cfg, epochs, log)
	servers := slices.Clone(cfg.Servers)
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	m.ground = &quorum{m: m, paths: pathsUnder(cfg.Root), servers: servers}
	return m, nil
}

func newMember(cfg Config, epochs Epochs, log *zap.Logger) *Member {
	if log == nil {
		log = zap.NewNop()
	}
	log = log.With(zap.String("member", cfg.MemberID))
	return &Member{
		cfg:      cfg,
		epochs:   epochs,
		log:      log,
		instance: cfg.Instance,
		started:  time.Now().UnixMilli(),
		view:     newView(cfg.MemberID, cfg.Instance, log),
	}
}

// MemberID returns the id of this process in the election: the configured one or the default.
func (m *Member) MemberID() string { return m.cfg.MemberID }

func (m *Member) memberData() memberData {
	return memberData{ID: m.cfg.MemberID, Instance: m.instance, Started: m.started, Installation: m.cfg.Installation, Can: m.cfg.Can}
}

// Run serves one term after the other, each with the next server in turn, until ctx ends. It fails
// with ErrOtherInstallation if the root is another installation's.
func (m *Member) Run(ctx context.Context) error {
	var ending sync.WaitGroup // what earlier terms still have to unwind
	defer ending.Wait()
	defer m.view.distrust()
	ended := 0 // terms in a row that did not begin
	for nth := 0; ctx.Err() == nil; nth++ {
		joined, err := m.serveTerm(ctx, nth, &ending)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, ErrOtherInstallation) {
			return err
		}
		if errors.Is(err, errFailing) {
			m.log.Warn("leaving the election, until this process can work again", zap.Error(err))
			m.rest(ctx)
			ended = 0
			continue
		}
		if ended++; joined {
			ended = 1
		}
		rest := loop.Pause(ended, minPause, maxPause)
		m.log.Warn("election term ended", zap.Bool("joined", joined), zap.Duration("pause", rest), zap.Error(err))
		loop.Rest(ctx, rest/2+rand.N(rest/2+1))
	}
	return nil
}
