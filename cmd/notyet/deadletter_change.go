package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/deadletter"
)

type deadReplayCmd struct {
	letterChoice
	DryRun bool    `help:"Print what would happen, and change nothing."`
	Rate   float64 `help:"At most this many a second." placeholder:"N"`
}

func (deadReplayCmd) Help() string {
	return whereFrom + `
Each letter is replayed once, in the transaction that marks it: a run that was interrupted is simply started again. A run
takes what is there when it begins; what dies again meanwhile is left for another one. What was rejected, has been replayed ten times, or has a newer task of its id under way, is skipped. A replayed task is delivered
with notyet-replay. Exit code 1 when ids were named and not all of them could be replayed.

Examples:
  notyet deadletter replay 17 18
  notyet deadletter replay -t orders --since 24h --dry-run
  notyet deadletter replay --reason UNKNOWN_TOPIC --rate 500`
}

// replayed is what replay prints.
type replayed struct {
	Replayed int64            `json:"replayed"`
	Skipped  int64            `json:"skipped"`
	Reasons  map[string]int64 `json:"reasons"`
	DryRun   bool             `json:"dry_run,omitempty"`
}

func (c *deadReplayCmd) Run(a *app) error {
	f, err := c.chosen()
	if err != nil {
		return err
	}
	if c.Rate < 0 {
		return command.Usage("--rate %v: write a number of letters per second", c.Rate)
	}
	if len(c.IDs) > 0 {
		f.Replayed = true // named letters are always tried, and skipped with a reason
	}
	b, err := a.backend(c.asking)
	if err != nil {
		return err
	}
	defer b.close()
	bar := a.bar(b, "replaying", f)
	result, err := deadletter.Replay(a.Ctx, b, f, deadletter.Options{DryRun: c.DryRun, Rate: c.Rate, Progress: bar.show})
	bar.end()
	if c.JSON {
		err = errors.Join(err, a.JSON(replayed{result.Done, result.Skipped, result.Reasons, c.DryRun}))
	} else {
		c.printResult(a, result)
	}
	if err == nil && int64(len(c.IDs)) > result.Done {
		if missing := int64(len(c.IDs)) - result.Done - result.Skipped; missing > 0 {
			return fmt.Errorf("%d of the ids: %w", missing, deadletter.ErrNotFound)
		}
		return command.ErrReported
	}
	return err
}

func (c *deadReplayCmd) printResult(a *app, r deadletter.Result) {
	verb := "replayed"
	if c.DryRun {
		verb = "would replay"
	}
	fmt.Fprintf(a.Stdout, "%s %d, skipped %d\n", verb, r.Done, r.Skipped)
	for reason, n := range r.Reasons {
		fmt.Fprintf(a.Stdout, "  %d: %s\n", n, reason)
	}
}

type deadPurgeCmd struct {
	letterChoice
	DryRun bool `help:"Only count them."`
	Yes    bool `help:"Do not ask." short:"y"`
}

func (deadPurgeCmd) Help() string {
	return whereFrom + `
Purged letters cannot be replayed; export them first if in doubt. Asks for confirmation on a terminal.

Examples:
  notyet deadletter purge --kind rejected --until 720h
  notyet deadletter purge 17 18 --yes`
}

// purged is what purge prints.
type purged struct {
	Purged int64 `json:"purged"`
	DryRun bool  `json:"dry_run,omitempty"`
}

func (c *deadPurgeCmd) Run(a *app) error {
	f, err := c.chosen()
	if err != nil {
		return err
	}
	b, err := a.backend(c.asking)
	if err != nil {
		return err
	}
	defer b.close()
	n, err := b.CountLetters(a.Ctx, f)
	if err != nil {
		return err
	}
	if f.Limit > 0 {
		n = min(n, int64(f.Limit))
	}
	if !c.DryRun {
		if !c.Yes && n > 0 && !a.confirm(fmt.Sprintf("Delete %d dead letters for good?", n)) {
			return command.Usage("nothing was deleted")
		}
		bar := a.bar(b, "purging", f)
		n, err = deadletter.Purge(a.Ctx, b, f, bar.show)
		bar.end()
	}
	if c.JSON {
		return errors.Join(err, a.JSON(purged{n, c.DryRun}))
	}
	verb := "purged"
	if c.DryRun {
		verb = "would purge"
	}
	fmt.Fprintf(a.Stdout, "%s %d\n", verb, n)
	return err
}

// confirm asks the person at the terminal. Without a terminal, the flags are the confirmation.
func (a *app) confirm(question string) bool {
	if !command.IsTerminal(a.Stdin) || !command.IsTerminal(a.Stderr) {
		return true
	}
	fmt.Fprint(a.Stderr, question+" [y/N] ")
	line, _ := bufio.NewReader(a.Stdin).ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(line), "y") || strings.EqualFold(strings.TrimSpace(line), "yes")
}
