package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/cmd/internal/service"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/embedded"
)

type devCmd struct {
	command.Settings
	KafkaAddr string `default:"127.0.0.1:9092" help:"Serve Kafka here; clients are told this address." name:"kafka-addr" placeholder:"HOST:PORT"`
	Data      string `help:"Keep topics, tasks and the send log in this directory; they survive kill -9. Default: nothing is kept." placeholder:"DIR" type:"path"`
}

func (devCmd) Help() string {
	return `Kafka, Redis, SQL and the election are embedded, so nothing else has to be installed. For development, not for production.
Topics are created on first use. Settings for real servers are ignored, in the environment and in the file: everything
that begins with NOTYET_KAFKA_, NOTYET_MYSQL_, NOTYET_REDIS_ or NOTYET_ZOOKEEPER_, and NOTYET_SENDLOG_DIR,
NOTYET_DISPATCHER_MEMBER_ID, NOTYET_SLOTS and NOTYET_SHARDS. Other variables apply; the greeting lists them.

Examples:
  notyet dev
  notyet dev --data ./notyet-data --kafka-addr 127.0.0.1:19092 --http-addr 127.0.0.1:18080`
}

// devSources excludes settings of real servers, because dev starts its own.
var devSources = config.Sources{
	Ignore: []string{"kafka.", "mysql.", "redis.", "zookeeper.", "election.", "index.", "wakes.", "sendlog.dir", "dispatcher.member-id", "slots", "shards"},
	Defaults: map[string]string{"log.level": "warn", "log.format": "console", "slots": "8", "stop-timeout": "10s", "dispatcher.drain-timeout": "5s",
		"callback.enabled": "true", "callback.allow-http": "true", "callback.allowed-networks": "127.0.0.0/8,::1/128",
	},
}

// Run starts servers, database and parts, and then blocks.
func (c *devCmd) Run(a *app) error {
	cfg, err := a.Load(c.Settings, command.Servers{}, devSources)
	if err != nil {
		return err
	}
	log := command.NewLogger(cfg.Log, a.Stderr)
	privateFiles()
	dir, remove, err := c.directory()
	if err != nil {
		return err
	}
	defer remove()
	stop, err := c.startServers(cfg, dir, log)
	if err != nil {
		return err
	}
	defer stop()
	if _, err := migrateDatabase(a.Ctx, cfg, nil); err != nil {
		return err
	}
	return service.Dev(a.App, cfg, log, func(addr string, intakes []api.Intake) { c.greet(a, cfg, addr, intakes) })
}

// directory returns the place of all data: the given directory, or a temporary one until the end.
func (c *devCmd) directory() (dir string, remove func(), err error) {
	if c.Data != "" {
		if err := cmp.Or(os.MkdirAll(c.Data, 0o700), closeToOthers(c.Data)); err != nil {
			return "", nil, command.Usage("--data: %v", err)
		}
		return c.Data, func() {}, nil
	}
	if dir, err = os.MkdirTemp("", "notyet-dev-"); err != nil {
		return "", nil, fmt.Errorf("making a directory for this run: %w", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// closeToOthers removes other users' access to files left readable by an earlier version, because
// of the messages there. In a directory named by the user, only dev's own files are touched.
func closeToOthers(dir string) error {
	for _, name := range []string{"kafka", "sendlog", "notyet.db", "notyet.db-wal", "notyet.db-shm"} {
		err := filepath.WalkDir(filepath.Join(dir, name), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || d.Type()&fs.ModeSymlink != 0 {
				return err
			}
			if d.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return os.Chmod(path, 0o600)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// startServers starts the embedded servers and points cfg at them.
func (c *devCmd) startServers(cfg *config.Config, dir string, log *zap.Logger) (stop func(), err error) {
	kcfg := embedded.Config{Addr: c.KafkaAddr, CreateOnLookup: true}
	if c.Data != "" {
		kcfg.DataDir = filepath.Join(dir, "kafka")
	}
	for _, name := range cfg.OwnTopics() {
		kcfg.Topics = append(kcfg.Topics, embedded.Topic{Name: name})
	}
	k, err := embedded.StartKafka(kcfg, log)
	switch {
	case errors.Is(err, embedded.ErrDataDirLocked):
		return nil, fmt.Errorf("--data %s: another notyet dev uses it", c.Data)
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--kafka-addr: %w", err)
	case err != nil:
		return nil, command.UsageError{Err: fmt.Errorf("--kafka-addr, --data: %w", err)}
	}
	r, err := embedded.StartRedis()
	if err != nil {
		k.Close()
		return nil, err
	}
	cfg.Kafka.Brokers, cfg.Redis.Addrs = []string{k.Addr()}, []string{r.Addr()}
	cfg.MySQL.DSN = "sqlite:" + filepath.Join(dir, "notyet.db")
	cfg.SendLog.Dir = filepath.Join(dir, "sendlog")
	return func() { r.Close(); k.Close() }, nil
}

// greet prints what to type next.
func (c *devCmd) greet(a *app, cfg *config.Config, addr string, intakes []api.Intake) {
	kept := "nothing is kept (use --data DIR)"
	if c.Data != "" {
		kept = "everything is kept in " + c.Data
	}
	broker := cfg.Kafka.Brokers[0]
	in, _ := api.Pick(intakes, "", "orders")
	elsewhere := ""
	if broker != config.Default().Kafka.Brokers[0] {
		elsewhere = " --kafka-brokers " + broker
	}
	asked := ""
	if addr != config.Default().HTTP.Addr {
		asked = " --http-addr " + addr
	}
	fmt.Fprintf(a.Stdout, `notyet dev is ready; %[1]s. For development, not for production: one process, one copy of everything.

  Kafka  %[2]s
  HTTP   http://%[3]s (API /api/v1, /openapi.json, /metrics)
%[8]s
Next, in another terminal:

  %[4]s schedule%[5]s --topic orders --id hello --delay 5s --value 'hello, later'
  %[4]s get%[6]s --topic orders --id hello
  %[4]s watch%[5]s

or with any Kafka client:

  echo 'hello, later' | kcat -P -b %[2]s -t %[7]s -H notyet-topic=orders -H notyet-delay=5s
  kcat -C -b %[2]s -t orders -o beginning -f '%%T %%k %%s %%h\n'

`, kept, broker, addr, a.Program, elsewhere, asked, in.Topic, fromEnvironment(cfg, a.Environ))
}

// fromEnvironment returns the used and ignored variables: a shell may have a real installation's.
func fromEnvironment(cfg *config.Config, environ []string) string {
	var used, ignored []string
	for _, key := range config.Keys() {
		name := config.EnvName(key)
		set := slices.ContainsFunc(environ, func(pair string) bool { return strings.HasPrefix(pair, name+"=") && pair != name+"=" })
		switch {
		case set && cfg.Origin(key) == name:
			used = append(used, name)
		case set && !cfg.IsSet(key):
			ignored = append(ignored, name)
		}
	}
	text := ""
	if len(used) > 0 {
		text += "\n  Used from the environment: " + strings.Join(used, ", ")
	}
	if len(ignored) > 0 {
		text += "\n  Ignored, since dev brings its own: " + strings.Join(ignored, ", ")
	}
	if text != "" {
		text += "\n"
	}
	return text
}
