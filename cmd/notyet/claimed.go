package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"

	"github.com/notyet/notyet/cmd/internal/service"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
)

// claimed returns the installation of a database that has none: a backup from before databases had
// an id, restored. The group of the scanners names it, and neither the election's root nor the send
// log of this machine names another one. "": nobody has claimed the group, or may tell; then the
// database is of an installation that is upgraded.
//
// Nobody may be at work: the database would get two owners.
func claimed(ctx context.Context, cfg *config.Config, log *zap.Logger) (string, error) {
	client, err := command.ConnectKafka(ctx, cfg, log, kafka.New)
	if err != nil {
		return "", err
	}
	defer client.Close()
	asking, cancel := context.WithTimeout(ctx, 3*command.DialTimeout)
	defer cancel()
	claim, err := kafka.GroupClaim(asking, client, cfg.Scanner.Group, cfg.ReadTopics()...)
	owner := claim.Installation
	if errors.Is(err, kerr.GroupAuthorizationFailed) || errors.Is(err, kerr.TopicAuthorizationFailed) || err == nil && owner == "" {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	alive, err := kafka.GroupMembers(asking, client, cfg.Scanner.Group)
	if err != nil {
		return "", err
	}
	others := map[string]string{}
	if cfg.Election.Kind == config.KindZooKeeper && cfg.IsSet("zookeeper.servers") {
		ecfg, err := service.ElectionConfig(cfg, log)
		if err != nil {
			return "", err
		}
		root, err := election.Examine(asking, ecfg, log)
		if err != nil {
			return "", err
		}
		alive, others["zookeeper.root "+cfg.ZooKeeper.Root] = append(alive, root.Members...), root.Installation
	}
	disk, err := sendlog.Examine(cfg.SendLog.Dir)
	if err != nil {
		return "", err
	}
	others["sendlog.dir "+cfg.SendLog.Dir] = disk.Installation
	const found = "the database has no id of an installation, and the consumer group %s belongs to %s"
	for where, id := range others {
		if cmp.Or(id, owner) != owner {
			return "", fmt.Errorf(found+", but %s to %s: correct mysql.dsn, scanner.group, zookeeper.root or sendlog.dir", cfg.Scanner.Group, owner, where, id)
		}
	}
	if disk.InUse {
		alive = append(alive, "the user of "+cfg.SendLog.Dir)
	}
	if len(alive) > 0 {
		return "", fmt.Errorf(found+", whose services are at work: stop %s first, and see docs/recovery.md", cfg.Scanner.Group, owner, strings.Join(alive, ", "))
	}
	return owner, nil
}
