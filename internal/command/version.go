package command

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
)

// release is the latest one in CHANGELOG.md.
const release = "0.1.0"

// commit is set by the build: -ldflags "-X github.com/notyet/notyet/internal/command.commit=…".
var commit string

// Version returns the release and the commit of this program, as a semantic version.
var Version = sync.OnceValue(func() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(commit, info)
})

// versionOf falls back on the go command's notes, for programs built without a linker's flag.
func versionOf(commit string, info *debug.BuildInfo) string {
	if commit == "" && info != nil {
		changed := ""
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value[:min(9, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = "-dirty"
			}
		}
		commit += changed
	}
	if commit == "" {
		return release
	}
	return release + "+" + commit
}

// VersionCmd is a command of every program.
type VersionCmd struct {
	Settings
	AsJSON
}

// Run prints the version and the build.
func (c *VersionCmd) Run(a *App) error {
	if c.JSON {
		return a.JSON(map[string]string{"version": Version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
	}
	fmt.Fprintf(a.Stdout, "%s %s (%s, %s/%s)\n", a.Name, Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}
