package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
)

type deadletterCmd struct {
	List   deadListCmd   `cmd:"" help:"List dead letters."`
	Show   deadShowCmd   `cmd:"" help:"Show dead letters with key, value and headers."`
	Replay deadReplayCmd `cmd:"" help:"Make tasks pending again, due now, with new attempts."`
	Purge  deadPurgeCmd  `cmd:"" help:"Delete dead letters for good."`
	Export deadExportCmd `cmd:"" help:"Write dead letters as JSON, one a line."`

	Reconcile deadReconcileCmd `cmd:"" help:"After a database restore: settle the tasks that were sent since the backup."`
}

type letterFilter struct {
	asking
	Topic    string `group:"Filter" help:"Only tasks for this target topic." placeholder:"TOPIC" short:"t"`
	TaskID   string `group:"Filter" help:"Only the task with this id." name:"task-id" placeholder:"ID"`
	Tag      string `group:"Filter" help:"Only tasks with this tag." placeholder:"TAG"`
	Kind     string `group:"Filter" help:"dead (attempts used up, or reported fail), undeliverable (the target refused it), expired (max-lateness), rejected (a bad request) or callback." placeholder:"KIND"`
	Reason   string `group:"Filter" help:"Only letters whose reason contains this text." placeholder:"TEXT"`
	Since    string `group:"Filter" help:"Died at or after: RFC 3339, Unix milliseconds, or a duration ago (24h)." placeholder:"TIME"`
	Until    string `group:"Filter" help:"Died before." placeholder:"TIME"`
	Replayed bool   `group:"Filter" help:"Include replayed letters."`
	Limit    *int   `group:"Filter" help:"At most this many, the oldest first unless asked otherwise." placeholder:"N" short:"n"`
}

func (f *letterFilter) filter(ids []int64) (letters.Filter, error) {
	out := letters.Filter{IDs: ids, Topic: schemas.TargetName(f.Topic), TaskID: f.TaskID, Tag: f.Tag, Kind: f.Kind, Reason: f.Reason, Replayed: f.Replayed}
	if kinds := schemas.LetterKinds(); f.Kind != "" && !slices.Contains(kinds, f.Kind) {
		return out, command.Usage("--kind %q: write one of %s", f.Kind, strings.Join(kinds, ", "))
	}
	if f.Tag != "" && !schemas.ValidTag(f.Tag) {
		return out, command.Usage("--tag %q: write one tag of 1 to 64 letters, digits or -_.:", f.Tag)
	}
	if f.Limit != nil {
		if out.Limit = *f.Limit; out.Limit < 1 {
			return out, command.Usage("--limit (-n) %d: write 1 or more, or leave it out", out.Limit)
		}
	}
	since, errSince := instant("--since", f.Since, -1)
	until, errUntil := instant("--until", f.Until, -1)
	out.Since, out.Until = since.Millis(), until.Millis()
	return out, cmp.Or(errSince, errUntil)
}

// letterChoice holds the arguments of a changing command.
type letterChoice struct {
	letterFilter
	IDs []int64 `arg:"" help:"Ids of dead letters." name:"id" optional:""`
	All bool    `help:"Every dead letter."`
}

// chosen returns the filter. A forgotten filter must not mean all letters.
func (c *letterChoice) chosen() (letters.Filter, error) {
	out, err := c.filter(c.IDs)
	if err != nil {
		return out, err
	}
	narrow := len(c.IDs) > 0 || c.Topic != "" || c.TaskID != "" || c.Tag != "" || c.Kind != "" || c.Reason != "" || c.Since != "" || c.Until != ""
	switch {
	case !narrow && !c.All:
		return out, command.Usage("nothing selected: name ids, set a filter, or set --all")
	case narrow && c.All:
		return out, command.Usage("--all and a filter exclude each other: use one of them")
	}
	return out, nil
}

type deadListCmd struct {
	letterFilter
	Newest bool `help:"The latest first."`
}

