package sendlog

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

// onDisks are file systems with locks kept by this machine alone. A file server may take the lock
// away from a living process without notice.
var onDisks = []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, 0x2fc12fc1 /* ZFS */}

// fileID names the locked file on this machine; "": the file system's locks prove nothing.
func fileID(lock *flock.Flock) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(lock.Path(), &fs); err != nil {
		return "", err
	}
	if !slices.Contains(onDisks, int64(fs.Type)) { //nolint:unconvert // an int32 on some machines
		return "", nil
	}
	info, err := lock.Stat()
	if err != nil {
		return "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", nil
	}
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino), nil
}
