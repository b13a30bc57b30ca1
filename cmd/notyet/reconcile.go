package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/cmd/internal/service"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/shards"
)

type deadReconcileCmd struct {
	asking
	SendLog []string `help:"A send log directory, or a copy of one. Repeat the flag for each dispatcher. Default: sendlog.dir." name:"send-log" placeholder:"DIR" type:"path"`
	Topics  bool     `help:"Look in the target topics for deliveries that the logs leave in doubt."`
	DryRun  bool     `help:"Only say what would happen."`
	Without bool     `help:"Go on without a send log: what was delivered since the backup is delivered once more." name:"without-logs"`
	Accept  bool     `help:"Go on although Kafka no longer has records that the database has not stored." name:"accept-loss"`
	Shard   int      `default:"-1" help:"The number of the restored database in mysql.shards, from 0. Needed where there are several." placeholder:"N"`
	Since   string   `help:"Read the logs from this time: RFC 3339, Unix milliseconds, or a duration ago (24h). Default: an hour before the database's last claim." placeholder:"TIME"`
}

func (deadReconcileCmd) Help() string {
	return `Use it after restoring the database from a backup. It reads the intake again from the backup's offsets on, and settles the tasks that the send logs prove to have been sent, so that they are not sent again. Tasks that were not sent stay pending.

Stop every scanner and dispatcher first, restore the database, run this, then start them. If a run is interrupted, start it again. It needs the servers that the services need. docs/recovery.md has the whole procedure.

Examples:
  notyet deadletter reconcile --send-log /var/lib/notyet/sendlog --dry-run
  notyet deadletter reconcile --send-log ./logs/host-a --send-log ./logs/host-b --topics`
}

// Run reconciles, or refuses while scanners or dispatchers run.
func (c *deadReconcileCmd) Run(a *app) error {
	if c.Without && len(c.SendLog) > 0 {
		return command.Usage("--without-logs and --send-log: either there are logs, or there are none")
	}
	since, err := instant("--since", c.Since, -1)
	if err != nil {
		return err
	}
	cfg, err := a.Load(c.Settings, c.Servers, config.Sources{Defaults: command.Quiet, Require: dispatcherServers})
	if err != nil {
		return err
	}
	if cfg, err = c.database(cfg); err != nil {
		return err
	}
	r := deadletter.Reconcile{
		Logs: c.SendLog, Topics: c.Topics, DryRun: c.DryRun, AcceptLoss: c.Accept, Intake: append(cfg.IntakeNames(), cfg.Cancels.Topic), Reports: []string{cfg.Reports.Topic}, Group: cfg.Scanner.Group,
		Step: func(what string) { fmt.Fprintln(a.Stderr, what) },
	}
	if len(r.Logs) == 0 && !c.Without {
		r.Logs = []string{cfg.SendLog.Dir}
	}
	if since != (api.Instant{}) {
		r.Since = time.UnixMilli(since.Millis())
	}
	out, err := a.reconcile(cfg, max(c.Shard, 0), r)
	if errors.Is(err, sendlog.ErrNoLog) {
		return fmt.Errorf("%w; if all of them are lost, go on with --without-logs", err)
	}
	if err != nil && !errors.Is(err, deadletter.ErrGone) {
		return err
	}
	if c.JSON {
		return errors.Join(a.JSON(out), err)
	}
	c.tell(a, out)
	return err
}

// database returns the configuration of the one to reconcile.
func (c *deadReconcileCmd) database(cfg *config.Config) (*config.Config, error) {
	switch n := cfg.Databases(); {
	case c.Shard >= n || c.Shard < -1:
		return nil, command.Usage("--shard %d: mysql.shards has %d databases, from 0", c.Shard, n)
	case c.Shard < 0 && n > 1:
		return nil, command.Usage("mysql.shards has %d databases: name the restored one with --shard", n)
	}
	return cfg.Shard(max(c.Shard, 0)), nil
}

