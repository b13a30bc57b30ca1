package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/cmd/internal/service"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/shards"
)

type shardsCmd struct {
	List  shardsListCmd  `cmd:"" help:"List the databases, and which of them has which targets."`
	Add   shardsAddCmd   `cmd:"" help:"Take a database into the installation."`
	Move  shardsMoveCmd  `cmd:"" help:"Have targets live in another database."`
	Drain shardsDrainCmd `cmd:"" help:"Move all targets of a database to the first one."`

	Remove shardsRemoveCmd `cmd:"" help:"Remove a drained database from the installation."`
}

type shardsListCmd struct{ asking }

func (shardsListCmd) Help() string {
	return whereFrom + `
Targets without a rule live in database 0. A rule applies to the targets that the rules before it have in its FORMER database.

Example:
  notyet shards list`
}

func (c *shardsListCmd) Run(a *app) error {
	return show(a, c.asking, func(b *backend) (api.Shards, error) { return b.Shards(a.Ctx) }, func(found api.Shards) {
		var rows [][]any
		for _, s := range found.Shards {
			up, pending := "up", strconv.FormatInt(s.Pending, 10)
			if !s.Up {
				up, pending = "away", "-"
			} else if s.More {
				pending = "over " + pending
			}
			rows = append(rows, []any{s.Shard, s.Server, up, pending})
		}
		a.Table([]any{"SHARD", "SERVER", "STATE", "PENDING"}, rows)
		a.shardRules(found.Rules)
		if m := found.Move; m != nil {
			fmt.Fprintf(a.Stdout, "targets %s move to database %d: %d of %d tasks have followed\n", m.Pattern, m.To, m.Done, m.Total)
		}
	})
}

func (a *app) shardRules(all []api.ShardRule) {
	if len(all) == 0 {
		return
	}
	var rows [][]any
	for _, r := range all {
		rows = append(rows, []any{r.Pattern, cmp.Or(r.Part, "-"), r.Former, r.Shard})
	}
	a.Table([]any{"TARGETS", "PART", "FORMER", "SHARD"}, rows)
}

type shardsMoveCmd struct {
	asking
	Pattern string `arg:"" help:"A target, or a pattern such as 'orders.*'; '*' is all."`
	Shard   int    `arg:"" help:"Number of the database." name:"n"`
	Part    string `help:"Of the targets that match, only the a-th of b parts by hash." placeholder:"A/B"`
	DryRun  bool   `help:"Say what would move, and move nothing." name:"dry-run"`
	Wait    bool   `help:"Wait until all their tasks have followed."`
}

func (shardsMoveCmd) Help() string {
	return whereFrom + `
The targets rest for a moment, until no delivery of theirs is under way. Then their tasks follow, those due next first; the services have them do so, one move at a time. Their timers, pauses and limits go with them, and so do dead letters that can be replayed, which get new ids. Requests that come meanwhile wait for a moment, and are stored in the new database. Ended tasks follow last, so once and versions hold; delivered ones without an id of their caller's stay. All databases must answer.

Examples:
  notyet shards move 'billing.*' 1
  notyet shards move '*' 1 --part 1/2 --dry-run`
}

func (c *shardsMoveCmd) Run(a *app) error {
	return a.moveTargets(c.asking, api.MoveTargets{Shard: c.Shard, Pattern: c.Pattern, Part: c.Part, DryRun: c.DryRun}, c.Wait && !c.DryRun)
}

func (a *app) moveTargets(c asking, r api.MoveTargets, wait bool) error {
	move := func(b *backend) (api.MovedTargets, error) {
		moved, err := b.MoveTargets(a.Ctx, r)
		for err == nil && wait {
			now, err := b.Shards(a.Ctx)
			if err != nil || now.Move == nil {
				return moved, err
			}
			if err := loop.Rest(a.Ctx, followLook); err != nil {
				return moved, err
			}
			_, _ = b.MoveTargets(a.Ctx, r) // where no service runs, it has some tasks follow; refused while a service is quicker
		}
		return moved, err
	}
	return show(a, c, move, func(moved api.MovedTargets) {
		if len(moved.Rules) == 0 {
			fmt.Fprintf(a.Stdout, "the targets are in database %d already\n", r.Shard)
		}
		a.shardRules(moved.Rules)
	})
}

