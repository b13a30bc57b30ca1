package main

import (
	"io"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/notyet/notyet/internal/config"
)

// settings are the flags of every command. --set sets what has no flag of its own.
type settings struct {
	Config   string   `group:"Settings" help:"Read settings from this YAML file." placeholder:"FILE" short:"c"`
	Set      []string `group:"Settings" help:"Set any one key, as in the file: --set dispatcher.look-ahead=1s" placeholder:"KEY=VALUE" sep:"none"`
	HTTPAddr string   `group:"Settings" help:"Where to serve, or to find, health and API (http.addr)." name:"http-addr" placeholder:"HOST:PORT"`
	Token    string   `group:"Settings" help:"Token for the API (http.token); other users can see flags, so better NOTYET_HTTP_TOKEN" name:"http-token" placeholder:"TOKEN"`
	LogLevel string   `group:"Settings" help:"debug, info, warn or error (log.level)." placeholder:"LEVEL"`
}

// servers are the flags of commands that use real servers.
type servers struct {
	KafkaBrokers     string `group:"Settings" help:"kafka.brokers" name:"kafka-brokers" placeholder:"HOST:PORT,…"`
	MySQLDSN         string `group:"Settings" help:"mysql.dsn; other users can see flags, so better NOTYET_MYSQL_DSN" name:"mysql-dsn" placeholder:"DSN"`
	RedisAddrs       string `group:"Settings" help:"redis.addrs" name:"redis-addrs" placeholder:"HOST:PORT,…"`
	ZooKeeperServers string `group:"Settings" help:"zookeeper.servers" name:"zookeeper-servers" placeholder:"HOST:PORT,…"`
}

// asJSON is the flag of every command that prints something.
type asJSON struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// load reads the configuration from all its sources.
func (a *app) load(s settings, more servers, src config.Sources) (*config.Config, error) {
	flags := map[string]string{
		"http.addr": s.HTTPAddr, "http.token": s.Token, "log.level": s.LogLevel, "kafka.brokers": more.KafkaBrokers, "mysql.dsn": more.MySQLDSN,
		"redis.addrs": more.RedisAddrs, "zookeeper.servers": more.ZooKeeperServers,
	}
	for key, value := range flags {
		if value == "" {
			delete(flags, key)
		}
	}
	for _, pair := range s.Set {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, usage("--set without a value: write KEY=VALUE") // the argument may be a secret
		}
		flags[key] = value
	}
	src.File, src.Environ, src.Flags = s.Config, a.environ, flags
	return config.Load(src)
}

// quiet are the defaults of interactive commands. Their result is on stdout, and an error is
// printed once, at the end, without the failed attempts before it.
var quiet = map[string]string{"log.level": "error", "log.format": "console"}

// client loads the configuration of such a command.
func (a *app) client(s settings, more servers) (*config.Config, error) {
	return a.load(s, more, config.Sources{Defaults: quiet})
}

func newLogger(cfg config.Log, w io.Writer) *zap.Logger {
	level := zapcore.InfoLevel
	_ = level.Set(cfg.Level) // already checked
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	enc.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(enc)
	if cfg.Format == "console" {
		enc.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		enc.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(enc)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level))
}
