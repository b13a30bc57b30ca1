package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/notyet/notyet/cmd/internal/service"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
)

type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Check the configuration as the start of a service does, without a server."`
	Print configPrintCmd `cmd:"" help:"Print the merged configuration, and where each value comes from."`
}

type configCheckCmd struct {
	asking
	Strict  bool   `help:"Exit with 1 if something is open."`
	Service string `default:"all" enum:"all,scanner,dispatcher" help:"Whose start: all, scanner or dispatcher. Each requires the servers that it needs." placeholder:"SERVICE"`
}

func (configCheckCmd) Help() string {
	return `Reads the file, the environment and the flags, and the files that they name: certificates, tokens, secrets of callbacks. It
finds every mistake that would end a service at its start, and warns of what is open: targets of intakes, hosts of callbacks,
secrets without TLS. It contacts no server: "notyet doctor" does that.

Exit codes: 0 valid, 1 with --strict and something open, 2 mistakes, each with its key, where it was set, and the fix.

Examples:
  notyet config check --config /etc/notyet.yaml
  notyet config check --json --service scanner | jq '.problems[]'`
}

// checked is the output of config check.
type checked struct {
	Valid    bool             `json:"valid"`
	Problems []config.Problem `json:"problems"`
	Warnings []config.Problem `json:"warnings"`
}

func (c *configCheckCmd) Run(a *app) error {
	required := dispatcherServers
	if c.Service == "scanner" {
		required = scannerServers
	}
	src, err := a.Sources(c.Settings, c.Servers, config.Sources{Require: required})
	if err != nil {
		return err
	}
	cfg, problems := config.Read(src)
	if len(problems) == 0 {
		for _, err := range service.Mistakes(cfg, c.Service != "scanner") {
			problems = append(problems, problemOf(cfg, err))
		}
	}
	var open []config.Problem
	if len(problems) == 0 {
		open = cfg.Open()
	}
	if c.JSON {
		err = a.JSON(checked{len(problems) == 0, append([]config.Problem{}, problems...), append([]config.Problem{}, open...)})
		err = cmp.Or(err, mistaken(problems))
	} else if len(problems) > 0 {
		return &config.Error{Problems: problems}
	} else {
		for _, p := range open {
			fmt.Fprintln(a.Stdout, "warning:", p)
		}
		_, err = fmt.Fprintln(a.Stdout, "the configuration is valid")
	}
	if c.Strict && len(open) > 0 {
		return cmp.Or(err, command.ErrReported)
	}
	return err
}

// mistaken ends a command after printed problems.
func mistaken(problems []config.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return command.UsageError{Err: command.ErrReported}
}

// problemOf finds the key at the beginning of a setting's error.
func problemOf(cfg *config.Config, err error) config.Problem {
	text, key := err.Error(), ""
	for _, k := range config.Keys() {
		if strings.HasPrefix(text, k) && len(k) > len(key) {
			key = k
		}
	}
	return config.Problem{Key: key, Source: cfg.Origin(key), Problem: strings.TrimLeft(strings.TrimPrefix(text, key), ": ")}
}

type configPrintCmd struct{ asking }

func (configPrintCmd) Help() string {
	return `Prints every key with its value and where that comes from: default, the file, an environment variable, or a flag. Of
secrets it shows only that they are set. Values that a service would refuse are printed too; then the exit code is 2.

Examples:
  notyet config print --config /etc/notyet.yaml
  notyet config print --json | jq '.settings[] | select(.source != "default")'`
}

// printed is the output of config print.
type printed struct {
	Settings []config.Setting `json:"settings"`
	Problems []config.Problem `json:"problems,omitempty"`
}

func (c *configPrintCmd) Run(a *app) error {
	src, err := a.Sources(c.Settings, c.Servers, config.Sources{})
	if err != nil {
		return err
	}
	cfg, problems := config.Read(src)
	out := printed{cfg.Settings(), problems}
	if c.JSON {
		return cmp.Or(a.JSON(out), mistaken(problems))
	}
	table(a, "", []any{"KEY", "VALUE", "FROM"}, out.Settings, func(s config.Setting) []any { return []any{s.Key, text(s.Value), s.From()} })
	if len(problems) > 0 {
		return &config.Error{Problems: problems}
	}
	return nil
}

func text(value any) string {
	if list, ok := value.([]string); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(value)
}
