//go:build faultpoints

package machine

import (
	"fmt"
	"os"
	"time"

	"github.com/notyet/notyet/internal/machine/clockfile"
)

// variable names the file of the simulated clocks. init takes the variable out of the environment.
const variable = "NOTYET_FAULT_CLOCKS"

var simulated *clockfile.File

func init() {
	path := os.Getenv(variable)
	_ = os.Unsetenv(variable)
	if path == "" {
		return
	}
	var err error
	if simulated, err = clockfile.Open(path); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", variable, err)
		os.Exit(2)
	}
}

func monotonic() time.Time {
	now := time.Now()
	if simulated == nil {
		return now
	}
	c := simulated.Get()
	return now.Add(c.SlewedAt(now) - c.Slept)
}

func look() (slewed, slept time.Duration) {
	slewed, slept = clocks()
	if simulated == nil {
		return slewed, slept
	}
	c := simulated.Get()
	return slewed + c.SlewedAt(time.Now()), slept + c.Slept
}

// wall returns the wall clock, which counts the time of a suspend.
func wall(t time.Time) time.Time {
	if simulated == nil {
		return t
	}
	c := simulated.Get()
	return t.Add(c.Offset + c.Slept)
}
