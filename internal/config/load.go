package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"

	"github.com/notyet/notyet/internal/reload"
)

// FileVariable names the configuration file, if no flag does.
const FileVariable = envPrefix + "CONFIG"

// Sources are where Load reads settings, in rising precedence.
type Sources struct {
	// File is a YAML file. Default: the file in NOTYET_CONFIG, otherwise none.
	File string
	// Environ are NAME=value pairs. Default os.Environ().
	Environ []string
	// Flags are keys and their values as text.
	Flags map[string]string
	// Defaults are a command's own, behind everything else. They do not count as set.
	Defaults map[string]string
	// Ignore lists keys, or sections with a final dot, not to read from file or environment. A
	// program with its own servers thus never reaches real ones.
	Ignore []string
	// Require lists keys that must be set, because their default is only for trying notyet out. Of
	// keys with | in between, one must be set.
	Require []string
}

type loader struct {
	values   *koanf.Koanf
	origin   map[string]Origin // where each key was set
	unread   map[string]bool   // keys whose values could not be read
	problems []Problem
}

// Load reads and checks everything. The error is an *Error.
func Load(s Sources) (*Config, error) {
	cfg, problems := Read(s)
	if len(problems) > 0 {
		return nil, &Error{Problems: problems}
	}
	return cfg, nil
}

// Read returns the merged configuration with all mistakes. With a mistake the configuration is for
// showing, not for use: an unreadable key has its default.
func Read(s Sources) (*Config, []Problem) {
	if s.Environ == nil {
		s.Environ = os.Environ()
	}
	if s.File == "" {
		s.File = lookup(s.Environ, FileVariable)
	}
	l := &loader{values: koanf.New("."), origin: map[string]Origin{}, unread: map[string]bool{}}
	l.texts(s.Defaults, Origin{})
	clear(l.origin)
	l.file(s)
	l.environment(s)
	l.texts(s.Flags, Origin{Kind: FromFlag})
	cfg := Default()
	l.assign(&cfg)
	l.secretFiles(&cfg)
	cfg.inherit()
	cfg.set, cfg.unread = l.origin, l.unread
	l.require(&cfg, s.Require)
	l.check(&cfg)
	return &cfg, l.problems
}

func lookup(environ []string, name string) string {
	for _, pair := range environ {
		if n, v, _ := strings.Cut(pair, "="); n == name {
			return v
		}
	}
	return ""
}

func (l *loader) add(p Problem) { l.problems = append(l.problems, p) }

// take notes a value from origin, to be assigned later.
func (l *loader) take(key string, value any, origin Origin) {
	if err := l.values.Set(key, value); err != nil {
		l.add(Problem{Key: key, Source: origin.String(), Problem: "cannot be read: " + err.Error()})
		return
	}
	l.origin[key] = origin
}

func (l *loader) file(s Sources) {
	if s.File == "" {
		return
	}
	k := koanf.New(".")
	if err := k.Load(file.Provider(s.File), document{}); err != nil {
		p := Problem{Key: "--config", Value: s.File, Problem: "cannot be read: " + quoted.ReplaceAllString(err.Error(), "(hidden)"), Fix: "name a YAML file"}
		if errors.Is(err, fs.ErrNotExist) {
			p.Problem = "does not exist"
		}
		l.add(p)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(k.All())) {
		value := k.Get(key)
		_, known := find(fields, key)
		switch {
		case value == nil && section(key):
		case value == nil && known && !ignored(s.Ignore, key): // its list may be commented out, or cut off
			l.add(Problem{Key: key, Source: s.File, Problem: "has no value", Fix: "write one, or remove the key"})
		case known:
			if !ignored(s.Ignore, key) {
				l.take(key, value, Origin{FromFile, s.File})
			}
		case section(key):
			l.add(Problem{Key: key, Source: s.File, Problem: "is a section", Fix: "write its keys below it, indented"})
		default:
			l.unknownKey(s.File, key)
		}
	}
}

// document parses the configuration's one YAML document.
type document struct{}

// Unmarshal implements koanf.Parser.
func (document) Unmarshal(text []byte) (out map[string]any, err error) {
	return out, reload.DecodeYAML(text, &out)
}

// Marshal implements koanf.Parser. Nothing is written.
func (document) Marshal(map[string]any) ([]byte, error) { return nil, errors.ErrUnsupported }

// unknownKey reports an unknown key, never with the value: the value may be a secret under a
// mistyped key. Below a secret, an apparent key can be the secret itself: a DSN without quotes is a
// YAML mapping if a space follows one of the colons.
func (l *loader) unknownKey(source, key string) {
	for _, f := range fields {
		if _, below := strings.CutPrefix(key, f.key+"."); below && f.secret {
			l.add(Problem{Key: f.key, Source: source, Problem: "is not one value", Fix: "write one value, in quotes"})
			return
		}
	}
	l.add(Problem{Key: redact(key), Source: source, Problem: "is unknown", Fix: fileFix(key)})
}

