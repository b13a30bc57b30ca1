//go:build !faultpoints

package faultpoint

import "time"

// At returns nil.
func At(string) error { return nil }

// Clock returns 0.
func Clock() time.Duration { return 0 }
