package schemas

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// MaxSteps is how many pauses a Backoff of steps has at most.
const MaxSteps = 32

// Backoff is the pause between attempts. Without Steps it is either always First, without jitter,
// or First doubled per attempt up to Max, jittered. The contract writes "fixed:5s",
// "exponential:1s:10m" or "steps:5s,5m,30m,2h".
type Backoff struct {
	Exponential bool
	First       time.Duration
	Max         time.Duration // equal to First unless Exponential

	// Steps are the pauses after the first attempt, the second, and so on, with commas between, not
	// jittered; the last one repeats. Steps take precedence. Make them with BackoffSteps. An older
	// program knows the other fields only, and doubles from the shortest to the longest.
	Steps string
}

// BackoffSteps returns a Backoff with these pauses: 1 to MaxSteps, each above zero.
func BackoffSteps(pauses ...time.Duration) Backoff {
	if len(pauses) == 0 {
		return Backoff{}
	}
	texts := make([]string, len(pauses))
	for i, p := range pauses {
		texts[i] = p.String()
	}
	return Backoff{Exponential: true, First: slices.Min(pauses), Max: slices.Max(pauses), Steps: strings.Join(texts, ",")}
}

// String gives the contract's form, as in the header.
func (b Backoff) String() string {
	switch {
	case b.Steps != "":
		return "steps:" + b.Steps
	case b.Exponential:
		return "exponential:" + b.First.String() + ":" + b.Max.String()
	}
	return "fixed:" + b.First.String()
}

// Pause returns the pause after the n-th attempt, n from 1. An exponential pause is jittered over
// its upper half, against common returns after a common failure.
func (b Backoff) Pause(attempt int) time.Duration {
	if b.Steps != "" {
		steps := strings.Split(b.Steps, ",")
		pause, _ := time.ParseDuration(steps[max(min(attempt, len(steps)), 1)-1]) // as String writes it
		return pause
	}
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

// setBackoff reads the contract's form.
func (s *Settings) setBackoff(v []byte) *Rejection {
	const fix = "write fixed:5s, exponential:1s:10m or steps:5s,5m,30m,2h"
	kind, rest, _ := bytes.Cut(v, []byte(":"))
	if string(kind) == "steps" {
		b, problem := parseSteps(rest)
		if problem != "" {
			return bad(hBackoff, v, problem, fix)
		}
		s.Backoff = b
		return nil
	}
	first, limit, two := bytes.Cut(rest, []byte(":"))
	b := Backoff{Exponential: string(kind) == "exponential"}
	if !b.Exponential && string(kind) != "fixed" || b.Exponential != two {
		return bad(hBackoff, v, "is not a backoff", fix)
	}
	var problem string
	if b.First, problem = parsePositive(first); problem != "" {
		return bad(hBackoff, v, "has a pause that "+problem, fix)
	}
	b.Max = b.First
	if two {
		if b.Max, problem = parsePositive(limit); problem != "" {
			return bad(hBackoff, v, "has a longest pause that "+problem, fix)
		}
	}
	if b.Max < b.First {
		return bad(hBackoff, v, "has a longest pause below its first", fix)
	}
	s.Backoff = b
	return nil
}

func parseSteps(v []byte) (b Backoff, problem string) {
	texts := bytes.Split(v, []byte(","))
	if len(texts) > MaxSteps {
		return b, fmt.Sprintf("has %d steps, and at most %d may be", len(texts), MaxSteps)
	}
	pauses := make([]time.Duration, len(texts))
	for i, text := range texts {
		if pauses[i], problem = parsePositive(text); problem != "" {
			return b, fmt.Sprintf("has a step %d that %s", i+1, problem)
		}
	}
	return BackoffSteps(pauses...), ""
}
