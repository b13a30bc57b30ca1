package copies

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/notyet/notyet/internal/loop"
)

const (
	// strangersFor is how long scanners may be at work without a sign of life in the database. One
	// that cannot write there tells the group so within 25 s.
	strangersFor = 30 * time.Second
	// asksFor is how long one question about them may take.
	asksFor = 5 * time.Second
)

// Sign is a sign of life of another scanner, as the database has it: the latest one, and when that
// scanner started, in ms by the clock of the database.
type Sign struct{ Seen, Started int64 }

// Strangers finds scanners at work on another copy of the database, which would lose partitions to
// this one. All is required.
type Strangers struct {
	Group  string
	AtWork func(context.Context) ([]string, error) // the group's members that say that they work
	Signs  func(context.Context) ([]Sign, error)   // of living scanners, without this one
	Every  time.Duration                           // between two signs of a scanner
}

// Check refuses to start beside them. Scanners that write to this copy have noted there twice that
// they live: one that waits here beside this one has done so once. Without an answer, the scanner
// starts.
func (s Strangers) Check(ctx context.Context) error {
	for began := time.Now(); ctx.Err() == nil; loop.Rest(ctx, time.Second) {
		scanners, known, err := s.look(ctx)
		if err != nil || len(scanners) == 0 || known {
			return nil
		}
		if time.Since(began) >= strangersFor {
			return fmt.Errorf("scanners of the consumer group %s work on another copy of this database, or `reconcile` is at work: %s have not written to the database of mysql.dsn for %v. Correct mysql.dsn, or stop them; see docs/recovery.md", s.Group, strings.Join(scanners, ", "), strangersFor)
		}
	}
	return nil
}

// look returns the scanners at work, and whether one of them is known to work on this copy.
func (s Strangers) look(ctx context.Context) (scanners []string, known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, asksFor)
	defer cancel()
	if scanners, err = s.AtWork(ctx); err != nil || len(scanners) == 0 {
		return nil, false, err
	}
	signs, err := s.Signs(ctx)
	known = slices.ContainsFunc(signs, func(v Sign) bool {
		apart := max(v.Seen-v.Started, v.Started-v.Seen) // the database's clock may have been set back
		return apart >= s.Every.Milliseconds()
	})
	return scanners, known, err
}
