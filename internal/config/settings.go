package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Where a setting can come from. "" is the default.
const (
	FromFile        = "file"
	FromEnvironment = "environment"
	FromFlag        = "flag"
)

// Origin is where a key was set.
type Origin struct {
	Kind string // FromFile, FromEnvironment, FromFlag; "": the key was not set
	Name string // the file's or the variable's
}

// String returns the name of the file or of the variable, or "flag"; "" if the key was not set.
func (o Origin) String() string {
	if o.Kind == FromFlag {
		return "flag"
	}
	return o.Name
}

// Setting is one key of the merged configuration, ready to be shown.
type Setting struct {
	Key string `json:"key"`
	// Value is a text, number, bool or list. Of a secret only harmless parts.
	Value any `json:"value"`
	// Source is default, file, environment or flag.
	Source string `json:"source"`
	// Name of the file or of the variable.
	Name string `json:"name,omitempty"`
}

// From returns where the value comes from, as one text.
func (s Setting) From() string { return strings.TrimSpace(s.Source + " " + s.Name) }

// String lists every setting, one a line, for a printed Config.
func (c *Config) String() string {
	var b strings.Builder
	for _, s := range c.Settings() {
		fmt.Fprintf(&b, "%s: %v\n", s.Key, s.Value)
	}
	return b.String()
}

// hidden stands for a secret, unread for an unreadable value.
const (
	hidden = "(hidden)"
	unread = "(not valid)"
)

// Settings returns every key in the order of Config, with the source of the value. Secrets are
// hidden. Behind intake.topics, each topic's own settings follow, such as
// intake.topics[orders.later].max-delay. An inherited setting has the source of the common one.
func (c *Config) Settings() []Setting {
	var out []Setting
	for _, f := range fields {
		v := reflect.ValueOf(c).Elem().FieldByIndex(f.index)
		if v.Type() == intakesType {
			out = append(out, c.setting(f.key, f.key, shown(c.IntakeNames())))
			out = append(out, c.intakeSettings(f.key)...)
			continue
		}
		if v.Type() == shardsType {
			out = append(out, c.setting(f.key, f.key, shownShards(c.MySQL.Shards)))
			continue
		}
		value := shown(v.Interface())
		if f.secret || c.fromFile(f.key) {
			value = masked(f.key, v.String())
		}
		out = append(out, c.setting(f.key, f.key, value))
	}
	return out
}

// fromFile tells whether the key's value comes from a file, and is thus a secret.
func (c *Config) fromFile(key string) bool {
	f, has := find(fields, key+fileSuffix)
	return has && reflect.ValueOf(c).Elem().FieldByIndex(f.index).String() != ""
}

func (c *Config) intakeSettings(list string) (out []Setting) {
	for _, in := range c.Intake.Topics {
		for _, f := range intakeFields {
			from := list
			if _, common := find(fields, "intake."+f.key); common && !in.own[f.key] {
				from = "intake." + f.key
			}
			value := shown(reflect.ValueOf(in).FieldByIndex(f.index).Interface())
			out = append(out, c.setting(fmt.Sprintf("%s[%s].%s", list, withoutCredentials(in.Topic), f.key), from, value))
		}
	}
	return out
}

// setting returns the key's setting. The key from has set the value.
func (c *Config) setting(key, from string, value any) Setting {
	origin := c.set[from]
	if c.unread[from] {
		value = unread
	}
	out := Setting{Key: key, Value: value, Source: origin.Kind, Name: origin.Name}
	if out.Source == "" {
		out.Source = "default"
	}
	return out
}

// shown returns a value for people, without the credentials of a misplaced URL or DSN.
func shown(v any) any {
	switch v := v.(type) {
	case bool, int:
		return v
	case []string:
		list := make([]string, 0, len(v))
		for _, s := range v {
			list = append(list, withoutCredentials(s))
		}
		return list
	case time.Duration:
		return v.String()
	}
	return withoutCredentials(fmt.Sprint(v))
}

// withoutCredentials leaves a pattern's question mark alone.
func withoutCredentials(s string) string {
	if strings.ContainsAny(s, "@=") {
		return redact(s)
	}
	return s
}

// masked returns the harmless part of a secret: whether the key is set and, of a DSN, the database.
func masked(key, secret string) string {
	switch {
	case secret == "":
		return ""
	case key == "mysql.dsn", key == "migrate.dsn":
		return maskedDSN(secret)
	}
	return hidden
}

// maskedDSN hides everything unless the driver understands the DSN: a misplaced character can make
// a part of the password look like an address.
func maskedDSN(dsn string) string {
	if path, sqlite := strings.CutPrefix(dsn, "sqlite:"); sqlite {
		return "sqlite:" + redact(path)
	}
	p, err := mysql.ParseDSN(dsn)
	if err != nil || p.Net != "tcp" && p.Net != "unix" {
		return hidden
	}
	out := p.User
	if p.Passwd != "" {
		out += ":" + hidden
	}
	out += fmt.Sprintf("@%s(%s)/%s", p.Net, redact(p.Addr), redact(p.DBName))
	if strings.Contains(dsn[strings.LastIndexByte(dsn, '/'):], "?") {
		out += "?" + hidden
	}
	return out
}
