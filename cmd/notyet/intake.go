package main

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/notyet/notyet/cmd/internal/service"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/scanner"
)

type intakeCmd struct {
	Status  intakeStatusCmd  `cmd:"" help:"Show the positions of the intake's partitions, and which are not read any further."`
	Skip    intakeSkipCmd    `cmd:"" help:"Skip records on which a partition is stuck."`
	Restart intakeRestartCmd `cmd:"" help:"Continue a partition whose log lost records that are stored."`
}

// operate calls f with an operator of the intake.
func (a *app) operate(s command.Settings, more command.Servers, f func(*scanner.Operator) error) error {
	cfg, err := a.Load(s, more, config.Sources{Defaults: command.Quiet, Require: []string{"kafka.brokers", "mysql.dsn"}})
	if err != nil {
		return err
	}
	st, err := service.OpenStore(a.Ctx, cfg, zap.NewNop()) // everything that it would log is also in its errors
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	client, err := service.Publisher(a.Ctx, cfg, command.NewLogger(cfg.Log, a.Stderr))
	if err != nil {
		return err
	}
	defer client.Close()
	return f(&scanner.Operator{Kafka: client, Store: st, Topics: cfg.ReadTopics(), Group: cfg.Scanner.Group, Name: operator()})
}

const operatesDirectly = `Reads Kafka and the database, so it needs kafka.brokers and mysql.dsn. Scanners may run meanwhile; they notice changes within seconds.`

type intakeStatusCmd struct{ asking }

func (intakeStatusCmd) Help() string {
	return operatesDirectly + `

NEXT is the first offset that is not stored, START and END are the limits of Kafka's log. States:
  ok           the stored records match the log
  new          nothing is stored yet
  diverged     the log lost records that are stored, or the database has forgotten a restart; it is not read any further: see
               notyet intake restart
  unsure       Kafka does not know the leader epoch of what is stored, so it cannot be compared; reading continues
  stands       a scanner has tried one batch from NEXT on for a minute; the reason is shown: see notyet intake skip
  expired      records were deleted before they were stored: the retention is too short
  missing      Kafka does not have the partition
  unreachable  it has no leader

Exit code 1 if a partition stands, diverged, is missing or is unreachable.

Examples:
  notyet intake status
  notyet intake status --json | jq '.partitions[] | select(.state != "ok")'`
}

func (c *intakeStatusCmd) Run(a *app) error {
	return a.operate(c.Settings, c.Servers, func(o *scanner.Operator) error {
		found, err := o.Partitions(a.Ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			err = a.JSON(map[string]any{"partitions": found})
		} else {
			a.standing(found)
		}
		for _, p := range found {
			switch p.State {
			case scanner.StateStands, scanner.StateDiverged, scanner.StateMissing, scanner.StateUnreachable:
				return errors.Join(err, command.ErrReported)
			}
		}
		return err
	})
}

func (a *app) standing(found []scanner.Partition) {
	offset := func(n int64) any {
		if n < 0 {
			return "-"
		}
		return n
	}
	table(a, "", []any{"TOPIC", "PARTITION", "STATE", "NEXT", "START", "END", "LAG", "RESTARTS", ""}, found, func(p scanner.Partition) []any {
		return []any{p.Topic, p.Partition, p.State, offset(p.Next), offset(p.Start), offset(p.End), offset(p.Lag), p.Restarts, shortened(command.Plain(p.Detail), 100)}
	})
}

type intakeSkipCmd struct {
	asking
	Topic     string `arg:"" help:"Intake topic." name:"topic"`
	Partition int32  `arg:"" help:"Its partition." name:"partition"`
	At        *int64 `help:"The offset at which the partition is stuck: NEXT of notyet intake status." placeholder:"OFFSET" required:""`
	To        *int64 `help:"The offset at which to continue. Default: the one after --at." placeholder:"OFFSET"`
	Yes       bool   `help:"Do not ask." short:"y"`
}

func (intakeSkipCmd) Help() string {
	return operatesDirectly + `

Skipped records are not stored, so they are never delivered. One dead letter and one rejected event name the offsets and who
skipped them. The records stay in Kafka until its retention deletes them. The command fails if the partition is stuck elsewhere
or its log diverged. Asks for confirmation on a terminal.

Examples:
  notyet intake skip notyet.intake 3 --at 41200
  notyet intake skip notyet.intake 3 --at 41200 --to 41300 --yes`
}

func (c *intakeSkipCmd) Run(a *app) error {
	to := *c.At + 1
	if c.To != nil {
		to = *c.To
	}
	if *c.At < 0 || to <= *c.At {
		return command.Usage("--at %d, --to %d: the one must be 0 or more, the other behind it", *c.At, to)
	}
	return a.operate(c.Settings, c.Servers, func(o *scanner.Operator) error {
		if !c.Yes && !a.confirm(fmt.Sprintf("Pass %d offsets of %s/%d, never to be delivered?", to-*c.At, command.Plain(c.Topic), c.Partition)) {
			return command.Usage("nothing was passed")
		}
		done, err := o.Skip(a.Ctx, c.Topic, c.Partition, *c.At, to)
		if err != nil {
			return err
		}
		if c.JSON {
			return a.JSON(done)
		}
		fmt.Fprintf(a.Stdout, "%s/%d goes on at offset %d; what was passed has the dead letter of %s\n", command.Plain(done.Topic), done.Partition, done.To, command.Plain(done.ID))
		return nil
	})
}

type intakeRestartCmd struct {
	asking
	Topic     string `arg:"" help:"Intake topic." name:"topic"`
	Partition int32  `arg:"" help:"Its partition." name:"partition"`
	From      *int64 `help:"Continue at this offset instead of where the log diverged." placeholder:"OFFSET"`
	Yes       bool   `help:"Do not ask." short:"y"`
}

func (intakeRestartCmd) Help() string {
	return operatesDirectly + `

For a diverged partition: Kafka lost records that are stored, usually by an unclean leader election, and gave their offsets to
other records. Stored tasks stay and are delivered. The partition continues at the offset where the two logs diverged; records from
there on are stored as new requests. Likewise if the database is restored to before a restart. The command fails for a partition that is not diverged, and so does repeating it. See
docs/recovery.md.

Every scanner and dispatcher must have this version or a later one. Asks for confirmation on a terminal.

Examples:
  notyet intake restart notyet.intake 3
  notyet intake restart notyet.intake 3 --from 41100 --yes`
}

func (c *intakeRestartCmd) Run(a *app) error {
	return a.operate(c.Settings, c.Servers, func(o *scanner.Operator) error {
		if !c.Yes && !a.confirm(fmt.Sprintf("Read %s/%d on from where its log diverged?", command.Plain(c.Topic), c.Partition)) {
			return command.Usage("nothing was changed")
		}
		done, err := o.Restart(a.Ctx, c.Topic, c.Partition, c.From)
		if err != nil {
			return err
		}
		if c.JSON {
			return a.JSON(done)
		}
		fmt.Fprintf(a.Stdout, "%s/%d goes on at offset %d as source %d; what was stored up to offset %d stays, as source %d\n",
			command.Plain(done.Topic), done.Partition, done.From, done.NewSource, done.StoredTo, done.OldSource)
		return nil
	})
}