// reconcile works on database k, with its configuration.
func (a *app) reconcile(cfg *config.Config, k int, r deadletter.Reconcile) (none deadletter.Reconciled, err error) {
	log := command.NewLogger(cfg.Log, a.Stderr)
	kcfg, err := command.KafkaConfig(cfg, log)
	if err != nil {
		return none, err
	}
	if err := a.scannersAtRest(cfg, log); err != nil {
		return none, err
	}
	st, err := service.OpenStore(a.Ctx, cfg, zap.NewNop())
	if err != nil {
		return none, err
	}
	defer func() { _ = st.Close() }()
	all, err := joined(a.Ctx, cfg, k, st)
	defer all.close()
	if err != nil {
		return none, err
	}
	if err := a.dispatchersAtRest(cfg, st, log); err != nil {
		return none, err
	}
	if !r.DryRun {
		if err := all.bring(a.Ctx); err != nil {
			return none, err
		}
	}
	ix, err := service.OpenIndex(a.Ctx, cfg, st, log)
	if err != nil {
		return none, err
	}
	defer ix.Close()
	installation, err := st.Installation(a.Ctx)
	if err != nil {
		return none, err
	}
	r.CatchUp = func(ctx context.Context, topics []string, until kafka.Offsets) error {
		scfg := service.CatchUpConfig(cfg)
		scfg.Installation = installation
		scfg.Shards, scfg.Shard = cfg.Databases() > 1, k
		scfg.Databases = func() shards.Databases { return all.Databases }
		scfg.Read, scfg.Until = topics, until
		s, err := scanner.New(scanner.Deps{Kafka: kcfg, Store: st, Index: ix, Metrics: prometheus.NewRegistry(), Log: log}, scfg)
		if err != nil {
			return err
		}
		if err := s.CatchUp(ctx, func(left int64) { fmt.Fprintf(a.Stderr, "  %d to go\n", left) }); err != nil {
			return err
		}
		return a.dispatchersAtRest(cfg, st, log) // one may have begun meanwhile
	}
	out, err := deadletter.NewLocal(st, ix, operator(), log).Reconcile(a.Ctx, kcfg, r)
	if err == nil && !r.DryRun {
		err = all.FollowAtRest(a.Ctx) // it has read requests again whose tasks have moved since
	}
	return out, err
}

// databases are those of an installation, all of them.
type databases struct {
	shards.Databases
	opened []*store.Store
}

func (d databases) close() {
	for _, st := range d.opened {
		_ = st.Close()
	}
}

// bring gives the restored database the rules of the others: by older ones it would take records of
// theirs. Then tasks at rest follow, to it or away from it.
func (d databases) bring(ctx context.Context) error {
	if err := d.Tend(ctx); err != nil {
		return err
	}
	return d.FollowAtRest(ctx)
}

// joined opens the other databases beside the restored one. Close them also after an error.
func joined(ctx context.Context, cfg *config.Config, k int, st *store.Store) (all databases, err error) {
	all.Databases = shards.Databases{}
	if err := service.Joined(ctx, "", st, k, cfg.Databases()); err != nil || cfg.Databases() == 1 {
		return all, err
	}
	all.Databases[k] = shards.New(st)
	for n := range cfg.Databases() {
		if n == k {
			continue
		}
		other, err := service.OpenStore(ctx, cfg.Shard(n), zap.NewNop())
		if err != nil {
			return all, ofDatabase(cfg, n, err)
		}
		all.opened = append(all.opened, other)
		if err := service.Joined(ctx, "", other, n, cfg.Databases()); err != nil {
			return all, ofDatabase(cfg, n, err)
		}
		all.Databases[n] = shards.New(other)
	}
	return all, nil
}

// scannersAtRest refuses while scanners run: they would decide requests without the logs' evidence.
func (a *app) scannersAtRest(cfg *config.Config, log *zap.Logger) error {
	client, err := service.Publisher(a.Ctx, cfg, log)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(a.Ctx, 3*command.DialTimeout)
	defer cancel()
	scanners, err := kafka.GroupMembers(ctx, client, cfg.Scanner.Group)
	if err == nil && len(scanners) > 0 {
		err = fmt.Errorf("scanners are at work (group %s): stop %s first. One that was killed counts for 6 s", cfg.Scanner.Group, strings.Join(scanners, ", "))
	}
	return err
}

