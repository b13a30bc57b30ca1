package main

import "github.com/notyet/notyet/internal/config"

type scannerCmd struct {
	settings
	servers
}

// Help is part of --help.
func (scannerCmd) Help() string {
	return `Run several; they share the intake partitions. One that dies costs nothing but the others' time to notice.
Needs kafka.brokers, mysql.dsn and redis.addrs, and a database that "notyet migrate" has prepared.

Example:
  NOTYET_KAFKA_BROKERS=kafka:9092 NOTYET_MYSQL_DSN='user:password@tcp(mysql:3306)/notyet' NOTYET_REDIS_ADDRS=redis:6379 notyet scanner`
}

// Run is straight-line: configuration, connections, parts, and then it blocks.
func (c *scannerCmd) Run(a *app) error {
	cfg, err := a.load(c.settings, c.servers, config.Sources{Require: []string{"kafka.brokers", "mysql.dsn", "redis.addrs"}})
	if err != nil {
		return err
	}
	s, err := openService(a.ctx, cfg, newLogger(cfg.Log, a.stderr))
	if err != nil {
		return err
	}
	defer s.close()
	s.warnUnrestricted()
	if err := s.addScanner(); err != nil {
		return err
	}
	return s.run(a.ctx, "scanner")
}

type dispatcherCmd struct {
	settings
	servers
}

// Help is part of --help.
func (dispatcherCmd) Help() string {
	return `Run several; they share the slots through ZooKeeper. Each needs a directory of its own for its send log (sendlog.dir).
At a stop it delivers what it has staged and gives its slots back, within dispatcher.drain-timeout.

Example:
  NOTYET_SENDLOG_DIR=/var/lib/notyet/sendlog notyet dispatcher --config /etc/notyet.yaml`
}

// Run is straight-line: configuration, connections, parts, and then it blocks.
func (c *dispatcherCmd) Run(a *app) error {
	cfg, err := a.load(c.settings, c.servers, config.Sources{Require: everyServer})
	if err != nil {
		return err
	}
	s, err := openService(a.ctx, cfg, newLogger(cfg.Log, a.stderr))
	if err != nil {
		return err
	}
	defer s.close()
	members, err := s.zookeeper()
	if err != nil {
		return err
	}
	if err := s.addDispatcher(members, members.MemberID()); err != nil {
		return err
	}
	return s.run(a.ctx, "dispatcher")
}

type allCmd struct {
	settings
	servers
}

// Help is part of --help.
func (allCmd) Help() string {
	return `A small installation needs nothing else; run two or more of them, so that one can fail. See scanner and dispatcher.

Example:
  notyet migrate --config /etc/notyet.yaml && notyet all --config /etc/notyet.yaml`
}

// everyServer are the keys without which a dispatcher cannot run.
var everyServer = []string{"kafka.brokers", "mysql.dsn", "redis.addrs", "zookeeper.servers"}

// Run is straight-line: configuration, connections, parts, and then it blocks.
func (c *allCmd) Run(a *app) error {
	cfg, err := a.load(c.settings, c.servers, config.Sources{Require: everyServer})
	if err != nil {
		return err
	}
	s, err := openService(a.ctx, cfg, newLogger(cfg.Log, a.stderr))
	if err != nil {
		return err
	}
	defer s.close()
	members, err := s.zookeeper()
	if err != nil {
		return err
	}
	s.warnUnrestricted()
	if err := s.addScanner(); err != nil {
		return err
	}
	if err := s.addDispatcher(members, members.MemberID()); err != nil {
		return err
	}
	return s.run(a.ctx, "all")
}
