package intake

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/stretchr/testify/require"
)

// contest lets several processes at one database and answers what they saw that must not be; nothing else of it may fail.
// Each is run twice: on a store as it is, where nothing may be found, and on one without a condition, where something must be.
type contest func(s *fixture) *violations

// The conditions that contests are run without.
func noSharedLock(c *handle.Conditions)    { c.Shared = "" }     // writers read claimed, but do not hold it where it is
func noExclusiveLock(c *handle.Conditions) { c.Exclusive = "" }  // writers read what they are about to change, but do not lock it
func noOffsetCheck(c *handle.Conditions)   { c.Expected = ">=" } // a batch counts as often as it is brought

// noEpochCheck lets an owner of the past still count.
func noEpochCheck(c *handle.Conditions) {
	c.Held, c.HeldUnder = " AND epoch >= ?", func(store.Slot, int64) bool { return true }
}

// noReleaseCheck lets a slot be given back as it is, and its epoch still count.
func noReleaseCheck(c *handle.Conditions) {
	c.Held, c.HeldUnder, c.Drained = " AND epoch = ?", func(slot store.Slot, epoch int64) bool { return slot.Epoch == epoch }, ""
}

type violations struct {
	mu   sync.Mutex
	list []string
	errs []error
}

func (v *violations) add(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.list = append(v.list, fmt.Sprintf(format, args...))
}

func (v *violations) any() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.list) > 0
}

func (v *violations) fail(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.errs = append(v.errs, err)
}

// holds runs the contest on every database.
func holds(t *testing.T, c contest) {
	t.Helper()
	eachAtOnce(t, func(t *testing.T, s *fixture) {
		v := c(s)
		require.Empty(t, v.errs)
		require.Empty(t, first(v.list))
	})
}

func first(list []string) []string { return list[:min(len(list), 5)] }

// notices runs the contest with a condition taken away until a violation shows. A busy machine gets
// five minutes for the few rounds that are enough. SQLite's writers are serial by themselves: a lock
// that is missing can only be noticed on MySQL, where there is one.
func notices(t *testing.T, without func(*handle.Conditions), c contest) {
	t.Helper()
	if os.Getenv("NOTYET_LONG") == "" {
		t.Skip("NOTYET_LONG=1 runs it: it judges the contest, not the store")
	}
	probe := handle.AllConditions()
	without(&probe)
	locks := probe.Shared == "" || probe.Exclusive == ""
	for _, b := range backends() {
		if b.sqlite && locks {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			for began, round := time.Now(), 1; ; round++ {
				s := b.fixture(t)
				without(&s.h.Conditions)
				v := c(s)
				if len(v.list) > 0 {
					t.Logf("round %d: %d violations, as: %s", round, len(v.list), v.list[0])
					return
				}
				require.Less(t, time.Since(began), 5*time.Minute, "%d rounds without the condition, and nothing was noticed; errors: %v", round, v.errs)
			}
		})
	}
}

// rival is the store as another contestant sees it: another process, with the same conditions. SQLite is embedded in one
// process, whose goroutines share the store.
func (f *fixture) rival() *store.Store {
	if f.backend.sqlite {
		return f.Store
	}
	s := f.another()
	handle.Of(s).Conditions = f.h.Conditions
	return s
}
