package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
)

type deadletterCmd struct {
	List   deadListCmd   `cmd:"" help:"List dead letters."`
	Show   deadShowCmd   `cmd:"" help:"Show dead letters with key, value and headers."`
	Replay deadReplayCmd `cmd:"" help:"Put tasks back into their line, due now, with fresh attempts."`
	Purge  deadPurgeCmd  `cmd:"" help:"Delete dead letters for good."`
	Export deadExportCmd `cmd:"" help:"Write dead letters as JSON, one a line."`

	Reconcile deadReconcileCmd `cmd:"" help:"After a restore of the database: settle what was sent since the backup."`
}

// letterFilter are the flags that select letters.
type letterFilter struct {
	settings
	servers
	asJSON
	Topic    string `group:"Filter" help:"Only tasks for this target topic." placeholder:"TOPIC" short:"t"`
	TaskID   string `group:"Filter" help:"Only the task with this id." name:"task-id" placeholder:"ID"`
	Kind     string `group:"Filter" help:"dead (attempts used up, or reported fail), undeliverable (the target refused it), expired (max-lateness), rejected (a bad request) or callback." placeholder:"KIND"`
	Reason   string `group:"Filter" help:"Only where the reason has this text in it." placeholder:"TEXT"`
	Since    string `group:"Filter" help:"Died at or after: RFC 3339, Unix milliseconds, or so long ago (24h)." placeholder:"TIME"`
	Until    string `group:"Filter" help:"Died before." placeholder:"TIME"`
	Replayed bool   `group:"Filter" help:"Also those that were replayed."`
	Limit    *int   `group:"Filter" help:"At most this many, the oldest first." placeholder:"N" short:"n"`
}

func (f *letterFilter) filter(ids []int64) (store.DeadFilter, error) {
	out := store.DeadFilter{IDs: ids, Topic: f.Topic, TaskID: f.TaskID, Kind: f.Kind, Reason: f.Reason, Replayed: f.Replayed}
	if kinds := schemas.Kinds(); f.Kind != "" && !slices.Contains(kinds, f.Kind) {
		return out, usage("--kind %q: write one of %s", f.Kind, strings.Join(kinds, ", "))
	}
	if f.Limit != nil {
		if out.Limit = *f.Limit; out.Limit < 1 {
			return out, usage("--limit (-n) %d: write 1 or more, or leave it out", out.Limit)
		}
	}
	var err error
	if out.Since, err = instant("--since", f.Since, -1); err != nil {
		return out, err
	}
	out.Until, err = instant("--until", f.Until, -1)
	return out, err
}

// chosen is the filter of a command that changes things: a forgotten filter must not mean everything.
func (f *letterFilter) chosen(ids []int64, all bool) (store.DeadFilter, error) {
	out, err := f.filter(ids)
	if err != nil {
		return out, err
	}
	narrow := len(ids) > 0 || f.Topic != "" || f.TaskID != "" || f.Kind != "" || f.Reason != "" || f.Since != "" || f.Until != ""
	switch {
	case !narrow && !all:
		return out, usage("which? name ids or a filter, or say --all")
	case narrow && all:
		return out, usage("--all stands beside a filter: say one of them")
	}
	return out, nil
}

type deadListCmd struct{ letterFilter }

// Help is part of --help.
func (deadListCmd) Help() string {
	return whereFrom + `

Examples:
  notyet deadletter list -t orders --since 24h
  notyet deadletter list --kind rejected --json | jq -r '.[].reason'`
}

// Run prints letters.
func (c *deadListCmd) Run(a *app) error {
	f, err := c.filter(nil)
	if err != nil {
		return err
	}
	b, err := a.backend(c.settings, c.servers)
	if err != nil {
		return err
	}
	defer b.close()
	if f.Limit == 0 {
		f.Limit = 100
	}
	found, err := deadletter.Collect(a.ctx, b, f, f.Limit)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.json(found)
	}
	rows := make([][]any, 0, len(found))
	for _, l := range found {
		state := l.Kind
		if l.ReplayedAt > 0 {
			state += ", replayed"
		}
		rows = append(rows, []any{l.ID, when(l.DiedAt), state, l.Topic, plain(l.TaskID), l.Attempt, shortened(plain(l.Reason), 80)})
	}
	if len(rows) == 0 {
		fmt.Fprintln(a.stdout, "no dead letters")
		return nil
	}
	a.table([]any{"ID", "DIED", "KIND", "TOPIC", "TASK", "ATTEMPT", "REASON"}, rows)
	return nil
}