// followLook is the time between two looks at tasks that follow.
const followLook = 200 * time.Millisecond

type shardsDrainCmd struct {
	asking
	Shard int  `arg:"" help:"Number of the database." name:"n"`
	Wait  bool `help:"Wait until all their tasks have followed."`
}

func (shardsDrainCmd) Help() string {
	return whereFrom + `
The targets move to database 0, under the conditions of notyet shards move. The database keeps what is left of their history, and its entry in mysql.shards stays until notyet shards remove.

Example:
  notyet shards drain 1`
}

func (c *shardsDrainCmd) Run(a *app) error {
	if c.Shard == 0 {
		return command.Usage("database 0 has the targets without a rule, and cannot be drained")
	}
	return a.moveTargets(c.asking, api.MoveTargets{Shard: 0, Pattern: "*", Former: &c.Shard}, c.Wait)
}

type shardsRemoveCmd struct {
	asking
	Shard  int  `arg:"" help:"Number of the last entry in mysql.shards, counted from 0." name:"n"`
	Forget bool `help:"Remove it although it still has history: ended tasks, dead letters, tasks that have left." name:"forget-history"`
}

func (shardsRemoveCmd) Help() string {
	return `Removes the last database, drained before, from the installation, for good. It is refused while the database has a target, something unfinished, or history. Ended tasks go after dispatcher.retention, and what a restored database would get again after migrate.retention if that is longer. The audit log of the database is not shown any more. All databases must answer. Run it with the entry, then take the entry out of mysql.shards and restart the services: until then they warn of it. Back up the others at once: an older backup of one does not get the tasks again that had moved there from the removed one.

Example:
  notyet shards remove 1`
}

// removed is the output of shards remove.
type removed struct {
	Shard int `json:"shard"`
}

func (c *shardsRemoveCmd) Run(a *app) error {
	cfg, err := a.Load(c.Settings, c.Servers, config.Sources{Defaults: command.Quiet, Require: []string{"mysql.dsn"}})
	if err != nil {
		return err
	}
	switch last := cfg.Databases() - 1; {
	case c.Shard == 0:
		return command.Usage("database 0 has the targets without a rule, and cannot be removed")
	case c.Shard < 0 || c.Shard > last:
		return command.Usage("database %d is no entry of mysql.shards, which has 0 to %d: the entry is needed until the database is removed", c.Shard, last)
	case c.Shard < last:
		return command.Usage("database %d is not the last one, and the numbers are places in mysql.shards: remove %d first", c.Shard, last)
	}
	if err := removeShard(a.Ctx, cfg, c.Shard, c.Forget); err != nil {
		return err
	}
	if c.JSON {
		return a.JSON(removed{c.Shard})
	}
	fmt.Fprintf(a.Stdout, "database %d: removed; take its entry out of mysql.shards, and restart the services\n", c.Shard)
	return nil
}

// removeShard removes database n, the last one. It may be done again.
func removeShard(ctx context.Context, cfg *config.Config, n int, forget bool) error {
	all, home := shards.Databases{}, ""
	for k := range cfg.Databases() {
		st, err := service.OpenStore(ctx, cfg.Shard(k), zap.NewNop())
		if err != nil {
			return ofDatabase(cfg, k, err)
		}
		defer func() { _ = st.Close() }()
		if k == 0 {
			if home, err = st.Installation(ctx); err != nil {
				return ofDatabase(cfg, k, err)
			}
		}
		all[k] = shards.New(st)
		err = service.Joined(ctx, home, st, k, cfg.Databases())
		if number, of, _ := all[k].Number(ctx); errors.Is(err, shards.ErrRemoved) && k == n && number == k && of == home {
			err = nil // begun before
		}
		if err != nil {
			return ofDatabase(cfg, k, err)
		}
	}
	ctx = admin.Auditing(ctx, admin.AuditEntry{What: "remove database", Detail: admin.AuditDetail(map[string]any{"shard": n, "forget_history": forget})})
	return all.Remove(ctx, n, forget)
}

