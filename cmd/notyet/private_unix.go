//go:build unix

package main

import "syscall"

// privateFiles makes new files of this process private to the user. The embedded servers would make
// theirs readable for everybody.
func privateFiles() { syscall.Umask(0o077) }
