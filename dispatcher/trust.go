package dispatcher

import (
	"sync/atomic"

	"github.com/notyet/notyet/internal/copies"
	"github.com/notyet/notyet/internal/election"
)

// trust says whether this process may act as the owner of its slots. Every loop asks it.
type trust struct {
	*shared
	members   election.Source
	suspended suspension    // while it is active, nothing is claimed or sent
	copies    *copies.Watch // while it holds, likewise; nil: it never does
}

// trusted says whether anything may be claimed or sent now. Lost trust stays lost until the owner
// loop has made sure that nobody else took the slots meanwhile.
func (tr *trust) trusted() bool {
	if !tr.members.Trusted() {
		if tr.suspended.lose() {
			tr.kicks.Own.Now()
		}
		return false
	}
	return !tr.suspended.active() && !tr.copies.Holds()
}

// suspension keeps in mind that trust in the election was lost. It lasts until a look at the slots
// has shown their owners, and only a look begun after the latest loss ends it: several loops look,
// and trust may be lost again meanwhile.
type suspension struct {
	losses  atomic.Int64 // of trust, so far; whoever notices one adds to it
	checked atomic.Int64 // how many of them a look at the slots has followed
}

// lose notes a loss and reports whether it is the first since the last look.
func (s *suspension) lose() bool { return s.losses.Add(1)-1 == s.checked.Load() }

func (s *suspension) active() bool { return s.losses.Load() != s.checked.Load() }

// look returns the argument for end, once the look that begins now has ended well.
func (s *suspension) look() int64 { return s.losses.Load() }

func (s *suspension) end(look int64) {
	for {
		if at := s.checked.Load(); at >= look || s.checked.CompareAndSwap(at, look) {
			return
		}
	}
}
