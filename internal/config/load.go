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

	koanf "github.com/knadh/koanf/maps"

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
	values   map[string]any    // by key
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
	l := &loader{values: map[string]any{}, origin: map[string]Origin{}, unread: map[string]bool{}}
	l.texts(s.Defaults, Origin{})
	clear(l.origin)
	cfg := Default()
	if !l.file(s) {
		return &cfg, l.problems // nothing else can be said: the keys may be in it
	}
	l.environment(s)
	l.texts(s.Flags, Origin{Kind: FromFlag})
	l.assign(&cfg)
	l.secretFiles(&cfg)
	l.shards(&cfg)
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

// take notes a value from origin, to be assigned later. A key and the key of a file with its value
// count as one: the later source has its way.
func (l *loader) take(key string, value any, origin Origin) {
	other, isFile := strings.CutSuffix(key, fileSuffix)
	if !isFile {
		other = key + fileSuffix
	}
	if l.origin[other].Kind != origin.Kind {
		delete(l.values, other)
		delete(l.origin, other)
	}
	l.values[key], l.origin[key] = value, origin
}

// file reads the file, if there is one; false: it cannot be read.
func (l *loader) file(s Sources) bool {
	if s.File == "" {
		return true
	}
	var document map[string]any
	text, err := os.ReadFile(s.File)
	if err == nil {
		err = reload.DecodeYAML(text, &document)
	}
	if err != nil {
		p := Problem{Key: "--config", Value: s.File, Problem: "cannot be read: " + quoted.ReplaceAllString(err.Error(), "(hidden)"), Fix: "name a YAML file"}
		if errors.Is(err, fs.ErrNotExist) {
			p.Problem = "does not exist"
		}
		l.add(p)
		return false
	}
	koanf.IntfaceKeysToStrings(document)
	values, _ := koanf.Flatten(document, nil, ".")
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value := values[key]
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
	return true
}

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
	known := map[string]field{}
	var variables []string
	for _, f := range fields {
		known[f.env()] = f
		variables = append(variables, f.env())
	}
	for _, pair := range s.Environ {
		name, value, _ := strings.Cut(pair, "=")
		f, setting := known[name]
		switch {
		case !strings.HasPrefix(name, envPrefix), name == FileVariable, strings.HasPrefix(name, testPrefix), value == "" && f.restricts == "":
		case setting:
			if !ignored(s.Ignore, f.key) {
				l.take(f.key, value, Origin{FromEnvironment, name})
			}
		case !injected.MatchString(name):
			fix := "unset it; names that begin with " + envPrefix + " are settings"
			if near := nearest(name, append(variables, FileVariable)); near != "" {
				fix = "did you mean " + near + "?"
			}
			l.add(Problem{Key: name, Problem: "is unknown", Fix: fix}) // its value may be a secret
		}
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
		raw, set := l.values[f.key]
		if !set {
			continue
		}
		if err := assign(reflect.ValueOf(cfg).Elem().FieldByIndex(f.index), raw); err != nil {
			l.unread[f.key] = true
			p := Problem{Key: f.key, Source: l.origin[f.key].String(), Problem: "is not valid", Fix: err.Error()}
			if !f.secret {
				p.Value = redact(fmt.Sprint(raw))
			}
			l.add(p)
		}
	}
}

// zeroInherits are the settings of an intake topic that count as missing where they are zero. A
// quota of zero is a mistake.
var zeroInherits = []string{"aliases", "max-delay", "max-value-bytes"}

// inherit gives each intake topic the missing common settings.
func (c *Config) inherit() {
	for i := range c.Intake.Topics {
		in := &c.Intake.Topics[i]
		if in.Target != "" && in.AllowedTargets == nil {
			in.AllowedTargets, in.own["allowed-targets"] = []string{in.Target}, true
		}
		for _, f := range intakeFields {
			mine := reflect.ValueOf(in).Elem().FieldByIndex(f.index)
			common, is := find(fields, "intake."+f.key)
			if is && (!in.own[f.key] || mine.IsZero() && slices.Contains(zeroInherits, f.key)) {
				mine.Set(reflect.ValueOf(c).Elem().FieldByIndex(common.index))
			}
		}
	}
}

// require leaves out servers not needed by the kinds of election and index.
func (l *loader) require(c *Config, keys []string) {
	for _, key := range keys {
		without := key == "zookeeper.servers" && c.Election.Kind == KindMySQL || key == "redis.addrs" && c.Index.Kind == KindMySQL
		key, instead, _ := strings.Cut(key, "|")
		said := slices.ContainsFunc(l.problems, func(p Problem) bool { return p.Key == key || strings.HasPrefix(key, p.Key+".") })
		if l.origin[key].Kind == "" && l.origin[instead].Kind == "" && !without && !said {
			l.add(Problem{Key: key, Problem: "is not set", Fix: "set " + EnvName(key) + ", or " + key + " in the file"})
		}
	}
}
