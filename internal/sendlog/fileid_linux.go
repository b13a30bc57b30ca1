package sendlog

import (
	"fmt"
	"syscall"

	"github.com/gofrs/flock"
)

// fileID names the file that is locked, among all files of this machine.
func fileID(lock *flock.Flock) (string, error) {
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
