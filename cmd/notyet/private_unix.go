//go:build unix

package main

import "syscall"

// privateFiles makes every file of this process from now on one that nobody else can read: the embedded servers make
// theirs readable for all.
func privateFiles() { syscall.Umask(0o077) }
