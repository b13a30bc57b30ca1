package schemas

import (
	"math/rand/v2"
	"time"
)

// Backoff is the pause between attempts. It is either always First, without jitter, or First
// doubled per attempt up to Max, jittered. The contract writes "fixed:5s" or "exponential:1s:10m".
type Backoff struct {
	Exponential bool
	First       time.Duration
	Max         time.Duration // equal to First unless Exponential
}

// String gives the contract's form, as in the header.
func (b Backoff) String() string {
	if b.Exponential {
		return "exponential:" + b.First.String() + ":" + b.Max.String()
	}
	return "fixed:" + b.First.String()
}

// Pause returns the pause after the n-th attempt, n from 1. An exponential pause is jittered over
// its upper half, so that what failed together does not come back together.
func (b Backoff) Pause(attempt int) time.Duration {
	if !b.Exponential {
		return b.First
	}
	d := b.First
	for i := 1; i < attempt && d < b.Max; i++ {
		d += min(d, b.Max-d) // doubled, but never past Max: no overflow
	}
	if half := int64(d / 2); half > 0 {
		d -= time.Duration(rand.Int64N(half))
	}
	return d
}