func (deadListCmd) Help() string {
	return whereFrom + `

Examples:
  notyet deadletter list -t orders --since 24h
  notyet deadletter list --newest -n 20
  notyet deadletter list --kind rejected --json | jq -r '.[].reason'`
}

func (c *deadListCmd) Run(a *app) error {
	f, err := c.filter(nil)
	if err != nil {
		return err
	}
	f.Limit, f.Newest = cmp.Or(f.Limit, 100), c.Newest
	return show(a, c.asking, func(b *backend) ([]deadletter.Letter, error) { return deadletter.Collect(a.Ctx, b, f, f.Limit) }, func(found []deadletter.Letter) {
		table(a, "no dead letters", []any{"ID", "DIED", "KIND", "TOPIC", "TASK", "ATTEMPT", "REASON"}, found, func(l deadletter.Letter) []any {
			state := l.Kind
			if l.ReplayedAt > 0 {
				state += ", replayed"
			}
			return []any{l.ID, when(l.DiedAt), state, l.Topic, command.Plain(l.TaskID), l.Attempt, shortened(command.Plain(l.Reason), 80)}
		})
	})
}

type deadShowCmd struct {
	asking
	IDs []int64 `arg:"" help:"Ids of dead letters." name:"id"`
}

func (deadShowCmd) Help() string {
	return whereFrom + `

Example:
  notyet deadletter show 17`
}

func (c *deadShowCmd) Run(a *app) error {
	b, err := a.backend(c.asking)
	if err != nil {
		return err
	}
	defer b.close()
	for _, id := range c.IDs {
		l, err := b.Letter(a.Ctx, id)
		if err != nil {
			return fmt.Errorf("%d: %w", id, err)
		}
		if c.JSON {
			if err := a.JSON(l); err != nil {
				return err
			}
			continue
		}
		pairs(a.Stdout, "dead letter", fmt.Sprint(l.ID), "kind", l.Kind, "topic", l.Topic, "task", command.Plain(l.TaskID), "tag", l.Tag, "reason", command.Plain(l.Reason),
			"died", when(l.DiedAt), "due", when(l.Due), "attempt", fmt.Sprint(l.Attempt), "replayed", when(l.ReplayedAt))
		content(a.Stdout, l.Content)
		fmt.Fprintln(a.Stdout)
	}
	return nil
}

type deadExportCmd struct {
	letterFilter
	Output string `help:"Write here instead of standard output." placeholder:"FILE" short:"o" type:"path"`
}

func (deadExportCmd) Help() string {
	return whereFrom + `
Every letter with key, value and headers, byte for byte (base64 if they are not text), as one JSON object a line.

Examples:
  notyet deadletter export --replayed -o letters.ndjson
  notyet deadletter export -t orders | jq -r .value`
}

// Run writes NDJSON, with or without --json.
func (c *deadExportCmd) Run(a *app) error {
	f, err := c.filter(nil)
	if err != nil {
		return err
	}
	b, err := a.backend(c.asking)
	if err != nil {
		return err
	}
	defer b.close()
	return a.export(c.Output, "dead letters", func(w io.Writer) (int, error) { return deadletter.Export(a.Ctx, b, f, w) })
}

type deadReplayCmd struct {
	letterChoice
	DryRun bool    `help:"Print what would happen, and change nothing."`
	Rate   float64 `help:"At most this many a second." placeholder:"N"`
	inBackground
	letterEdit
}

// letterEdit replaces parts of one letter.
type letterEdit struct {
	SetTopic  *string  `group:"Of one letter" help:"Deliver it to this topic." placeholder:"TOPIC"`
	SetKey    *string  `group:"Of one letter" help:"Deliver this key." placeholder:"TEXT"`
	SetValue  *string  `group:"Of one letter" help:"Deliver this value." placeholder:"TEXT"`
	SetHeader []string `group:"Of one letter" help:"Deliver this header, and of its own no other; may be repeated." placeholder:"NAME=VALUE" sep:"none"`
}

