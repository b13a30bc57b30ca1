//go:build !faultpoints

package faultpoint

import "time"

// At is nil.
func At(string) error { return nil }

// Without is false.
func Without(Fix) bool { return false }

// Clock is 0.
func Clock() time.Duration { return 0 }
