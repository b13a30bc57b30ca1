package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/notyet/notyet/cmd/internal/service"
	"github.com/notyet/notyet/doctor"
	"github.com/notyet/notyet/internal/command"
)

type doctorCmd struct {
	asking
	Strict   bool          `help:"Exit with 1 on warnings too."`
	All      bool          `help:"Print what is well, too. --json always does."`
	Targets  []string      `help:"Target topics to look at, too." placeholder:"TOPIC,…"`
	Patience time.Duration `default:"10s" help:"How long to wait for each server."`
}

func (doctorCmd) Help() string {
	return `Looks at every server that is configured, side by side: whether it is reached, its version and clock, settings by which it
forgets what it has committed, row locks, topics and their settings, rights, the send log's disk, services alive, the OpenID
provider. Each finding
says its fix. A server whose setting is left out is not looked at. It changes nothing but traces of its own, which it removes:
a row, an entry of the index, a znode, a file in the send log's directory.

Exit codes: 0 well, or with warnings; 1 failures (with --strict warnings too); 2 bad usage or configuration.

Examples:
  notyet doctor --config /etc/notyet.yaml
  notyet doctor --json --strict | jq '.findings[] | select(.level == "failure")'`
}

// examined is the output of doctor.
type examined struct {
	Findings []doctor.Finding `json:"findings"`
}

func (c *doctorCmd) Run(a *app) error {
	cfg, err := a.Client(c.Settings, c.Servers)
	if err != nil {
		return err
	}
	if c.Patience < 100*time.Millisecond {
		return command.Usage("--patience %v: at least 100ms", c.Patience)
	}
	all, err := service.DoctorConfigs(cfg)
	if err != nil {
		return err
	}
	dcfg := &all[0]
	if dcfg.Kafka == nil && dcfg.Store == nil && dcfg.Index == nil && dcfg.Election == nil && dcfg.Issuer == nil {
		return command.Usage("no server is configured: set %s", strings.Join(dispatcherServers, ", "))
	}
	for _, name := range c.Targets {
		if !slices.Contains(dcfg.Targets, name) {
			dcfg.Targets = append(dcfg.Targets, name)
		}
	}
	for i := range all {
		all[i].Patience = c.Patience
	}
	out := examined{service.Examine(a.Ctx, all)}
	if err := a.Ctx.Err(); err != nil {
		return err
	}
	if c.JSON {
		err = a.JSON(out)
	} else {
		c.print(a, out.Findings)
	}
	if worst := doctor.Worst(out.Findings); err == nil && (worst == doctor.Failure || worst == doctor.Warning && c.Strict) {
		err = command.ErrReported
	}
	return err
}

func (c *doctorCmd) print(a *app, all []doctor.Finding) {
	counts := map[doctor.Level]int{}
	for _, f := range all {
		counts[f.Level]++
		if f.Level == doctor.OK && !c.All {
			continue
		}
		fmt.Fprintf(a.Stdout, "%-8s %s: %s: %s\n", f.Level, f.Check, command.Plain(f.Where), command.Plain(f.Found))
		if f.Fix != "" {
			fmt.Fprintf(a.Stdout, "         fix: %s\n", command.Plain(f.Fix))
		}
	}
	fmt.Fprintf(a.Stdout, "%d failures, %d warnings, %d notes, %d well\n", counts[doctor.Failure], counts[doctor.Warning], counts[doctor.Note], counts[doctor.OK])
}
