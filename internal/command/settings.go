package command

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/notyet/notyet/internal/config"
)

// Settings are the flags of every command. --set is for keys without their own flag.
type Settings struct {
	Config   string   `group:"Settings" help:"Read settings from this YAML file." placeholder:"FILE" short:"c"`
	Set      []string `group:"Settings" help:"Set any one key, as in the file: --set dispatcher.look-ahead=1s" placeholder:"KEY=VALUE" sep:"none"`
	HTTPAddr string   `group:"Settings" help:"Where to serve, or to find, health and API (http.addr)." name:"http-addr" placeholder:"HOST:PORT"`
	Token    string   `group:"Settings" help:"Token for the API (http.token); other users can see flags, so better NOTYET_HTTP_TOKEN" name:"http-token" placeholder:"TOKEN"`
	LogLevel string   `group:"Settings" help:"debug, info, warn or error (log.level)." placeholder:"LEVEL"`
}

// Servers are the flags of commands with real servers.
type Servers struct {
	KafkaBrokers     string `group:"Settings" help:"kafka.brokers" name:"kafka-brokers" placeholder:"HOST:PORT,…"`
	MySQLDSN         string `group:"Settings" help:"mysql.dsn; other users can see flags, so better NOTYET_MYSQL_DSN" name:"mysql-dsn" placeholder:"DSN"`
	RedisAddrs       string `group:"Settings" help:"redis.addrs" name:"redis-addrs" placeholder:"HOST:PORT,…"`
	ZooKeeperServers string `group:"Settings" help:"zookeeper.servers" name:"zookeeper-servers" placeholder:"HOST:PORT,…"`
}

// AsJSON is the flag of every printing command.
type AsJSON struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Load reads the configuration from all sources.
func (a *App) Load(s Settings, more Servers, src config.Sources) (*config.Config, error) {
	src, err := a.Sources(s, more, src)
	if err != nil {
		return nil, err
	}
	return config.Load(src)
}

// Sources adds the file, the environment and the flags.
func (a *App) Sources(s Settings, more Servers, src config.Sources) (config.Sources, error) {
	flags := map[string]string{
		"http.addr": s.HTTPAddr, "http.token": s.Token, "log.level": s.LogLevel, "kafka.brokers": more.KafkaBrokers, "mysql.dsn": more.MySQLDSN,
		"redis.addrs": more.RedisAddrs, "zookeeper.servers": more.ZooKeeperServers,
	}
	maps.DeleteFunc(flags, func(_, value string) bool { return value == "" })
	for _, pair := range s.Set {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return src, Usage("--set without a value: write KEY=VALUE") // the argument may be a secret
		}
		flags[key] = value
	}
	src.File, src.Environ, src.Flags = s.Config, a.Environ, flags
	return src, nil
}

// Quiet are the defaults of interactive commands. The result is on stdout, and an error is printed
// once, at the end, without earlier failed attempts.
var Quiet = map[string]string{"log.level": "error", "log.format": "console"}

// Client loads the configuration of an interactive command.
func (a *App) Client(s Settings, more Servers) (*config.Config, error) {
	return a.Load(s, more, config.Sources{Defaults: Quiet})
}

// Intake returns the topic of --intake, by default the first one.
func Intake(cfg *config.Config, name string) (string, error) {
	names := cfg.IntakeNames()
	if name != "" && !slices.Contains(names, name) {
		return "", Usage("--intake %q is not an intake topic: the configuration (intake.topics) has %s", name, strings.Join(names, ", "))
	}
	return cmp.Or(name, names[0]), nil
}

// NewLogger makes the configured log.
func NewLogger(cfg config.Log, w io.Writer) *zap.Logger {
	log, _ := NewLevelLogger(cfg, w)
	return log
}

// NewLevelLogger also returns the log's changeable level.
func NewLevelLogger(cfg config.Log, w io.Writer) (*zap.Logger, zap.AtomicLevel) {
	level := zap.NewAtomicLevel()
	_ = level.UnmarshalText([]byte(cfg.Level)) // already checked
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	enc.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(enc)
	if cfg.Format == "console" {
		enc.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		enc.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(enc)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level)), level
}
