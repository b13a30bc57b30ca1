package main

import (
	kongcompletion "github.com/jotaen/kong-completion"
)

type completionCmd struct {
	kongcompletion.Completion
}

func (completionCmd) Help() string {
	return `Prints the command that makes bash, zsh or fish complete commands, flags and their values, and where to put it. A package
can ship what that command runs: --code prints it.

Examples:
  notyet completion
  source <(notyet completion --code bash)
  notyet completion --code fish | source`
}
