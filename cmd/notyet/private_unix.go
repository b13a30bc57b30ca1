//go:build unix

package main

import "syscall"

// privateFiles makes all files that this process creates private to the user. The embedded servers
// would make theirs readable for everybody.
func privateFiles() { syscall.Umask(0o077) }
