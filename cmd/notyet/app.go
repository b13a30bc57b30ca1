package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"github.com/notyet/notyet/internal/command"
)

type app struct{ *command.App }

// asking holds the flags of printing commands with servers.
type asking struct {
	command.Settings
	command.Servers
	command.AsJSON
}

// operator returns the user of this shell, for the audit of replays.
func operator() string {
	host, _ := os.Hostname()
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return name + "@" + host
}

// isAttended says whether a person at a terminal can be asked.
func (a *app) isAttended() bool { return command.IsTerminal(a.Stdin) && command.IsTerminal(a.Stderr) }

// confirm asks the person at the terminal. Without a terminal, the flags are the confirmation.
func (a *app) confirm(question string) bool {
	if !a.isAttended() {
		return true
	}
	fmt.Fprint(a.Stderr, question+" [y/N] ")
	line, _ := bufio.NewReader(a.Stdin).ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(line), "y") || strings.EqualFold(strings.TrimSpace(line), "yes")
}

// export lets write put things into the file at path, or on standard output if path is empty.
func (a *app) export(path, things string, write func(io.Writer) (n int, err error)) error {
	if path == "" {
		_, err := write(a.Stdout)
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) // not for other users of the machine
	if err != nil {
		return command.Usage("--output: %v", err)
	}
	w := bufio.NewWriter(file)
	n, err := write(w)
	if err = errors.Join(err, w.Flush(), file.Close()); err == nil {
		fmt.Fprintf(a.Stderr, "wrote %d %s to %s\n", n, things, path)
	}
	return err
}