// dispatchersAtRest refuses while dispatchers run: they would send tasks about to be settled. It
// asks the election in the database first, then the one in ZooKeeper, or, with election.kind mysql
// here, the signs of life in the database: the dispatchers may elect otherwise.
func (a *app) dispatchersAtRest(cfg *config.Config, st *store.Store, log *zap.Logger) error {
	ecfg, err := service.ElectionConfig(cfg, log)
	if err != nil {
		return err
	}
	roll := st.Roll()
	defer roll.Close()
	where, session := "in the database", cfg.Election.SessionTimeout
	dispatchers, err := election.Beating(a.Ctx, roll, session)
	switch {
	case err != nil || len(dispatchers) > 0:
	case cfg.Election.Kind == config.KindZooKeeper:
		where, session = "zookeeper.root "+cfg.ZooKeeper.Root, ecfg.SessionTimeout
		ctx, cancel := context.WithTimeout(a.Ctx, 3*command.DialTimeout)
		defer cancel()
		dispatchers, err = election.Members(ctx, ecfg, log)
	default:
		where, session = "as they note in the database; election.kind is mysql here, and may be zookeeper there", admin.ServiceLease*time.Millisecond
		dispatchers, err = noting(a.Ctx, st)
	}
	if err == nil && len(dispatchers) > 0 {
		err = fmt.Errorf("dispatchers are at work (%s): stop %s first. One that was killed counts for %v", where, strings.Join(dispatchers, ", "), session)
	}
	return err
}

// noting returns the dispatchers with a fresh sign of life in the database. It watches for a little
// longer than the pause between two signs: those of a restored database are old.
func noting(ctx context.Context, st *store.Store) ([]string, error) {
	var first map[string]int64
	for began := time.Now(); ; loop.Rest(ctx, time.Second/4) {
		services, err := look.New(st).Services(ctx)
		if err != nil {
			return nil, err
		}
		var alive []string
		seen := map[string]int64{}
		for _, s := range services {
			seen[s.ID] = s.Seen
			if was, known := first[s.ID]; first != nil && s.Member != "" && (!known || was != s.Seen) {
				alive = append(alive, s.Member)
			}
		}
		if first == nil {
			first = seen
		}
		if len(alive) > 0 || time.Since(began) > admin.ServiceLease*time.Millisecond/3+time.Second {
			return alive, nil
		}
	}
}

const withoutLogs = `No send log was read, so it is not known
  what was delivered since the backup: it is delivered once more, with the delivery key it had, and runs of timers with another
  what a keep, once or merge since the backup found: it is decided beside the task that the backup has
  whether Kafka has come back older as well: records at offsets of lost ones then get their delivery keys`

func (c *deadReconcileCmd) tell(a *app, r deadletter.Reconciled) {
	for _, l := range r.Logs {
		fmt.Fprintf(a.Stdout, "send log %s: %d entries since %s\n", l.Dir, l.Entries, stamp(r.Since))
		if l.Damage != "" {
			fmt.Fprintf(a.Stdout, "  %s\n", l.Damage)
		}
	}
	if len(r.Logs) == 0 {
		fmt.Fprintln(a.Stdout, withoutLogs)
	}
	settled := "settled"
	if r.DryRun {
		settled = "to settle"
	}
	rows := [][]any{
		{r.Proven, "tasks were answered by Kafka"},
		{r.InDoubt, "tasks were in doubt: about to be sent, and no answer is known"},
		{r.Found, "of those are on their topics"},
		{r.Unread, "records of the intake and of reports were not in the database"},
		{r.Gone, "records of the intake and of reports were in neither the database nor Kafka: they are lost"},
		{len(r.OtherLogs), "partitions have another log than that of their deliveries, and get delivery keys of another source"},
		{r.UnreadProven, "of those made tasks that were sent: " + settled},
		{r.Unsent, "tasks in the database were sent: " + settled},
		{r.Again, "tasks in doubt will be sent again, with the delivery key they had"},
	}
	for _, row := range rows {
		fmt.Fprintf(a.Stdout, "%9d %s\n", row...)
	}
	if !r.DryRun && r.Left > 0 {
		fmt.Fprintf(a.Stdout, "%9d proven tasks are still to be sent: run it again\n", r.Left)
	}
}
