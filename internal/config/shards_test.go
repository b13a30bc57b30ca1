package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSeveralDatabases(t *testing.T) {
	dir := t.TempDir()
	secret, file := filepath.Join(dir, "dsn"), filepath.Join(dir, "notyet.yaml")
	require.NoError(t, os.WriteFile(secret, []byte("u:geheim@tcp(b:1)/d\n"), 0o600))
	require.NoError(t, os.WriteFile(file, []byte("mysql: {shards: ['u:geheim@tcp(a:1)/d', {dsn-file: "+secret+"}]}\nshards: [1]\nsendlog: {dir: /s}\n"), 0o600))
	load := func(environ ...string) (*Config, error) {
		return Load(Sources{File: file, Environ: append(environ, "PATH=/bin")})
	}
	cfg, err := load()
	require.NoError(t, err)
	require.Equal(t, 2, cfg.Databases())
	require.Equal(t, []int{1}, cfg.Engines())
	require.True(t, cfg.IsSet("mysql.dsn"), "commands ask the home")
	require.Equal(t, "u:geheim@tcp(a:1)/d", cfg.MySQL.DSN)
	require.NotContains(t, cfg.String(), "geheim")
	require.Contains(t, cfg.String(), "mysql.shards: [u:(hidden)@tcp(a:1)/d u:(hidden)@tcp(b:1)/d from "+secret+"]\n")

	home, other := cfg.Shard(0), cfg.Shard(1)
	require.Equal(t, cfg, home, "the names of an installation with one database")
	require.Equal(t, []string{"u:geheim@tcp(b:1)/d", secret}, []string{other.MySQL.DSN, other.MySQL.DSNFile})
	require.Equal(t, []string{"notyet-scanner.1", "/notyet.1", "/s/shard-1"}, []string{other.Scanner.Group, other.ZooKeeper.Root, other.SendLog.Dir})
	require.Equal(t, []string{"notyet-scanner", "/notyet", "/s"}, []string{cfg.Scanner.Group, cfg.ZooKeeper.Root, cfg.SendLog.Dir})

	// What is in a file is read again by services; another list needs a restart.
	require.NoError(t, os.WriteFile(secret, []byte("u:anders@tcp(b:1)/d\n"), 0o600))
	next, err := load()
	require.NoError(t, err)
	_, taken, restart := cfg.Take(next)
	require.Empty(t, append(taken, restart...))
	next, err = load("NOTYET_MYSQL_SHARDS=u:p@tcp(a:1)/d, u:p@tcp(c)/d", "NOTYET_SHARDS=0,1")
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, next.Engines())
	_, _, restart = cfg.Take(next)
	require.Equal(t, []string{"mysql.dsn", "mysql.shards", "shards"}, restart)

	one, err := Load(Sources{Environ: []string{"NOTYET_MYSQL_SHARDS=u:p@tcp(a:1)/d"}, Require: []string{"mysql.dsn"}})
	require.NoError(t, err)
	require.Equal(t, []any{1, []int{0}}, []any{one.Databases(), one.Engines()})
	plain, err := Load(Sources{Environ: []string{"NOTYET_MYSQL_DSN=u:p@tcp(a:1)/d"}})
	require.NoError(t, err)
	require.Equal(t, plain, plain.Shard(0))
}

