//go:build !faultpoints

package faultpoint

import "time"

// At is nil.
func At(string) error { return nil }

// Clock is 0.
func Clock() time.Duration { return 0 }