// edit returns nil where nothing is replaced.
func (c *deadReplayCmd) edit() (*api.ReplayEdit, error) {
	if c.SetTopic == nil && c.SetKey == nil && c.SetValue == nil && len(c.SetHeader) == 0 {
		return nil, nil
	}
	if f := c.letterFilter; len(c.IDs) != 1 || c.All || c.DryRun || c.Async || c.Rate > 0 || f.Topic+f.TaskID+f.Tag+f.Kind+f.Reason+f.Since+f.Until != "" {
		return nil, command.Usage("--set-topic, --set-key, --set-value and --set-header are for one letter: name its id, without a filter, --dry-run, --async and --rate")
	}
	out := &api.ReplayEdit{Key: api.Text{Set: c.SetKey != nil, Text: c.SetKey}, Value: api.Text{Set: c.SetValue != nil, Text: c.SetValue}}
	if c.SetTopic != nil {
		if out.Topic = *c.SetTopic; out.Topic == "" {
			return nil, command.Usage("--set-topic is empty: name a topic")
		}
	}
	if len(c.SetHeader) > 0 {
		headers, err := ownHeaders("--set-header", c.SetHeader)
		if err != nil {
			return nil, err
		}
		out.Headers = &headers
	}
	return out, nil
}

// editing replays one letter with parts of it replaced.
type editing struct {
	on   *backend
	edit api.ReplayEdit
}

// ReplayPage implements deadletter.Pager.
func (e editing) ReplayPage(ctx context.Context, f letters.Filter, _ int64, _ bool) (page deadletter.Page, err error) {
	switch b := e.on.source.(type) {
	case *api.Fleet:
		page, err = api.ReplayLetter(ctx, b, f.IDs[0], e.edit, e.on.intakes)
	case *api.Client:
		page, err = b.ReplayLetter(ctx, f.IDs[0], e.edit)
	}
	page.Next = 0
	return page, err
}

func (deadReplayCmd) Help() string {
	return whereFrom + `
Each letter is replayed once, in the transaction that marks it: a run that was interrupted is simply started again. A run
takes what is there when it begins; what dies again meanwhile is left for another one. What was rejected, has been replayed ten times, or has a newer task of its id under way, is skipped. A replayed task is delivered
with notyet-replay. Exit code 1 when ids were named and not all of them could be replayed.
` + withAsync + `

Examples:
  notyet deadletter replay 17 18
  notyet deadletter replay 17 --set-value '{"amount": 5}' --set-topic orders.v2
  notyet deadletter replay -t orders --since 24h --dry-run
  notyet deadletter replay --reason UNKNOWN_TOPIC --rate 500`
}

// replayed is the output of replay.
type replayed struct {
	Replayed  int64            `json:"replayed"`
	Skipped   int64            `json:"skipped"`
	Reasons   map[string]int64 `json:"reasons"`
	DiedAgain int64            `json:"died_again,omitempty"` // within diedAgainAfter
	DryRun    bool             `json:"dry_run,omitempty"`
}

// diedAgainAfter is how long a replay waits for tasks that die again at once.
const diedAgainAfter = time.Second

