package doctor

import (
	"fmt"

	"github.com/notyet/notyet/internal/election"
)

func members(c Config, e *election.Examined, where string) []Finding {
	version := ""
	if e.Version != "" {
		version = "; ZooKeeper " + e.Version
	}
	switch {
	case !e.Rooted && c.Running:
		return nil
	case !e.Rooted:
		return found(where, Note, "no dispatcher has been here yet"+version, "")
	}
	return found(where, OK, fmt.Sprintf("%d dispatchers are members", len(e.Members))+version, "")
}

func ensembleClock(_ Config, e *election.Examined, where string) []Finding {
	if !e.Rooted {
		return nil
	}
	return clock(where, e.Ahead, e.Within)
}
