package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/loop"
)

type slotsCmd struct {
	Show slotsShowCmd `cmd:"" help:"Show how many slots there are, and how far a change of their number has come."`
	Set  slotsSetCmd  `cmd:"" help:"Change the number of slots while the services run."`
}

type slotsShowCmd struct {
	asking
	Shard *int `help:"Number of the database; needed where there are several." placeholder:"N"`
}

func (c *slotsShowCmd) shard() int {
	if c.Shard == nil {
		return api.AnyShard
	}
	return *c.Shard
}

func (slotsShowCmd) Help() string {
	return whereFrom + `
KEPT are slots that were given up and of which ended tasks are remembered; nobody owns them.
While the number changes, the slots follow whose tasks have not all moved. They wait for an owner, for deliveries that are in flight, for tasks that move, or for answers of Kafka about a few tasks. The metric notyet_dispatcher_moved_tasks_total has the pace.

Example:
  notyet slots show`
}

func (c *slotsShowCmd) Run(a *app) error {
	return show(a, c.asking, func(b *backend) (api.SlotsChange, error) { return b.Slots(a.Ctx, c.shard()) }, a.slots)
}

func (a *app) slots(now api.SlotsChange) {
	a.Table([]any{"SLOTS", "TARGET", "THEN", "LEAVING", "SPLIT", "MOVED", "KEPT"}, [][]any{{now.Slots, now.Target, orDash(now.Next), orDash(now.Leaving), orDash(now.Split), orDash(now.Moved), now.Kept}})
	if len(now.Behind) == 0 {
		return
	}
	rows := make([][]any, 0, behindMost+1)
	for i, b := range now.Behind {
		if i == behindMost {
			rows = append(rows, []any{fmt.Sprintf("and %d more", len(now.Behind)-i), "", "", ""})
			break
		}
		rows = append(rows, []any{b.Slot, cmp.Or(b.Owner, "-"), b.Why, upTo(b.UpTo)})
	}
	a.Table([]any{"SLOT", "OWNER", "WAITS FOR", "DONE UP TO"}, rows)
}

// behindMost is how many slots behind are printed.
const behindMost = 20

func upTo(at int64) string {
	if at == 0 {
		return "-"
	}
	return time.UnixMilli(at).UTC().Format(time.RFC3339)
}

type slotsSetCmd struct {
	slotsShowCmd
	Slots int  `arg:"" help:"How many slots there are to be, 1 to 4096." name:"n"`
	Wait  bool `help:"Wait until the number has changed, and all tasks have moved."`
}

func (slotsSetCmd) Help() string {
	return whereFrom + `
Only tasks whose slot changes move: from 64 to 96 slots a third of them. Deliveries go on meanwhile, and those of a key stay in order. What is done stands if services stop on the way; the next ones go on. While a change is under way, that one comes first.

Examples:
  notyet slots set 96 --wait
  notyet slots set 64`
}

// slotsEvery is how often the slots are looked at while a change is waited for.
const slotsEvery = 500 * time.Millisecond

func (c *slotsSetCmd) Run(a *app) error {
	return show(a, c.asking, func(b *backend) (api.SlotsChange, error) {
		now, err := b.SetSlots(a.Ctx, c.shard(), c.Slots)
		for told := ""; err == nil && c.Wait && now.Changes; now, err = b.Slots(a.Ctx, c.shard()) {
			if text := fmt.Sprintf("%d to %d slots: %d of %d split, %d moved", now.Slots, now.Target, now.Split, now.Leaving, now.Moved); text != told {
				told = text
				fmt.Fprintln(a.Stderr, text)
			}
			if err := loop.Rest(a.Ctx, slotsEvery); err != nil {
				return now, err
			}
		}
		return now, err
	}, a.slots)
}
