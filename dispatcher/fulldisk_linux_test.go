package dispatcher

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
)

// fill makes every write to the files that are open below dir fail as on a full disk.
func fill(t *testing.T, dir string) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	require.NoError(t, err)
	defer full.Close()
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	filled := 0
	for _, fd := range open {
		path, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err != nil || !strings.HasPrefix(path, dir) || filepath.Ext(path) != ".log" {
			continue
		}
		n, err := strconv.Atoi(fd.Name())
		require.NoError(t, err)
		require.NoError(t, syscall.Dup3(int(full.Fd()), n, syscall.O_CLOEXEC))
		filled++
	}
	require.Positive(t, filled, "the send log writes elsewhere: the test would prove nothing")
}

// A dispatcher whose send log finds no room sends nothing that it could not note, ends with the cause, and another takes
// its slots.
func TestFullDiskEndsTheDispatcher(t *testing.T) {
	f := newFixture(t, 2, "orders")
	orders, dir, m := f.read("orders"), t.TempDir(), f.elect(5)
	one := f.start(m, dir, Config{MemberID: "one"})
	f.schedule(askMany(20, "orders", "before", time.Now(), schemas.HeaderEvents, "none")...)
	f.eventually("they are delivered and settled", func() bool {
		return orders.count() == 20 && one.inside(func(in flight.Figures) int { return in.Claimed }) == 0
	})

	fill(t, dir)
	f.schedule(askMany(20, "orders", "after", time.Now(), schemas.HeaderEvents, "none")...)
	select {
	case err := <-one.done:
		require.ErrorIs(t, err, sendlog.ErrBroken)
		require.ErrorIs(t, err, syscall.ENOSPC)
	case <-time.After(bound):
		require.Fail(t, "it goes on with a send log that is broken")
	}
	one.stop()
	one.stop = nil
	require.ErrorIs(t, one.sent.Close(), sendlog.ErrBroken)
	require.Equal(t, 20, orders.count(), "what could not be noted was not sent")

	f.start(f.elect(6), t.TempDir(), Config{MemberID: "two"})
	f.eventually("another delivers them", func() bool { return len(orders.copies()) == 40 })
	for id, copies := range orders.copies() {
		require.Equal(t, 1, copies, id)
	}
}