func (c *deadReplayCmd) Run(a *app) error {
	f, err := c.chosen()
	if err != nil {
		return err
	}
	if c.Rate < 0 {
		return command.Usage("--rate %v: write a number of letters per second", c.Rate)
	}
	edit, err := c.edit()
	if err != nil {
		return err
	}
	if len(c.IDs) > 0 {
		f.Replayed = true // named letters are always tried, and skipped with a reason
	}
	if c.Async && c.Rate > 0 {
		return command.Usage("--rate is for a replay that this command makes: leave it or --async out")
	}
	if c.Async {
		return c.begin(a, c.DryRun, func(b *backend) (api.Operation, error) { return b.BeginReplay(a.Ctx, f) })
	}
	b, err := a.backend(c.asking)
	if err != nil {
		return err
	}
	defer b.close()
	var pager deadletter.Pager = b
	if edit != nil {
		pager = editing{b, *edit}
	}
	show, end := a.bar(b, "replaying", f)
	result, err := deadletter.Replay(a.Ctx, pager, f, deadletter.Options{DryRun: c.DryRun, Rate: c.Rate, Progress: show})
	end()
	if err != nil && result.Done+result.Skipped == 0 {
		return err
	}
	again := int64(0)
	if err == nil && result.Done > 0 && !c.DryRun {
		loop.Rest(a.Ctx, diedAgainAfter)
		again, err = b.CountDiedAgain(a.Ctx, f, result.Began)
	}
	if c.JSON {
		err = errors.Join(err, a.JSON(replayed{result.Done, result.Skipped, result.Reasons, again, c.DryRun}))
	} else {
		c.printResult(a, result)
		if again > 0 {
			fmt.Fprintf(a.Stdout, "%d of them died again\n", again)
		}
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
	inBackground
}

func (deadPurgeCmd) Help() string {
	return whereFrom + `
Purged letters cannot be replayed; export them first if in doubt. Asks for confirmation on a terminal.
` + withAsync + `

Examples:
  notyet deadletter purge --kind rejected --until 720h
  notyet deadletter purge 17 18 --yes`
}

// purged is the output of purge.
type purged struct {
	Purged int64 `json:"purged"`
	DryRun bool  `json:"dry_run,omitempty"`
}

func (c *deadPurgeCmd) Run(a *app) error {
	f, err := c.chosen()
	if err != nil {
		return err
	}
	if c.Async {
		return c.begin(a, c.DryRun, func(b *backend) (api.Operation, error) {
			if a.isAttended() {
				if _, err := c.agreed(a, b, f); err != nil {
					return api.Operation{}, err
				}
			}
			return b.BeginPurge(a.Ctx, f)
		})
	}
	b, err := a.backend(c.asking)
	if err != nil {
		return err
	}
	defer b.close()
	n, err := c.agreed(a, b, f)
	if err != nil {
		return err
	}
	if !c.DryRun {
		show, end := a.bar(b, "purging", f)
		n, err = deadletter.Purge(a.Ctx, b, f, show)
		end()
	}
	if err != nil && n == 0 {
		return err
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

// agreed counts the letters, and asks the person at the terminal.
func (c *deadPurgeCmd) agreed(a *app, b *backend, f letters.Filter) (int64, error) {
	n, err := b.selected(a.Ctx, f)
	if err == nil && !c.DryRun && !c.Yes && n > 0 && !a.confirm(fmt.Sprintf("Delete %d dead letters for good?", n)) {
		err = command.Usage("nothing was deleted")
	}
	return n, err
}

// begin begins an operation, which makes all pages.
func (c *letterChoice) begin(a *app, dryRun bool, begin func(*backend) (api.Operation, error)) error {
	if c.Limit != nil {
		return command.Usage("--limit (-n) is for a change that this command makes: leave it or --async out")
	}
	return a.begin(c.asking, dryRun, begin)
}

// selected returns how many letters a command comes to.
func (b *backend) selected(ctx context.Context, f letters.Filter) (int64, error) {
	n, err := b.CountLetters(ctx, f)
	if f.Limit > 0 {
		n = min(n, int64(f.Limit))
	}
	return n, err
}

// bar shows the progress of a long command, until end, on a terminal at standard error only.
func (a *app) bar(b *backend, what string, f letters.Filter) (show func(deadletter.Progress), end func()) {
	show, end = func(deadletter.Progress) {}, func() {}
	if !command.IsTerminal(a.Stderr) {
		return show, end
	}
	total, err := b.selected(a.Ctx, f)
	if err != nil {
		return show, end // the command itself will get the same error
	}
	w := progress.NewWriter()
	w.SetOutputWriter(command.Raw(a.Stderr))
	w.SetUpdateFrequency(100 * time.Millisecond)
	w.SetAutoStop(false)
	t := &progress.Tracker{Message: what, Total: total}
	w.AppendTracker(t)
	go w.Render()
	return func(p deadletter.Progress) { t.SetValue(p.Done + p.Skipped) }, func() {
		t.MarkAsDone()
		w.Stop()
		for w.IsRenderInProgress() {
			time.Sleep(10 * time.Millisecond)
		}
	}
}
