package election

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/machine"
)

// view is a member's knowledge. One term at a time writes; everybody reads.
type view struct {
	member   string
	instance string
	log      *zap.Logger
	watch    chan struct{}

	mu      sync.Mutex
	shared  sharing         // newest one applied; its epoch never falls
	current Assignment      // the same, as this member sees it
	members map[string]bool // ids of the candidates read last
	heard   machine.Instant // when the last answered request was SENT, so that a slow reply does not extend trust; zero: no trust
	window  time.Duration   // trust window of the session that answered
	expiry  *time.Timer     // fires when the window ends
}

func newView(member, instance string, log *zap.Logger) *view {
	v := &view{member: member, instance: instance, log: log, watch: make(chan struct{}, 1)}
	v.expiry = time.AfterFunc(time.Hour, v.lapsed)
	v.expiry.Stop()
	return v
}

// Watch implements Source.
func (v *view) Watch() <-chan struct{} { return v.watch }

// apply applies one round's reading, all at once. The assignment must have been read before the
// members. A member in the assignment, but missing among the members, has then died.
func (v *view) apply(sent machine.Instant, window time.Duration, s sharing, members []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	changed := v.setMembers(members) || !v.fresh() // setMembers first: it must run
	v.heard, v.window = sent, window
	v.expiry.Reset(window - machine.Exact().Elapsed(sent))
	if s.Epoch > v.shared.Epoch {
		v.shared, v.current = s, s.of(v.member, v.instance)
		changed = true
		v.log.Info("new slot assignment", zap.Int64("epoch", s.Epoch), zap.Int("slots", len(v.current.Slots)), zap.Int("members", len(s.Members)))
	}
	if changed {
		signal(v.watch)
	}
}

// setMembers replaces the set and reports whether it has changed.
func (v *view) setMembers(ids []string) bool {
	known := v.members
	v.members = make(map[string]bool, len(ids))
	changed := len(ids) != len(known)
	for _, id := range ids {
		v.members[id] = true
		changed = changed || !known[id]
	}
	return changed
}

// distrust ends trust now, because the member's ephemeral is gone or about to be deleted.
func (v *view) distrust() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.expiry.Stop()
	if v.heard.Time.IsZero() {
		return
	}
	v.heard = machine.Instant{}
	signal(v.watch)
}

// lapsed runs when the window may have ended. A round applied meanwhile has extended the window.
func (v *view) lapsed() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fresh() || v.heard.Time.IsZero() {
		return
	}
	v.log.Warn("not heard from the ensemble within the trust window", zap.Duration("window", v.window))
	signal(v.watch)
}

// fresh needs mu. Steps of the wall clock do not count. A suspended machine's time does.
func (v *view) fresh() bool {
	return !v.heard.Time.IsZero() && machine.Exact().Elapsed(v.heard) < v.window
}

// Trusted implements Source.
func (v *view) Trusted() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.fresh()
}

// Current implements Source.
func (v *view) Current() Assignment {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.current
}

func (v *view) sharing() sharing {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.shared
}

// Alive implements Source.
func (v *view) Alive(member string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.fresh() || v.members[member]
}