// quoted matches the YAML parser's quotations from the file.
var quoted = regexp.MustCompile("`[^`]*`")

func fileFix(key string) string {
	if near := nearest(key, Keys()); near != "" {
		return "did you mean " + near + "?"
	}
	return "remove it"
}

// testPrefix begins the variables of tests.
const testPrefix = envPrefix + "TEST_"

// injected matches Kubernetes' variables for a Service named notyet or notyet-something.
var injected = regexp.MustCompile(`^NOTYET_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

func (l *loader) environment(s Sources) {
	names, restricts := map[string]string{}, map[string]bool{}
	var variables []string
	for _, f := range fields {
		names[f.env()], restricts[f.key] = f.key, f.restricts != ""
		variables = append(variables, f.env())
	}
	provider := env.Provider("\x00", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return s.Environ },
		TransformFunc: func(name, value string) (string, any) {
			key, known := names[name]
			switch {
			case name == FileVariable, value == "" && !restricts[key], strings.HasPrefix(name, testPrefix), known && ignored(s.Ignore, key):
			case known:
				return key, value
			case !injected.MatchString(name):
				fix := "unset it; names that begin with " + envPrefix + " are settings"
				if near := nearest(name, append(variables, FileVariable)); near != "" {
					fix = "did you mean " + near + "?"
				}
				l.add(Problem{Key: name, Problem: "is unknown", Fix: fix}) // its value may be a secret
			}
			return "", nil
		},
	})
	found, err := provider.Read()
	if err != nil {
		l.add(Problem{Key: envPrefix + "*", Problem: "cannot be read: " + err.Error()})
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		l.take(key, found[key], Origin{FromEnvironment, EnvName(key)})
	}
}

func (l *loader) texts(values map[string]string, origin Origin) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if _, known := find(fields, key); !known {
			l.unknownKey(origin.String(), key)
			continue
		}
		l.take(key, values[key], origin)
	}
}

func ignored(ignore []string, key string) bool {
	return slices.ContainsFunc(ignore, func(i string) bool { return i == key || strings.HasSuffix(i, ".") && strings.HasPrefix(key, i) })
}

func (l *loader) assign(cfg *Config) {
	for _, f := range fields {
		if !l.values.Exists(f.key) {
			continue
		}
		origin, raw := l.origin[f.key], l.values.Get(f.key)
		if err := assign(reflect.ValueOf(cfg).Elem().FieldByIndex(f.index), raw); err != nil {
			l.unread[f.key] = true
			p := Problem{Key: f.key, Source: origin.String(), Problem: "is not valid", Fix: err.Error()}
			if !f.secret {
				p.Value = redact(fmt.Sprint(raw))
			}
			l.add(p)
		}
	}
}

// inherit gives each intake topic the missing common settings.
func (c *Config) inherit() {
	for i := range c.Intake.Topics {
		in := &c.Intake.Topics[i]
		if in.Target != "" && in.AllowedTargets == nil {
			in.AllowedTargets, in.own["allowed-targets"] = []string{in.Target}, true
		}
		if in.AllowedTargets == nil {
			in.AllowedTargets = c.Intake.AllowedTargets
		}
		if in.Aliases == nil {
			in.Aliases = c.Intake.Aliases
		}
		if in.MaxDelay == 0 {
			in.MaxDelay = c.Intake.MaxDelay
		}
		if in.MaxValueBytes == 0 {
			in.MaxValueBytes = c.Intake.MaxValueBytes
		}
		if !in.own["requests-per-second"] {
			in.RequestsPerSecond = c.Intake.RequestsPerSecond
		}
		if !in.own["pending-tasks"] {
			in.PendingTasks = c.Intake.PendingTasks
		}
		if !in.own["beyond"] {
			in.Beyond = c.Intake.Beyond
		}
		if !in.own["pending-bytes"] {
			in.PendingBytes = c.Intake.PendingBytes
		}
		if !in.own["unknown-targets"] {
			in.UnknownTargets = c.Intake.UnknownTargets
		}
	}
}

// require leaves out servers not needed by the kinds of election and index.
func (l *loader) require(c *Config, keys []string) {
	for _, key := range keys {
		without := key == "zookeeper.servers" && c.Election.Kind == KindMySQL || key == "redis.addrs" && c.Index.Kind == KindMySQL
		key, instead, _ := strings.Cut(key, "|")
		if l.origin[key].Kind == "" && l.origin[instead].Kind == "" && !without {
			l.add(Problem{Key: key, Problem: "is not set", Fix: "set " + EnvName(key) + ", or " + key + " in the file"})
		}
	}
}
