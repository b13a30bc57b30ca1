package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/store"
)

// older is a member of a release that knows nothing of changes of the number of slots. It comes back amid one.
type older struct {
	yes  bool
	how  int // it is stopped before, dropped dead or paused, or stays and may lead
	back time.Duration
}

const (
	olderStopped = iota
	olderDead
	olderPaused
	olderStays
)

func (p *plan) drawOlder() {
	r := rand.New(rand.NewPCG(p.seed, 109))
	if p.seed < returnSeeds && r.IntN(10) > 0 || p.seed >= returnSeeds && p.seed%4 != 2 || p.logCut.yes || p.forgets || p.silent || p.hush != hushNone || p.moves > 0 || p.hostile {
		return
	}
	p.keepWell()
	at := 2*time.Second + time.Duration(r.Int64N(int64(2*time.Second)))
	p.older = older{true, r.IntN(4), at + time.Second + time.Duration(r.Int64N(int64(10*time.Second)))}
	p.alone = r.IntN(2) == 0
	p.zookeeper, p.dispatchers = !p.alone, 2+r.IntN(2)
	p.growth, p.stall, p.longest = []slotsSet{{at, p.slots + 1 + r.IntN(4)}}, true, 30_000
}

// olderName is the oldest dispatcher: where nothing is required, it leads.
const olderName = "dispatcher-0"

// can tells what a member knows.
func (w *world) can(cfg election.Config, st *store.Store) election.Config {
	if w.older.yes && cfg.MemberID != olderName {
		cfg.Can, cfg.Required = store.Can(), st.Required
	}
	return cfg
}

// olderTroubles has the member away when the number of slots begins to change, and back amid the change.
func (w *world) olderTroubles() []trouble {
	if !w.older.yes || w.older.how == olderStays {
		return nil
	}
	n, at := w.nodes[w.scanners], w.growth[0].at-time.Second
	t := trouble{kind: "an older member that comes back", target: olderName, at: at, lasts: w.older.back - at, moves: true, copies: true}
	t.begin = func() {
		n.busy.Lock()
		switch w.older.how {
		case olderStopped:
			n.stop()
		case olderDead:
			n.kill()
		default:
			n.freeze()
		}
	}
	t.end = func() {
		n.thaw()
		n.start()
		n.busy.Unlock()
	}
	return []trouble{t}
}

// watchRequired notes when something is required of members, until ctx ends.
func (w *world) watchRequired(ctx context.Context) {
	for was := false; w.older.yes && pause(ctx, 50*time.Millisecond) == nil; {
		words, err := w.admin.Required(ctx)
		if err != nil {
			continue
		}
		switch now := len(words) > 0; {
		case now && !was:
			w.required = append(w.required, interval{from: time.Now()})
		case was && !now:
			w.required[len(w.required)-1].to = time.Now()
		}
		was = len(words) > 0
	}
}

// judgeOlder: a member takes no slot while something is required that it does not know, and keeps none. Whoever leads has some time to learn
// of it, and the member to drain.
func (w *world) judgeOlder() {
	if !w.older.yes {
		return
	}
	within := 2*w.session + 2*time.Second
	for _, i := range w.required {
		drained := i.from.Add(within + w.dispatcher.DrainTimeout + 7*time.Second)
		for slot := 0; i.to.IsZero() || drained.Before(i.to); slot++ {
			o, _ := w.truth.ownerAt(slot, drained, "")
			if o.at.IsZero() {
				break
			}
			if o.owner == olderName {
				w.find("abilities", "%s still has slot %d, %v after it was required of members to know of changes of their number, and does not", olderName, slot, drained.Sub(i.from))
				return
			}
		}
		for _, o := range w.truth.owners {
			if o.owner == olderName && o.at.After(i.from.Add(within)) && (i.to.IsZero() || o.at.Before(i.to)) {
				w.find("abilities", "%s took slot %d under epoch %d, %v after it was required of members to know of changes of their number, and does not", olderName, o.slot, o.epoch, o.at.Sub(i.from))
				return
			}
		}
	}
	if len(w.required) == 0 {
		w.find("sim", "nothing was required of members")
	}
}
