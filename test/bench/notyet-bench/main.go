// Command notyet-bench measures load and lateness of a running notyet. It is a program of its own, so
// that what draws its plots is not a part of every service.
package main

import (
	"os"

	"github.com/notyet/notyet/internal/command"
)

func main() { os.Exit(run(command.OfProcess("notyet-bench"), os.Args[1:])) }

func run(a *command.App, args []string) int {
	return a.Run(args, command.Grammar{Commands: &cli{}, Description: description, Bind: a})
}
