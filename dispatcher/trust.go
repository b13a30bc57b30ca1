package dispatcher

import "sync/atomic"

// suspension keeps in mind that trust in the election was lost. It lasts until a look at the slots has shown whose they are, and
// only a look that began after the latest loss ends it: several loops look, and trust may be lost again meanwhile.
type suspension struct {
	losses  atomic.Int64 // of trust, so far; whoever notices one adds to it
	checked atomic.Int64 // how many of them a look at the slots has followed
}

// lose notes a loss and reports whether it is the first since the last look.
func (s *suspension) lose() bool { return s.losses.Add(1)-1 == s.checked.Load() }

func (s *suspension) active() bool { return s.losses.Load() != s.checked.Load() }

// look returns what end is to be given once the look that begins now has ended well.
func (s *suspension) look() int64 { return s.losses.Load() }

func (s *suspension) end(look int64) {
	for {
		if at := s.checked.Load(); at >= look || s.checked.CompareAndSwap(at, look) {
			return
		}
	}
}
