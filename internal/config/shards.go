package config

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/notyet/notyet/internal/reload"
)

// Shard is one entry of mysql.shards.
type Shard struct {
	// DSN is the address, in the form of mysql.dsn.
	DSN string
	// DSNFile is a file with the DSN; "": there is none.
	DSNFile string
}

// assignShards accepts DSNs, or mappings with the key dsn-file. Errors never show a value: it may
// have a password.
func assignShards(into reflect.Value, raw any) error {
	entries, isList := raw.([]any)
	if !isList {
		texts, err := texts(raw)
		if err != nil {
			return errors.New("write a list of DSNs, or DSNs separated by commas")
		}
		for _, t := range texts {
			entries = append(entries, t)
		}
	}
	out := make([]Shard, len(entries))
	for i, e := range entries {
		m, isMapping := e.(map[string]any)
		path, isFile := m["dsn-file"].(string)
		switch {
		case isMapping && len(m) == 1 && isFile && path != "":
			out[i].DSNFile = path
		case !isMapping && isScalar(e) && scalar(e) != "":
			out[i].DSN = scalar(e)
		default:
			return fmt.Errorf("entry %d: write a DSN in quotes, or a mapping with dsn-file and the path of a file alone", i)
		}
	}
	into.Set(reflect.ValueOf(out))
	return nil
}

// shards reads the entries' files, and makes the first entry mysql.dsn: commands that know of one
// database ask the home.
func (l *loader) shards(c *Config) {
	const key = "mysql.shards"
	if l.origin[key].Kind == "" || l.unread[key] {
		return
	}
	for _, other := range []string{"mysql.dsn", "mysql.dsn-file"} {
		if l.origin[other].Kind != "" {
			l.unread[key] = true
			l.bad(other, "", "and "+key+" exclude each other", "remove one; the first entry of "+key+" is the database of an installation with one")
			return
		}
	}
	for i := range c.MySQL.Shards {
		s := &c.MySQL.Shards[i]
		if s.DSNFile == "" {
			continue
		}
		var err error
		if s.DSN, err = reload.ReadText(s.DSNFile); err != nil { // what is set may be the secret itself, by mistake
			l.unread[key] = true
			l.bad(key, "", fmt.Sprintf("has a dsn-file in entry %d that cannot be used: %v", i, err), "name a file that holds nothing but the DSN, and that notyet may read")
		}
	}
	if len(c.MySQL.Shards) == 0 || l.unread[key] {
		return
	}
	home := c.MySQL.Shards[0]
	c.MySQL.DSN, c.MySQL.DSNFile = home.DSN, home.DSNFile
	l.origin["mysql.dsn"] = l.origin[key]
	if home.DSNFile != "" {
		l.origin["mysql.dsn"] = Origin{FromFile, home.DSNFile}
	}
}

// checkShards looks at mysql.shards, and at which of them a service runs.
func (l *loader) checkShards(c *Config) {
	const key = "mysql.shards"
	if l.origin[key].Kind != "" && !l.unread[key] {
		if len(c.MySQL.Shards) == 0 {
			l.bad(key, "", "is empty", "write a list of DSNs, or mysql.dsn")
		}
		if len(c.MySQL.Shards) > 1 && c.Migrate.DSN != "" {
			l.bad("migrate.dsn", "", "is one database, and "+key+" has several", "remove it, and give migrate a "+key+" with the users who may change tables")
		}
		seen := map[string]int{}
		for i, s := range c.MySQL.Shards {
			l.entry(i, len(c.MySQL.Shards), s.DSN, c.MySQL, seen)
		}
	}
	if !c.IsSet("shards") || l.unread["shards"] || l.unread[key] {
		return
	}
	seen := map[int]bool{}
	for _, text := range c.Shards {
		n, err := strconv.Atoi(text)
		switch {
		case err != nil || n < 0 || strconv.Itoa(n) != text:
			l.bad("shards", text, "is not a number of an entry of mysql.shards", "write numbers from 0, such as 1,3")
		case n >= c.Databases():
			l.bad("shards", text, fmt.Sprintf("is no entry of mysql.shards, which has %d", c.Databases()), fmt.Sprintf("write numbers from 0 to %d", c.Databases()-1))
		case seen[n]:
			l.bad("shards", text, "is named twice", "name each database once")
		}
		seen[n] = true
	}
}

