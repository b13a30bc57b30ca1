package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/cmd/internal/service"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store"
)

type migrateCmd struct {
	asking
	DatabaseOnly bool   `help:"Do not look at Kafka: others make its topics." name:"database-only"`
	DryRun       bool   `help:"Print the statements that would run and the topics that would be made, and change nothing." name:"dry-run"`
	MigrateDSN   string `help:"migrate.dsn: the DSN of a user who may change tables, if it is another than that of mysql.dsn; other users can see flags, so better NOTYET_MIGRATE_DSN" name:"migrate-dsn" placeholder:"DSN"`
	KafkaMoved   bool   `help:"The installation has moved to another Kafka cluster, whose intake topics are new. Without it, a database that belongs to another cluster is refused." name:"kafka-moved"`
}

func (migrateCmd) Help() string {
	return `Run it before the first start and for each new version. It may be run again at any time, even while services run.
It needs no right to create topics that exist (--database-only does not look at Kafka at all). It does not change existing topics, their partitions and settings, or the number of slots. If slots is set to another
number, migrate fails. With --dry-run it changes nothing.

The intake and report topics that it creates keep records for migrate.retention (14 days) by the broker's clock, whatever their
size. Requests are lost if all scanners are down longer than this, or if an older database backup is restored. With three
copies or more, two must have a record before Kafka acknowledges it (min.insync.replicas). Where the largest request that an
intake takes is above Kafka's default, its topic is created with a larger max.message.bytes.

Example:
  notyet migrate --kafka-brokers kafka:9092 --mysql-dsn 'user:password@tcp(mysql:3306)/notyet' --set migrate.replication=3`
}

// migrated is the output of migrate.
type migrated struct {
	Slots   int      `json:"slots"`
	Created []string `json:"topics_created"`
	Kept    []string `json:"topics_kept"`
}

func (c *migrateCmd) Run(a *app) error {
	required := []string{"kafka.brokers", "mysql.dsn|migrate.dsn"}
	if c.DatabaseOnly {
		required = required[1:]
	}
	if c.DatabaseOnly && c.KafkaMoved {
		return command.Usage("--database-only and --kafka-moved exclude each other: the second needs Kafka")
	}
	if c.MigrateDSN != "" {
		c.Set = append(c.Set, "migrate.dsn="+c.MigrateDSN)
	}
	cfg, err := a.Load(c.Settings, c.Servers, config.Sources{Defaults: command.Quiet, Require: required})
	if err != nil {
		return err
	}
	cfg = cfg.ForMigrate()
	log := command.NewLogger(cfg.Log, a.Stderr)
	if c.DryRun {
		return c.tell(a, cfg, log)
	}
	out := migrated{Created: []string{}, Kept: []string{}}
	var slots []int // by database
	for k := range cfg.Databases() {
		one := cfg.Shard(k)
		claim := func(ctx context.Context) (string, error) { return claimed(ctx, one, log) }
		if c.DatabaseOnly {
			claim = nil
		}
		n, err := migrateDatabase(a.Ctx, one, claim)
		if err != nil {
			return ofDatabase(cfg, k, err)
		}
		slots = append(slots, n)
	}
	out.Slots = slots[0]
	own := cfg.OwnTopics()
	if c.DatabaseOnly {
		own = nil
	} else if out.Created, err = migrateTopics(a.Ctx, cfg, log, c.KafkaMoved); err != nil {
		return err
	}
	for _, name := range own {
		if !slices.Contains(out.Created, name) {
			out.Kept = append(out.Kept, name)
		}
	}
	if c.JSON {
		return a.JSON(out)
	}
	for k, n := range slots {
		name := "database"
		if len(slots) > 1 {
			name = fmt.Sprintf("database %d", k)
		}
		fmt.Fprintf(a.Stdout, "%s: up to date, %d slots\n", name, n)
	}
	for _, name := range out.Created {
		fmt.Fprintf(a.Stdout, "topic %s: created\n", name)
	}
	for _, name := range out.Kept {
		fmt.Fprintf(a.Stdout, "topic %s: exists, left as it is\n", name)
	}
	return nil
}

// planned is the output of migrate --dry-run.
type planned struct {
	Migrations []store.Migration `json:"migrations"`
	Slots      int               `json:"slots"` // to be made; 0: there are some
	Topics     []kafka.TopicSpec `json:"topics"`
}