func shortened(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

type deadShowCmd struct {
	settings
	servers
	asJSON
	IDs []int64 `arg:"" help:"Ids of dead letters." name:"id"`
}

// Help is part of --help.
func (deadShowCmd) Help() string {
	return whereFrom + `

Example:
  notyet deadletter show 17`
}

// Run prints letters with their content.
func (c *deadShowCmd) Run(a *app) error {
	b, err := a.backend(c.settings, c.servers)
	if err != nil {
		return err
	}
	defer b.close()
	for _, id := range c.IDs {
		l, err := b.Letter(a.ctx, id)
		if err != nil {
			return fmt.Errorf("%d: %w", id, err)
		}
		if c.JSON {
			if err := a.json(l); err != nil {
				return err
			}
			continue
		}
		pairs(a.stdout, "dead letter", fmt.Sprint(l.ID), "kind", l.Kind, "topic", l.Topic, "task", plain(l.TaskID), "reason", plain(l.Reason),
			"died", when(l.DiedAt), "due", when(l.Due), "attempt", fmt.Sprint(l.Attempt), "replayed", when(l.ReplayedAt))
		content(a.stdout, l.Content)
		fmt.Fprintln(a.stdout)
	}
	return nil
}

type deadReplayCmd struct {
	letterFilter
	IDs    []int64 `arg:"" help:"Ids of dead letters." name:"id" optional:""`
	All    bool    `help:"Every dead letter."`
	DryRun bool    `help:"Only say what would happen."`
	Rate   float64 `help:"At most this many a second." placeholder:"N"`
}

// Help is part of --help.
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

// Run replays page by page.
func (c *deadReplayCmd) Run(a *app) error {
	f, err := c.chosen(c.IDs, c.All)
	if err != nil {
		return err
	}
	if c.Rate < 0 {
		return usage("--rate %v: write a number of letters per second", c.Rate)
	}
	if len(c.IDs) > 0 {
		f.Replayed = true // named ones are looked at, and skipped with a reason
	}
	b, err := a.backend(c.settings, c.servers)
	if err != nil {
		return err
	}
	defer b.close()
	bar := a.bar(b, "replaying", f)
	result, err := deadletter.Replay(a.ctx, b, f, deadletter.Options{DryRun: c.DryRun, Rate: c.Rate, Progress: bar.show})
	bar.end()
	if c.JSON {
		err = errors.Join(err, a.json(replayed{result.Done, result.Skipped, result.Reasons, c.DryRun}))
	} else {
		c.tell(a, result)
	}
	if err == nil && int64(len(c.IDs)) > result.Done {
		if missing := int64(len(c.IDs)) - result.Done - result.Skipped; missing > 0 {
			fmt.Fprintf(a.stderr, "notyet: %d of the ids: %v\n", missing, deadletter.ErrNotFound)
		}
		return errTold
	}
	return err
}

func (c *deadReplayCmd) tell(a *app, r deadletter.Result) {
	verb := "replayed"
	if c.DryRun {
		verb = "would replay"
	}
	fmt.Fprintf(a.stdout, "%s %d, skipped %d\n", verb, r.Done, r.Skipped)
	for reason, n := range r.Reasons {
		fmt.Fprintf(a.stdout, "  %d: %s\n", n, reason)
	}
}

type deadPurgeCmd struct {
	letterFilter
	IDs    []int64 `arg:"" help:"Ids of dead letters." name:"id" optional:""`
	All    bool    `help:"Every dead letter."`
	DryRun bool    `help:"Only count them."`
	Yes    bool    `help:"Do not ask." short:"y"`
}

// Help is part of --help.
func (deadPurgeCmd) Help() string {
	return whereFrom + `
What is purged cannot be replayed any more; export it first if in doubt. Asks before it begins when a person is there to answer.

Examples:
  notyet deadletter purge --kind rejected --until 720h
  notyet deadletter purge 17 18 --yes`
}

// purged is what purge prints.
type purged struct {
	Purged int64 `json:"purged"`
	DryRun bool  `json:"dry_run,omitempty"`
}

// Run deletes page by page.
func (c *deadPurgeCmd) Run(a *app) error {
	f, err := c.chosen(c.IDs, c.All)
	if err != nil {
		return err
	}
	b, err := a.backend(c.settings, c.servers)
	if err != nil {
		return err
	}
	defer b.close()
	n, err := b.CountLetters(a.ctx, f)
	if err != nil {
		return err
	}
	if f.Limit > 0 {
		n = min(n, int64(f.Limit))
	}
	if !c.DryRun {
		if !c.Yes && n > 0 && !a.confirm(fmt.Sprintf("Delete %d dead letters for good?", n)) {
			return usage("nothing was deleted")
		}
		bar := a.bar(b, "purging", f)
		n, err = deadletter.Purge(a.ctx, b, f, bar.show)
		bar.end()
	}
	if c.JSON {
		return errors.Join(err, a.json(purged{n, c.DryRun}))
	}
	verb := "purged"
	if c.DryRun {
		verb = "would purge"
	}
	fmt.Fprintf(a.stdout, "%s %d\n", verb, n)
	return err
}

// confirm asks the person at the terminal; where there is none, the flags have said it.
func (a *app) confirm(question string) bool {
	if !isTerminal(a.stdin) || !isTerminal(a.stderr) {
		return true
	}
	fmt.Fprint(a.stderr, question+" [y/N] ")
	line, _ := bufio.NewReader(a.stdin).ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(line), "y") || strings.EqualFold(strings.TrimSpace(line), "yes")
}

type deadExportCmd struct {
	letterFilter
	Output string `help:"Write here instead of standard output." placeholder:"FILE" short:"o" type:"path"`
}

// Help is part of --help.
func (deadExportCmd) Help() string {
	return whereFrom + `
Every letter with key, value and headers, byte for byte (base64 where they are not text), as one JSON object a line.

Examples:
  notyet deadletter export --replayed -o letters.ndjson
  notyet deadletter export -t orders | jq -r .value`
}

// Run writes NDJSON, whether --json is said or not.
func (c *deadExportCmd) Run(a *app) (err error) {
	f, err := c.filter(nil)
	if err != nil {
		return err
	}
	b, err := a.backend(c.settings, c.servers)
	if err != nil {
		return err
	}
	defer b.close()
	if c.Output == "" {
		_, err = deadletter.Export(a.ctx, b, f, a.stdout)
		return err
	}
	file, err := os.Create(c.Output)
	if err != nil {
		return usage("--output: %v", err)
	}
	w := bufio.NewWriter(file)
	n, err := deadletter.Export(a.ctx, b, f, w)
	if err = errors.Join(err, w.Flush(), file.Close()); err == nil {
		fmt.Fprintf(a.stderr, "wrote %d dead letters to %s\n", n, c.Output)
	}
	return err
}