// entry checks one entry of several. The first one is checked as mysql.dsn.
func (l *loader) entry(i, of int, dsn string, m MySQL, seen map[string]int) {
	const key = "mysql.shards"
	if dsn == "" {
		l.bad(key, "", fmt.Sprintf("has nothing in entry %d", i), "write a DSN")
		return
	}
	var parsed *mysql.Config
	if i > 0 {
		before := len(l.problems)
		parsed = l.dsn(key, dsn, m.TLS.Enabled)
		for j := before; j < len(l.problems); j++ {
			l.problems[j].Problem = fmt.Sprintf("has an entry %d that %s", i, l.problems[j].Problem)
		}
		if len(l.problems) > before {
			return
		}
		if parsed != nil && parsed.Passwd != "" && m.PasswordFile != "" {
			l.bad(key, "", fmt.Sprintf("has a password in entry %d beside mysql.password-file", i), "remove one")
		}
	} else if p, err := mysql.ParseDSN(dsn); err == nil {
		parsed = p
	}
	path, sqlite := strings.CutPrefix(dsn, "sqlite:")
	place := filepath.Clean(path)
	switch {
	case sqlite && path == ":memory:" && of > 1:
		l.bad(key, "", fmt.Sprintf("has a database in memory in entry %d", i), "name a file")
		return
	case !sqlite && parsed == nil:
		return
	case !sqlite:
		place = fmt.Sprintf("%s(%s)/%s", parsed.Net, strings.ToLower(parsed.Addr), parsed.DBName)
	}
	if first, twice := seen[place]; twice {
		l.bad(key, "", fmt.Sprintf("has the same database in entries %d and %d", first, i), "name each database once")
		return
	}
	seen[place] = i
}

// Databases returns how many databases the installation has.
func (c *Config) Databases() int { return max(1, len(c.MySQL.Shards)) }

// Engines returns the numbers of the databases that a service of this configuration works for, in
// ascending order.
func (c *Config) Engines() []int {
	var out []int
	for i := range c.Databases() {
		if !c.IsSet("shards") || slices.Contains(c.Shards, strconv.Itoa(i)) {
			out = append(out, i)
		}
	}
	return out
}

// Shard returns the configuration for the k-th database, from 0. The first database has the names
// of an installation with one.
func (c *Config) Shard(k int) *Config {
	out := *c
	if len(c.MySQL.Shards) > 0 {
		out.MySQL.DSN, out.MySQL.DSNFile = c.MySQL.Shards[k].DSN, c.MySQL.Shards[k].DSNFile
	}
	if k > 0 {
		out.Scanner.Group = fmt.Sprintf("%s.%d", c.Scanner.Group, k)
		out.ZooKeeper.Root = fmt.Sprintf("%s.%d", c.ZooKeeper.Root, k)
		out.SendLog.Dir = filepath.Join(c.SendLog.Dir, fmt.Sprintf("shard-%d", k))
	}
	return &out
}

// shownShards are the entries without their secrets.
func shownShards(all []Shard) []string {
	out := make([]string, 0, len(all))
	for _, s := range all {
		shown := masked("mysql.dsn", s.DSN)
		if s.DSNFile != "" {
			shown = cmp.Or(shown, hidden) + " from " + withoutCredentials(s.DSNFile)
		}
		out = append(out, shown)
	}
	return out
}

// sameShards reports whether two lists name the same places. The content of a file may change.
func sameShards(a, b []Shard) bool {
	return slices.EqualFunc(a, b, func(x, y Shard) bool {
		return x.DSNFile == y.DSNFile && (x.DSNFile != "" || x.DSN == y.DSN)
	})
}
