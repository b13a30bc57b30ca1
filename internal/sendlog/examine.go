package sendlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/gofrs/flock"
)

// Examined is the view of a send log's directory from outside.
type Examined struct {
	Exists bool
	// Installation is the id of the log's installation; "" where none is noted.
	Installation string
	// InUse says that a process has the log open.
	InUse bool
	// Sync is how long the disk takes to make 4 KiB durable: the middle of five times.
	Sync time.Duration
	// Free is the disk's space left for this user, in bytes.
	Free int64
}

// Examine looks at the directory, and tries a small file there. A missing one is not made.
func Examine(dir string) (out Examined, err error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return out, nil
	} else if err != nil {
		return out, err
	}
	out.Exists = true
	noted, err := os.ReadFile(filepath.Join(dir, "installation"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return out, err
	}
	out.Installation = strings.TrimSpace(string(noted))
	if _, err := os.Stat(filepath.Join(dir, "lock")); err == nil {
		lock := flock.New(filepath.Join(dir, "lock"))
		got, err := lock.TryRLock()
		if err != nil {
			return out, fmt.Errorf("looking whether the send log is in use: %w", err)
		}
		out.InUse = !got
		if got {
			_ = lock.Unlock()
		}
	}
	if out.Sync, err = syncTime(dir); err != nil {
		return out, fmt.Errorf("writing to the send log's directory: %w", err)
	}
	usage, err := vfs.Default.GetDiskUsage(dir)
	out.Free = int64(min(usage.AvailBytes, 1<<62))
	return out, err
}

func syncTime(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "doctor-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close(); _ = os.Remove(f.Name()) }()
	took := make([]time.Duration, 5)
	for i := range took {
		began := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