type shardsAddCmd struct {
	asking
	Shard int `arg:"" help:"Number of the entry in mysql.shards, counted from 0." name:"n"`
}

func (shardsAddCmd) Help() string {
	return `Makes the tables of the database, and notes that it is number N of this installation. It gets no targets before notyet shards move. Before it, all services need all entries of mysql.shards and this release: it is refused while one is alive that does not know the entry. Later no program works on one of the databases alone.

Example:
  notyet shards add 1`
}

// added is the output of shards add.
type added struct {
	Shard int `json:"shard"`
	Slots int `json:"slots"`
}

func (c *shardsAddCmd) Run(a *app) error {
	cfg, err := a.Load(c.Settings, c.Servers, config.Sources{Defaults: command.Quiet, Require: []string{"mysql.dsn|migrate.dsn"}})
	if err != nil {
		return err
	}
	if c.Shard < 1 || c.Shard >= cfg.Databases() {
		return command.Usage("database %d is not to be added: mysql.shards has the entries 0 to %d, and the first one is there", c.Shard, cfg.Databases()-1)
	}
	slots, err := addShard(a.Ctx, cfg.ForMigrate(), c.Shard)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.JSON(added{c.Shard, slots})
	}
	fmt.Fprintf(a.Stdout, "database %d: part of the installation, with %d slots\n", c.Shard, slots)
	return nil
}

// addShard takes database n in. Each step may be done again.
func addShard(ctx context.Context, cfg *config.Config, n int) (slots int, err error) {
	var open []*store.Store
	defer func() {
		for _, st := range open {
			_ = st.Close()
		}
	}()
	joined := shards.Databases{} // those in front of it
	for k := range n {
		st, err := service.OpenStore(ctx, cfg.Shard(k), zap.NewNop())
		if err != nil {
			return 0, ofDatabase(cfg, k, err)
		}
		open, joined[k] = append(open, st), shards.New(st)
		number, _, err := joined[k].Number(ctx)
		if err == nil && k > 0 && number != k {
			err = fmt.Errorf("%w: add it first: notyet shards add %d", shards.ErrOtherShard, k)
		}
		if err != nil {
			return 0, ofDatabase(cfg, k, err)
		}
	}
	home, err := open[0].Installation(ctx)
	if err != nil {
		return 0, err
	}
	if st, err := service.OpenStore(ctx, cfg.Shard(n), zap.NewNop()); err == nil { // it need not have tables yet
		_, _, err = shards.New(st).Number(ctx)
		_ = st.Close()
		if errors.Is(err, shards.ErrRemoved) { // before the first one says that there are several
			return 0, ofDatabase(cfg, n, fmt.Errorf("%w; name an empty one", shards.ErrRemoved))
		}
	}
	known := func() error {
		for k := range n {
			if err := joined[k].KnownToAll(ctx, n); err != nil {
				return ofDatabase(cfg, k, err)
			}
		}
		return nil
	}
	if err := known(); err != nil {
		return 0, err
	}
	if err := joined[0].Join(ctx, 0, home, shards.Stand{}); err != nil {
		return 0, ofDatabase(cfg, 0, err)
	}
	if err := known(); err != nil { // one that began before the first database said that there are several
		return 0, err
	}
	if slots, err = migrateDatabase(ctx, cfg.Shard(n), nil); err != nil {
		return 0, ofDatabase(cfg, n, err)
	}
	if err := joined.Tend(ctx); err != nil {
		return 0, err
	}
	stand, err := joined[0].Stand(ctx)
	if err != nil {
		return 0, err
	}
	st, err := service.OpenStore(ctx, cfg.Shard(n), zap.NewNop())
	if err != nil {
		return 0, ofDatabase(cfg, n, err)
	}
	open = append(open, st)
	if err := shards.New(st).Join(ctx, n, home, stand); err != nil {
		return slots, err
	}
	return slots, joined[0].Join(ctx, 0, home, shards.Stand{}) // somebody may have removed another one meanwhile
}
