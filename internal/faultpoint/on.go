//go:build faultpoints

package faultpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const pointsVariable = "NOTYET_FAULTPOINTS"

type place struct {
	passed atomic.Int64
	faults []fault
}

// fault is an action at some passings of a place.
type fault struct {
	action   string // kill, error or stall
	pause    time.Duration
	from, to int64 // the first and the last passing
}

var armed map[string]*place

// The variable is taken out of the environment: an unknown setting would be a mistake.
func init() {
	var err error
	if armed, err = parse(os.Getenv(pointsVariable)); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", pointsVariable, err)
		os.Exit(2)
	}
	_ = os.Unsetenv(pointsVariable)
}

func parse(text string) (map[string]*place, error) {
	out := map[string]*place{}
	for one := range strings.SplitSeq(text, ",") {
		if one == "" {
			continue
		}
		name, what, _ := strings.Cut(one, "=")
		if !known(name) {
			return nil, fmt.Errorf("%q is no place", name)
		}
		f, err := parseFault(what)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one, err)
		}
		if out[name] == nil {
			out[name] = &place{}
		}
		out[name].faults = append(out[name].faults, f)
	}
	return out, nil
}

func known(name string) bool {
	for _, r := range Rows {
		if r.Name == name {
			return true
		}
	}
	return false
}

func parseFault(text string) (fault, error) {
	what, when, counted := strings.Cut(text, "@")
	f := fault{from: 1}
	action, pause, long := strings.Cut(what, ":")
	f.action = action
	if action != "kill" && action != "error" && action != "stall" || long != (action == "stall") {
		return f, fmt.Errorf("%q is neither kill, error nor stall:DURATION", what)
	}
	var err error
	if long {
		if f.pause, err = time.ParseDuration(pause); err != nil {
			return f, err
		}
	}
	times := int64(1)
	if counted {
		first, n, several := strings.Cut(when, "x")
		if f.from, err = strconv.ParseInt(first, 10, 64); err != nil {
			return f, err
		}
		if several {
			if times, err = strconv.ParseInt(n, 10, 64); err != nil {
				return f, err
			}
		}
	}
	if f.to = f.from + times - 1; f.from < 1 || f.to < f.from {
		return f, fmt.Errorf("%q: passings are counted from 1", when)
	}
	return f, nil
}

var watch atomic.Pointer[func(name string)]

// Watch has a test told of every passing of a place, for as long as the program runs.
func Watch(f func(name string)) { watch.Store(&f) }

// At carries out a place's faults, with a report on standard error for the test.
func At(name string) error {
	if f := watch.Load(); f != nil {
		(*f)(name)
	}
	p := armed[name]
	if p == nil {
		return nil
	}
	n := p.passed.Add(1)
	for _, f := range p.faults {
		if n >= f.from && n <= f.to {
			return f.happen(name)
		}
	}
	return nil
}

func (f fault) happen(name string) error {
	fmt.Fprintf(os.Stderr, "faultpoint: %s: %s\n", name, f.action)
	switch f.action {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // wait for the signal
	case "stall":
		time.Sleep(f.pause)
		return nil
	}
	return fmt.Errorf("injected at %s", name)
}