func TestWrongDatabases(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "dsn")
	require.NoError(t, os.WriteFile(secret, []byte("u:geheim@tcp(a)/d"), 0o600))
	const two = "NOTYET_MYSQL_SHARDS=u:geheim@tcp(a)/d,u:geheim@tcp(b)/d"
	for name, c := range map[string]struct {
		file string
		env  []string
		want []string
	}{
		"with the one database":      {env: []string{two, "NOTYET_MYSQL_DSN=u:geheim@tcp(a)/d"}, want: []string{"mysql.dsn (NOTYET_MYSQL_DSN) and mysql.shards exclude each other"}},
		"with its file":              {env: []string{two, "NOTYET_MYSQL_DSN_FILE=" + secret}, want: []string{"mysql.dsn", "mysql.shards exclude each other"}},
		"one twice":                  {env: []string{"NOTYET_MYSQL_SHARDS=u:geheim@tcp(a)/d,u:geheim@tcp(b)/d,v:geheim@tcp(A:3306)/d?timeout=5s"}, want: []string{"the same database in entries 0 and 2"}},
		"one twice, in a file":       {file: "mysql: {shards: [{dsn-file: " + secret + "}, 'w@tcp(a:3306)/d']}", want: []string{"the same database in entries 0 and 1"}},
		"one file twice":             {env: []string{"NOTYET_MYSQL_SHARDS=sqlite:a/x,sqlite:a/./x"}, want: []string{"the same database in entries 0 and 1"}},
		"in memory":                  {env: []string{"NOTYET_MYSQL_SHARDS=sqlite:a/x,sqlite::memory:"}, want: []string{"in memory in entry 1"}},
		"no DSN":                     {env: []string{"NOTYET_MYSQL_SHARDS=u:geheim@tcp(a)/d,geheim"}, want: []string{"an entry 1 that cannot be read"}},
		"an unverified server":       {env: []string{"NOTYET_MYSQL_SHARDS=u:geheim@tcp(a)/d,u:geheim@tcp(b)/d?tls=skip-verify"}, want: []string{"an entry 1 that asks for TLS without verifying"}},
		"the home is no DSN":         {env: []string{"NOTYET_MYSQL_SHARDS=geheim,u:geheim@tcp(a)/d"}, want: []string{"mysql.dsn (NOTYET_MYSQL_SHARDS) cannot be read"}},
		"none":                       {file: "mysql: {shards: []}", want: []string{"mysql.shards", "is empty"}},
		"no file":                    {file: "mysql: {shards: ['u:geheim@tcp(a)/d', {dsn-file: /does/not/exist}]}", want: []string{"dsn-file in entry 1 that cannot be used"}},
		"an unknown key":             {file: "mysql: {shards: [{dsn: 'u:geheim@tcp(a)/d'}]}", want: []string{"entry 0: write a DSN in quotes, or a mapping with dsn-file"}},
		"a password beside a file":   {env: []string{"NOTYET_MYSQL_SHARDS=u@tcp(a)/d,u:geheim@tcp(b)/d", "NOTYET_MYSQL_PASSWORD_FILE=" + secret}, want: []string{"has a password in entry 1 beside mysql.password-file"}},
		"one to migrate":             {env: []string{two, "NOTYET_MIGRATE_DSN=r:geheim@tcp(a)/d"}, want: []string{"migrate.dsn", "mysql.shards has several"}},
		"work for an unknown one":    {env: []string{two, "NOTYET_SHARDS=1,2"}, want: []string{`shards (NOTYET_SHARDS) "2" is no entry of mysql.shards, which has 2`}},
		"work for one of one":        {env: []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(a)/d", "NOTYET_SHARDS=1"}, want: []string{"which has 1"}},
		"work for no number":         {env: []string{two, "NOTYET_SHARDS=01"}, want: []string{"is not a number"}},
		"work for one twice":         {env: []string{two, "NOTYET_SHARDS=1,1"}, want: []string{"is named twice"}},
		"work for nothing":           {env: []string{two, "NOTYET_SHARDS="}, want: []string{"shards (NOTYET_SHARDS) is empty"}},
		"work for nothing in a list": {file: "shards: []", want: []string{"is empty"}},
	} {
		t.Run(name, func(t *testing.T) {
			src := Sources{Environ: append(c.env, "PATH=/bin")}
			if c.file != "" {
				src.File = filepath.Join(t.TempDir(), "notyet.yaml")
				require.NoError(t, os.WriteFile(src.File, []byte(c.file), 0o600))
			}
			cfg, problems := Read(src)
			require.NotEmpty(t, problems)
			err := &Error{Problems: problems}
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			require.NotContains(t, err.Error(), "geheim")
			require.NotContains(t, cfg.String(), "geheim")
		})
	}
}