// tell prints the plan of migrate, without a check whether Kafka is the installation's.
func (c *migrateCmd) tell(a *app, cfg *config.Config, log *zap.Logger) error {
	out := planned{Migrations: []store.Migration{}, Topics: []kafka.TopicSpec{}}
	for k := range cfg.Databases() {
		if err := out.database(a.Ctx, cfg, k); err != nil {
			return ofDatabase(cfg, k, err)
		}
	}
	if !c.DatabaseOnly {
		if err := out.topics(a.Ctx, cfg, log); err != nil {
			return err
		}
	}
	if c.JSON {
		return a.JSON(out)
	}
	for _, m := range out.Migrations {
		fmt.Fprintf(a.Stdout, "-- %s\n%s\n", m.Name, m.SQL)
	}
	if out.Slots > 0 {
		fmt.Fprintf(a.Stdout, "-- then the installation's id and key, and %d slots\n", out.Slots)
	}
	for _, t := range out.Topics {
		fmt.Fprintf(a.Stdout, "-- topic %s: %d partitions, replication %d (0: the broker's default)", t.Name, t.Partitions, t.Replication)
		for _, key := range slices.Sorted(maps.Keys(t.Configs)) {
			fmt.Fprintf(a.Stdout, ", %s=%s", key, t.Configs[key])
		}
		fmt.Fprintln(a.Stdout)
	}
	fmt.Fprintf(a.Stdout, "-- %d migrations and %d topics to be made; nothing was changed\n", len(out.Migrations), len(out.Topics))
	return nil
}

// ofDatabase names the database of an error, where there are several.
func ofDatabase(cfg *config.Config, k int, err error) error {
	if cfg.Databases() > 1 {
		return fmt.Errorf("database %d of mysql.shards: %w", k, err)
	}
	return err
}

func (p *planned) database(ctx context.Context, cfg *config.Config, k int) error {
	st, err := service.OpenDatabase(ctx, cfg.Shard(k), zap.NewNop())
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	pending, slots, err := st.Pending(ctx)
	for i := range pending {
		if cfg.Databases() > 1 {
			pending[i].Name = fmt.Sprintf("database %d: %s", k, pending[i].Name)
		}
	}
	p.Migrations = append(p.Migrations, pending...)
	if !slots {
		p.Slots = cfg.Slots
	}
	return err
}

// topics notes the missing ones.
func (p *planned) topics(ctx context.Context, cfg *config.Config, log *zap.Logger) error {
	client, err := command.ConnectKafka(ctx, cfg, log, kafka.New)
	if err != nil {
		return err
	}
	defer client.Close()
	there, err := kafka.TopicIDs(ctx, client, cfg.OwnTopics()...)
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		return fmt.Errorf("%w: grant Describe on notyet's topics, which a dry run looks for, or add --database-only", err)
	}
	if err != nil {
		return err
	}
	for _, spec := range topicSpecs(cfg) {
		if _, exists := there[spec.Name]; !exists {
			p.Topics = append(p.Topics, spec)
		}
	}
	return nil
}

func migrateDatabase(ctx context.Context, cfg *config.Config, claimed func(context.Context) (string, error)) (slots int, err error) {
	st, err := service.OpenDatabase(ctx, cfg, zap.NewNop()) // everything that it would log is also in its errors
	if err != nil {
		return 0, err
	}
	defer func() { _ = st.Close() }()
	if err := st.MigrateClaimed(ctx, cfg.Slots, claimed); err != nil {
		return 0, err
	}
	if err := st.CheckRowLocks(ctx); err != nil {
		return 0, err
	}
	slots, err = st.SlotCount(ctx)
	if err == nil && cfg.IsSet("slots") && slots != cfg.Slots {
		err = command.Usage("slots is %d (%s), but the database has %d, and migrate does not change their number: see `notyet slots set`, or write %d, or leave it out", cfg.Slots, cfg.Origin("slots"), slots, slots)
	}
	return slots, err
}

func onKafka(ctx context.Context, cfg *config.Config, client *kgo.Client, moved bool) error {
	st, err := service.OpenStore(ctx, cfg, zap.NewNop())
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	return service.CheckKafka(ctx, st, client, moved)
}

func migrateTopics(ctx context.Context, cfg *config.Config, log *zap.Logger, moved bool) ([]string, error) {
	client, err := command.ConnectKafka(ctx, cfg, log, kafka.New)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for k := range cfg.Databases() {
		if err := onKafka(ctx, cfg.Shard(k), client, moved); err != nil {
			return nil, ofDatabase(cfg, k, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	created, err := kafka.EnsureTopics(ctx, client, topicSpecs(cfg))
	if created == nil {
		created = []string{}
	}
	return created, err
}
