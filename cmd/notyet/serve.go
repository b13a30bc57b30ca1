package main

import (
	"github.com/notyet/notyet/cmd/internal/service"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
)

// Servers required by a scanner and a dispatcher.
var (
	scannerServers    = []string{"kafka.brokers", "mysql.dsn", "redis.addrs"}
	dispatcherServers = append(scannerServers, "zookeeper.servers")
)

type serving struct {
	command.Settings
	command.Servers
	Shards *string `help:"Work for these databases of mysql.shards only, by number from 0 (shards). Default: all." placeholder:"N,…"`
}

// serve runs a service. required settings must be set: their defaults are only for trying out.
func (c *serving) serve(a *app, name string, required []string, parts ...func(*service.Engine) error) error {
	if c.Shards != nil {
		c.Set = append(c.Set, "shards="+*c.Shards)
	}
	return service.Serve(a.App, name, func() (*config.Config, error) {
		return a.Load(c.Settings, c.Servers, config.Sources{Require: required})
	}, parts...)
}

type scannerCmd struct{ serving }

func (scannerCmd) Help() string {
	return `Run several; they share the intake partitions. If one dies, the others take over its partitions within seconds.
Needs kafka.brokers, mysql.dsn and redis.addrs (not with index.kind mysql), and a database that "notyet migrate" has prepared.

Example:
  NOTYET_KAFKA_BROKERS=kafka:9092 NOTYET_MYSQL_DSN='user:password@tcp(mysql:3306)/notyet' NOTYET_REDIS_ADDRS=redis:6379 notyet scanner`
}

func (c *scannerCmd) Run(a *app) error {
	return c.serve(a, "scanner", scannerServers, (*service.Engine).AddScanner)
}

type dispatcherCmd struct{ serving }

func (dispatcherCmd) Help() string {
	return `Run several; they share the slots through ZooKeeper, or through the database (election.kind mysql). Each needs a directory of its own for its send log (sendlog.dir).
At a stop it delivers its claimed tasks and releases its slots, within dispatcher.drain-timeout.

Example:
  NOTYET_SENDLOG_DIR=/var/lib/notyet/sendlog notyet dispatcher --config /etc/notyet.yaml`
}

func (c *dispatcherCmd) Run(a *app) error {
	return c.serve(a, "dispatcher", dispatcherServers, (*service.Engine).AddDispatcher)
}

type allCmd struct{ serving }

func (allCmd) Help() string {
	return `This is enough for a small installation, with election.kind and index.kind mysql on Kafka and the database alone. Run two or more, so that one can fail. See scanner and dispatcher.

Example:
  notyet migrate --config /etc/notyet.yaml && notyet all --config /etc/notyet.yaml`
}

func (c *allCmd) Run(a *app) error {
	return c.serve(a, "all", dispatcherServers, (*service.Engine).AddScanner, (*service.Engine).AddDispatcher)
}
