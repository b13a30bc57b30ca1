package main

import (
	"fmt"
	"runtime"
)

type versionCmd struct{ asJSON }

// Run prints the version and the build.
func (c *versionCmd) Run(a *app) error {
	if c.JSON {
		return a.json(map[string]string{"version": version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
	}
	fmt.Fprintf(a.stdout, "notyet %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}
